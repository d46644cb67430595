/** <top-bar>: the way to each page, whether the page is live, and the keys. Property `page`. */

import { h } from "../lib/dom.js";
import { onKey } from "../lib/keys.js";
import { goTo } from "../lib/router.js";
import { t } from "../lib/texts.js";

const PAGES = /** @type {const} */ ([["runs", "/", "g r"], ["alerts", "/alerts", "g a"], ["settings", "/settings", "g s"]]);

export class TopBar extends HTMLElement {
  #links = PAGES.map(([page, href]) => h("a", { href, "data-page": page }, t(`nav.${page}`), page === "alerts" && h("alert-bell")));
  #help = h("button", { type: "button", class: "help-button", "aria-label": t("nav.help"), title: t("nav.help"), "aria-keyshortcuts": "?" }, "?");

  connectedCallback() {
    if (this.firstChild) return;
    this.append(h("nav", { "aria-label": t("nav.label") }, ...this.#links), h("connection-status"), this.#help);
    this.#help.addEventListener("click", () => document.querySelector("help-dialog")?.open());
    for (const [, href, keys] of PAGES) onKey(keys, () => goTo(href), new AbortController().signal);
  }

  set page(/** @type {string} */ page) {
    for (const link of this.#links) {
      if (link.dataset.page === page) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
  }
}

export const registerTopBar = () => customElements.define("top-bar", TopBar);
