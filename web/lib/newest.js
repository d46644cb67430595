/** A run's newest value in words, in which NaN and "not recorded" are two things; pure. */

import { number } from "./format.js";

/** @typedef {"grad_norm_before_clip" | "loss"} Newest */

/** @param {LastValues} last @param {Newest} name @param {number} [digits] */
export function newestValue(last, name, digits) {
  const word = nonfiniteWord(last, name);
  return word ?? number(last[name], digits);
}

/** `NaN`, `Inf` or `−Inf` where the newest value was that. @param {LastValues} last @param {Newest} name @returns {string | null} */
export function nonfiniteWord(last, name) {
  return last.nonfinite?.[name]?.replace("Infinity", "Inf").replace("-", "−") ?? null;
}
