/** Words with what they mean, shown on hover and on focus. */

import { h } from "./dom.js";

/** @param {string} words @param {string | null} [meaning] where there is none, the words alone */
export function explained(words, meaning) {
  if (!meaning) return h("span", {}, words);
  const term = h("span", { class: "explained", tabindex: 0, "aria-description": meaning, "data-own-gestures": true }, words);
  const tip = h("span", { class: "tip", "aria-hidden": "true" }, meaning);
  // Only while it is looked at: it is no part of the heading that the term stands in.
  for (const event of ["pointerenter", "focus"]) term.addEventListener(event, () => term.append(tip));
  for (const event of ["pointerleave", "blur"]) term.addEventListener(event, () => tip.remove());
  term.addEventListener("keydown", (event) => event.key === "Escape" && tip.remove());
  return term;
}
