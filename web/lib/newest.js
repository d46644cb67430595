/** A run's newest value in words, in which NaN and "not recorded" are two things; pure. */

import { number } from "./format.js";

/** @typedef {"grad_norm_before_clip" | "loss" | "max_norm" | "clip_coef" | "loss_scale"} Newest */

/** @param {LastValues} last @param {Newest} name @param {number} [digits] */
export function newestValue(last, name, digits) {
  const word = nonfiniteWord(last, name);
  return word ?? number(last[name], digits);
}

/** `NaN`, `Inf` or `−Inf` where the newest value was that. @param {LastValues} last @param {Newest} name @returns {string | null} */
export function nonfiniteWord(last, name) {
  return last.nonfinite?.[name]?.replace("Infinity", "Inf").replace("-", "−") ?? null;
}

/** Whether a run recorded norms, finite or not, as far as is known. @param {ListedRun} run */
export function hasNorms({ last, num_nonfinite, num_clipped, sparkline, verdict }) {
  if (num_nonfinite || num_clipped || typeof last.grad_norm_before_clip === "number") return true;
  // Where there is no line to look at: without any norm there is no verdict on clipping.
  return sparkline ? sparkline.norm.some((norm) => norm !== null) : verdict?.clipping.verdict !== "unknown";
}
