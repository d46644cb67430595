/** Words with what they mean, shown on hover and on focus. */

import { h } from "./dom.js";

let number = 0;

/** @param {string} words @param {string | null} meaning where there is none, the words alone */
export function explained(words, meaning) {
  if (!meaning) return h("span", {}, words);
  const id = `why-${++number}`;
  const tip = h("span", { class: "tip", id, role: "tooltip" }, meaning);
  return h("span", { class: "explained", tabindex: 0, "aria-describedby": id, "data-own-gestures": true }, words, tip);
}
