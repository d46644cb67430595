/** <compare-settings>: what the runs of a comparison were started with, in a table; those that differ, or all. Method `show`. */

import { settingsOf } from "../lib/comparing.js";
import { h } from "../lib/dom.js";
import { NOTHING } from "../lib/format.js";
import { t } from "../lib/texts.js";

export class CompareSettings extends HTMLElement {
  #all = h("input", { type: "checkbox" });
  #words = h("p", { class: "muted" });
  #table = h("table");
  /** @type {RunDetail[]} */
  #runs = [];

  connectedCallback() {
    if (this.firstChild) return;
    this.append(
      h("header", {}, h("h2", {}, t("compare.settings")), h("label", { class: "choice" }, this.#all, t("compare.settings.all"))),
      this.#words, h("div", { class: "table-scroll", tabindex: 0, role: "region", "aria-label": t("compare.settings") }, this.#table),
    );
    this.#all.addEventListener("change", () => this.show(this.#runs));
  }

  /** @param {RunDetail[]} runs */
  show(runs) {
    this.#runs = runs;
    const settings = settingsOf(runs);
    const rows = settings.filter(({ differs }) => differs || this.#all.checked);
    this.#words.hidden = rows.length > 0;
    this.#table.hidden = !rows.length;
    this.#words.textContent = settings.length ? t("compare.settings.same") : t("compare.settings.none");
    this.#table.replaceChildren(
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, t("compare.setting")), ...runs.map((run, i) => h("th", { scope: "col", "data-run": i, title: run.name }, `${i + 1} ${run.name}`)))),
      h("tbody", {}, ...rows.map(({ key, values, differs }) => h("tr", { class: differs ? "differs" : null },
        h("th", { scope: "row" }, key), ...values.map((value) => h("td", { class: value === null ? "muted" : null }, value ?? NOTHING))))),
    );
  }
}

export const registerCompareSettings = () => customElements.define("compare-settings", CompareSettings);
