/** <chart-menu>: what can be taken away from a chart. Event `take`: `png`, `csv` or `table`. */

import { h } from "../lib/dom.js";
import { t } from "../lib/texts.js";

const WAYS = /** @type {const} */ (["png", "csv", "table"]);

export class ChartMenu extends HTMLElement {
  #button = h("button", { type: "button", class: "menu-button", "aria-expanded": "false", "aria-haspopup": "true" }, "⋯");
  #items = WAYS.map((way) => h("button", { type: "button", role: "menuitem" }, t(`take.${way}`)));
  #list = h("div", { class: "menu-list", role: "menu", hidden: true }, ...this.#items);

  connectedCallback() {
    if (this.firstChild) return;
    this.dataset.ownGestures = "";
    this.append(this.#button, this.#list);
    this.#button.addEventListener("click", () => this.#toggle(Boolean(this.#list.hidden)));
    this.#items.forEach((item, i) => item.addEventListener("click", () => {
      this.#toggle(false);
      this.dispatchEvent(new CustomEvent("take", { detail: WAYS[i], bubbles: true }));
    }));
    this.addEventListener("keydown", (event) => this.#key(event));
    this.addEventListener("focusout", (event) => !this.contains(/** @type {Node | null} */ (event.relatedTarget)) && this.#toggle(false));
  }

  set chart(/** @type {string} */ name) {
    this.#button.setAttribute("aria-label", t("take.from", { chart: name }));
    this.#button.title = t("take.title");
  }

  /** @param {boolean} open */
  #toggle(open) {
    this.#list.hidden = !open;
    this.#button.setAttribute("aria-expanded", String(open));
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.key === "Escape" && !this.#list.hidden) {
      event.stopPropagation();
      this.#toggle(false);
      this.#button.focus();
    }
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    event.preventDefault();
    event.stopPropagation();
    this.#toggle(true);
    const at = this.#items.indexOf(/** @type {HTMLButtonElement} */ (document.activeElement));
    const next = event.key === "ArrowDown" ? at + 1 : at < 0 ? this.#items.length - 1 : at - 1;
    this.#items[(next + this.#items.length) % this.#items.length].focus();
  }
}

export const registerChartMenu = () => customElements.define("chart-menu", ChartMenu);
