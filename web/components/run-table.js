/**
 * <run-table>: runs in rows, of which only those in sight are made, so that thousands cost what a screenful does.
 *
 * Method `show`; events `pick` (of its rows), `pickall` (whether all), `order` (a column's order), `more` (the end is near).
 */

import { h } from "../lib/dom.js";
import { openAlerts } from "../lib/open-alerts.js";
import { t } from "../lib/texts.js";

const COLUMNS = /** @type {const} */ (["state", "run", "clipping", "loss_scaling", "nonfinite", "spark", "step", "rate", "norm", "loss", "alerts", "seen"]);
/** What a click on a heading sorts by. @type {Partial<Record<typeof COLUMNS[number], import("../lib/run-order.js").RunOrder>>} */
const ORDER_OF = { run: "name", clipping: "severity", seen: "-last_seen_s" };
/** Rows made above and below those in sight, so that scrolling meets no blank; so few left of them make new ones. */
const SPARE = 10;
const FEWEST_SPARE = 2;
const NEAR_THE_END = 30;

export class RunTable extends HTMLElement {
  #life = new AbortController();
  #all = h("input", { type: "checkbox", "aria-label": t("runs.pick.all") });
  #headings = h("div", { role: "row", class: "run-headings" });
  #rows = h("div", { role: "rowgroup", class: "run-rows" });
  /** @type {ListedRun[]} */
  #runs = [];
  /** @type {ReadonlySet<string>} */
  #picked = new Set();
  #height = 0;
  #frame = 0;
  /** The rows that are made: from, and up to. @type {[number, number]} */
  #range = [0, 0];

  connectedCallback() {
    this.#life = new AbortController();
    const { signal } = this.#life;
    this.setAttribute("role", "table");
    this.setAttribute("aria-label", t("runs.table"));
    this.#headings.replaceChildren(h("span", { role: "columnheader", class: "cell pick" }, h("label", {}, this.#all)), ...COLUMNS.map((name) => this.#heading(name)));
    this.replaceChildren(h("div", { role: "rowgroup" }, this.#headings), this.#rows);
    this.#all.addEventListener("change", () => this.#tell("pickall", this.#all.checked), { signal });
    openAlerts.watch(() => this.#draw(), signal);
    addEventListener("scroll", () => this.#later(), { signal, passive: true });
    addEventListener("resize", () => this.#measureAgain(), { signal });
  }

  disconnectedCallback() {
    this.#life.abort();
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
  }

  /** @param {ListedRun[]} runs @param {ReadonlySet<string>} picked @param {import("../lib/run-order.js").RunOrder} order @param {number} numRuns */
  show(runs, picked, order, numRuns) {
    this.#runs = runs;
    this.#picked = picked;
    this.setAttribute("aria-rowcount", String(numRuns + 1));
    this.#all.checked = runs.length > 0 && runs.every(({ id }) => picked.has(id));
    this.#all.indeterminate = !this.#all.checked && picked.size > 0;
    for (const heading of this.#headings.querySelectorAll("[data-order]")) {
      const sorts = /** @type {HTMLElement} */ (heading).dataset.order === order;
      if (sorts) heading.setAttribute("aria-sort", order === "name" ? "ascending" : "descending");
      else heading.removeAttribute("aria-sort");
    }
    this.#draw();
  }

  /** Moves the focus by so many rows, or to the first in sight. @param {number} by */
  moveFocus(by) {
    const at = this.#runs.findIndex(({ id }) => id === this.focused);
    const first = Math.max(0, Math.ceil(-this.#top / this.#height));
    this.focusRow(at < 0 ? first : at + by);
  }

  /** The run whose row has the focus. */
  get focused() {
    return document.activeElement?.closest("run-row")?.dataset.run ?? null;
  }

  /** @param {number} index */
  focusRow(index) {
    const run = this.#runs[Math.min(Math.max(0, index), this.#runs.length - 1)];
    if (!run) return;
    const at = this.#runs.indexOf(run);
    const top = this.#top + at * this.#height;
    const room = 2 * this.#height;
    if (top < room || top + this.#height > innerHeight - room) scrollBy({ top: top - innerHeight / 2 });
    this.#draw();
    this.#rowOf(run.id)?.focusLink();
  }

  get #top() {
    return this.#rows.getBoundingClientRect().top;
  }

  /** @param {string} runId */
  #rowOf(runId) {
    return this.#made().get(runId) ?? null;
  }

  #made() {
    return new Map([...this.#rows.querySelectorAll("run-row")].map((row) => [row.dataset.run ?? "", row]));
  }

  #measureAgain() {
    this.#height = 0;
    this.#later();
  }

  #later() {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      if (!this.#height || !this.#coversSight()) this.#draw();
    });
  }

  /** Which rows can be seen, in numbers that may lie outside the list. @param {number} spare more above and below */
  #inSight(spare) {
    const top = this.#top;
    return [Math.floor(-top / this.#height) - spare, Math.ceil((innerHeight - top) / this.#height) + spare];
  }

  #coversSight() {
    const [first, end] = this.#inSight(FEWEST_SPARE);
    return Math.max(0, first) >= this.#range[0] && Math.min(this.#runs.length, end) <= this.#range[1];
  }

  /** Rows stay with their runs as they move, so that focus and selected text survive a live change. */
  #draw() {
    if (!this.isConnected || this.hidden) return;
    this.#height ||= this.#measured();
    if (!this.#height) return;
    const [from, to] = this.#inSight(SPARE);
    const first = Math.max(0, Math.min(from, this.#runs.length));
    const end = Math.min(this.#runs.length, Math.max(first, to));
    this.#range = [first, end];
    const shown = this.#runs.slice(first, end);
    const rows = this.#made();
    const spare = [...rows].filter(([id]) => !shown.some((run) => run.id === id)).map(([, row]) => row);
    shown.forEach((run, i) => {
      const row = rows.get(run.id) ?? spare.pop() ?? h("run-row");
      if (this.#rows.children[i] !== row) this.#rows.insertBefore(row, this.#rows.children[i] ?? null);
      row.run = run;
      row.alerts = openAlerts.of(run.id);
      row.selected = this.#picked.has(run.id);
      row.setAttribute("aria-rowindex", String(first + i + 2));
    });
    for (const row of spare) row.remove();
    this.#rows.style.paddingTop = `${first * this.#height}px`;
    this.#rows.style.paddingBottom = `${(this.#runs.length - first - shown.length) * this.#height}px`;
    if (end > this.#runs.length - NEAR_THE_END) this.#tell("more", null);
  }

  #measured() {
    const made = this.#rows.querySelector("run-row");
    const probe = made ?? this.#rows.appendChild(h("run-row"));
    const { height } = probe.getBoundingClientRect();
    if (!made) probe.remove();
    return height;
  }

  /** @param {typeof COLUMNS[number]} name */
  #heading(name) {
    const order = ORDER_OF[name];
    const words = t(`column.${name}`);
    if (!order) return h("span", { role: "columnheader", class: `cell ${name}`, title: t(`column.${name}.why`) }, words);
    const button = h("button", { type: "button", title: t(`runs.sort.${order}`) }, words);
    button.addEventListener("click", () => this.#tell("order", order));
    return h("span", { role: "columnheader", class: `cell ${name}`, "data-order": order }, button);
  }

  /** @param {string} event @param {unknown} detail */
  #tell(event, detail) {
    this.dispatchEvent(new CustomEvent(event, { detail, bubbles: true }));
  }
}

export const registerRunTable = () => customElements.define("run-table", RunTable);
