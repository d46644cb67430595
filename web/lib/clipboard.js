/** A button that copies what an element says. */

import { h, setText } from "./dom.js";
import { t } from "./texts.js";

const DONE_MS = 2_000;

/** @param {HTMLElement} element */
export function copyButton(element) {
  const button = h("button", { type: "button", class: "button small" }, t("copy"));
  button.addEventListener("click", async () => {
    await copy(element);
    setText(button, t("copy.done"));
    setTimeout(() => setText(button, t("copy")), DONE_MS);
  });
  return button;
}

/** @param {string} text */
export async function copyText(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const field = h("textarea", { readonly: true, class: "visually-hidden" });
  field.value = text;
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}

/** The clipboard API is missing on plain http, where selecting and the old command still work. @param {HTMLElement} element */
async function copy(element) {
  if (navigator.clipboard) return navigator.clipboard.writeText(element.textContent ?? "");
  getSelection()?.selectAllChildren(element);
  document.execCommand("copy");
}
