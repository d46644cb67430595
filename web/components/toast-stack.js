/** <toast-stack>: the messages of lib/toasts.js in a corner; grave ones stay until they are closed. */

import { h } from "../lib/dom.js";
import { toneMark } from "../lib/marks.js";
import { t } from "../lib/texts.js";
import { onToast } from "../lib/toasts.js";

const SHOWN_MS = 6_000;
const MOST = 4;

export class ToastStack extends HTMLElement {
  #life = new AbortController();

  connectedCallback() {
    this.#life = new AbortController();
    this.setAttribute("role", "log");
    this.setAttribute("aria-label", t("toast.label"));
    onToast((toast) => this.#say(toast), this.#life.signal);
  }

  disconnectedCallback() {
    this.#life.abort();
  }

  /** @param {import("../lib/toasts.js").Toast} toast */
  #say({ tone, title, words, href, key }) {
    if (key) for (const older of this.querySelectorAll(".toast")) if (/** @type {HTMLElement} */ (older).dataset.key === key) older.remove();
    const close = h("button", { type: "button", class: "toast-close", "aria-label": t("toast.close") }, "×");
    const strong = h("strong", {}, title);
    const element = h("div", { class: "toast card", "data-tone": tone, "data-key": key },
      toneMark(tone, 14), h("div", { class: "toast-words", title: [title, words].filter(Boolean).join("\n") }, href ? h("a", { href }, strong) : strong, words && h("p", {}, words)), close);
    close.addEventListener("click", () => element.remove());
    if (href) element.querySelector("a")?.addEventListener("click", () => element.remove());
    this.append(element);
    while (this.children.length > MOST) this.firstElementChild?.remove();
    if (tone === "neutral" || tone === "healthy") setTimeout(() => element.remove(), SHOWN_MS);
  }
}

export const registerToastStack = () => customElements.define("toast-stack", ToastStack);
