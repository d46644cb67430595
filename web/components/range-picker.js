/** <range-picker>: which steps the charts show. Event `look`: the new view. */

import { h, setText } from "../lib/dom.js";
import { integer } from "../lib/format.js";
import { t } from "../lib/texts.js";
import { ALL, isZoomed, toggleFollow } from "../lib/view.js";

const WIDTHS = [null, 5_000, 1_000];

export class RangePicker extends HTMLElement {
  #buttons = WIDTHS.map((width) => h("button", { type: "button", "aria-pressed": "false" }, width === null ? t("range.all") : t("range.last", { count: integer(width) })));
  #follow = h("button", { type: "button", class: "button follow", "aria-pressed": "false", title: t("range.follow.why") }, t("range.follow"));
  #zoomed = h("span", { class: "zoomed muted" });
  /** @type {View} */
  #view = ALL;
  /** @type {[number, number]} */
  #shown = [0, 0];

  connectedCallback() {
    if (this.firstChild) return;
    this.append(this.#zoomed, h("div", { class: "segments", role: "group", "aria-label": t("range.label") }, ...this.#buttons), this.#follow);
    this.#buttons.forEach((button, i) => button.addEventListener("click", () => this.#look({ ...ALL, width: WIDTHS[i] })));
    this.#follow.addEventListener("click", () => this.#look(toggleFollow(this.#view, this.#shown)));
  }

  /** @param {View} view @param {[number, number]} shown @param {boolean} live */
  show(view, shown, live) {
    this.#view = view;
    this.#shown = shown;
    const zoomed = isZoomed(view) || (view.width !== null && !WIDTHS.includes(view.width));
    this.#buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(!zoomed && view.width === WIDTHS[i])));
    this.#follow.hidden = !live;
    this.#follow.setAttribute("aria-pressed", String(view.follow));
    setText(this.#zoomed, zoomed ? t("range.zoomed", { first: integer(shown[0]), last: integer(shown[1]) }) : "");
  }

  /** @param {View} view */
  #look(view) {
    this.dispatchEvent(new CustomEvent("look", { detail: view, bubbles: true }));
  }
}

export const registerRangePicker = () => customElements.define("range-picker", RangePicker);
