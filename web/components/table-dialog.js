/** <table-dialog>: the numbers behind a chart, for who cannot see it or wants them exactly. */

import { h, setText } from "../lib/dom.js";
import { integer, number, plain } from "../lib/format.js";
import { t } from "../lib/texts.js";

/** What a browser lays out at once; the file has them all. */
const MOST = { rows: 1_000, columns: 60 };

export class TableDialog extends HTMLElement {
  #title = h("h2");
  #words = h("p", { class: "muted" });
  #table = h("table");
  #close = h("button", { type: "button", class: "button small" }, t("table.close"));
  #dialog = h("dialog", { class: "card" }, h("header", {}, this.#title, this.#close), this.#words, h("div", { class: "table-scroll", tabindex: 0 }, this.#table));

  connectedCallback() {
    if (this.firstChild) return;
    this.append(this.#dialog);
    this.#close.addEventListener("click", () => this.#dialog.close());
    this.#dialog.addEventListener("click", (event) => event.target === this.#dialog && this.#dialog.close());
  }

  /** @param {string} title @param {import("../lib/chart-table.js").Table} table */
  open(title, { columns, rows }) {
    setText(this.#title, title);
    this.#dialog.setAttribute("aria-label", title);
    const shown = { columns: columns.slice(0, MOST.columns), rows: rows.slice(-MOST.rows) };
    const isWhole = shown.rows.length === rows.length && shown.columns.length === columns.length;
    setText(this.#words, t(isWhole ? "table.all" : "table.some", { shown: integer(shown.rows.length), rows: integer(rows.length), columns: integer(columns.length) }));
    const head = h("thead", {}, h("tr", {}, ...shown.columns.map((name) => h("th", { scope: "col" }, name))));
    const body = h("tbody", {}, ...shown.rows.map((row) => h("tr", {}, ...shown.columns.map((_, i) => (i ? h("td", {}, cell(row[i])) : h("th", { scope: "row" }, plainStep(row[0])))))));
    this.#table.replaceChildren(head, body);
    this.#dialog.showModal();
  }
}

/** @param {number | string} value */
function cell(value) {
  return typeof value !== "number" ? value : value === 1 ? "1" : number(value, 5);
}

/** @param {number | string} step */
function plainStep(step) {
  return typeof step === "number" ? integer(step) : plain(Number(step));
}

export const registerTableDialog = () => customElements.define("table-dialog", TableDialog);
