/** <run-list>: all runs in one dense table that stays up to date by itself. */

import { ApiError, getRuns } from "../lib/api.js";
import { everySecond, serverNow } from "../lib/clock.js";
import { h, setText } from "../lib/dom.js";
import { addressValues, rememberInAddress } from "../lib/router.js";
import { compareRuns, orderOf, ORDERS } from "../lib/run-order.js";
import { stream } from "../lib/stream.js";
import { t } from "../lib/texts.js";

const PAGE = 100;
const TYPING_MS = 200;
/** A run that has gone quiet says nothing of it: the list is read again. */
const QUIET_S = 20;
const ASK_AGAIN_S = 10;

export class RunList extends HTMLElement {
  #life = new AbortController();
  #reading = new AbortController();
  #filter = h("input", { type: "search", class: "filter", placeholder: t("runs.filter"), "aria-label": t("runs.filter"), spellcheck: "false", autocomplete: "off" });
  #order = orderOf(addressValues().get("sort"));
  #sort = h("select", { id: "sort-runs" }, ...ORDERS.map((order) => h("option", { value: order }, t(`runs.sort.${order}`))));
  #tools = h("div", { class: "runs-tools" }, h("label", { class: "choice" }, t("runs.sort"), this.#sort), this.#filter);
  #body = h("div", { role: "rowgroup", class: "run-rows" });
  #table = h("div", { role: "table", class: "card run-table", "aria-label": t("runs.table") }, headings(), this.#body);
  #message = h("div", { class: "notice", role: "status" });
  #more = h("button", { type: "button", class: "button more" }, t("runs.more"));
  #count = h("span", { class: "muted" });
  /** @type {Map<string, RunSummary>} */
  #runs = new Map();
  /** @type {LiveEvent[] | null} since the read under way began */
  #heard = null;
  /** @type {string | null} */
  #cursor = null;
  #typing = 0;
  #asked_s = 0;
  #loaded = false;

  connectedCallback() {
    this.#life = new AbortController();
    const { signal } = this.#life;
    document.title = `${t("runs.title")} · ${t("app.name")}`;
    this.replaceChildren(
      h("header", { class: "page-head" }, h("h1", {}, t("runs.title")), this.#count, this.#tools),
      this.#table, this.#message, this.#more,
    );
    this.#filter.addEventListener("input", () => this.#typed(), { signal });
    this.#sort.value = this.#order;
    this.#sort.addEventListener("change", () => this.#sortBy(orderOf(this.#sort.value)), { signal });
    this.#more.addEventListener("click", () => this.#read(this.#cursor), { signal });
    stream().watchRuns((message) => this.#hear(message), signal);
    everySecond(() => this.#askIfQuiet(), signal);
    this.#show();
    this.#read(null);
  }

  disconnectedCallback() {
    this.#life.abort();
    this.#reading.abort();
    clearTimeout(this.#typing);
  }

  get #words() {
    return this.#filter.value.trim();
  }

  #typed() {
    clearTimeout(this.#typing);
    this.#typing = window.setTimeout(() => this.#read(null), TYPING_MS);
  }

  /** @param {import("../lib/run-order.js").RunOrder} order */
  #sortBy(order) {
    this.#order = order;
    rememberInAddress({ sort: order === ORDERS[0] ? null : order });
    this.#show();
    if (this.#cursor) this.#read(null);
  }

  /** @param {string | null} cursor null reads from the top */
  async #read(cursor) {
    this.#reading.abort();
    this.#reading = new AbortController();
    const { signal } = this.#reading;
    this.#asked_s = serverNow();
    /** @type {LiveEvent[]} */
    const heard = (this.#heard = []);
    try {
      const { items, next_cursor } = await getRuns({ q: this.#words, sort: this.#order, limit: PAGE, cursor }, signal);
      if (cursor === null) this.#runs.clear();
      for (const run of items) this.#runs.set(run.id, run);
      this.#cursor = next_cursor;
      this.#loaded = true;
      // The answer may be older than what was heard while it was on its way.
      for (const message of heard) this.#apply(message);
      this.#heard = null;
      this.#show();
    } catch (error) {
      if (!signal.aborted) this.#showProblem(error instanceof ApiError ? error.message : String(error));
    }
  }

  /** @param {FromHub} message */
  #hear(message) {
    if (message.kind === "hello" || (message.kind === "event" && message.event === "stale" && !message.run_id)) this.#read(null);
    if (message.kind !== "event" || (message.event !== "run" && message.event !== "deleted")) return;
    this.#heard?.push(message);
    if (this.#loaded && this.#apply(message)) this.#show();
  }

  /** @param {LiveEvent} message @returns {boolean} whether the list has changed */
  #apply(message) {
    if (message.event === "deleted") return this.#runs.delete(message.run_id);
    if (message.event !== "run" || !this.#belongs(message.payload)) return false;
    this.#runs.set(message.run_id, message.payload);
    return true;
  }

  /** Whether a run that changed is one of those listed, or a new one that should be. @param {RunSummary} run */
  #belongs(run) {
    if (this.#runs.has(run.id)) return true;
    if (run.archived) return false;
    const words = this.#words.toLowerCase();
    const last = this.#cursor ? this.#sorted.at(-1) : undefined;
    return (!words || `${run.project}/${run.name}`.toLowerCase().includes(words)) && (!last || compareRuns(this.#order, run, last) < 0);
  }

  get #sorted() {
    return [...this.#runs.values()].sort((a, b) => compareRuns(this.#order, a, b));
  }

  #askIfQuiet() {
    const now_s = serverNow();
    if (!this.#loaded || now_s - this.#asked_s < ASK_AGAIN_S || !stream().connected || this.#runs.size > PAGE) return;
    const quiet = [...this.#runs.values()].some(
      (run) => (run.state === "running" || run.state === "stalled") && now_s - run.last_seen_s > QUIET_S,
    );
    if (quiet) this.#read(null);
  }

  /** @param {string} reason */
  #showProblem(reason) {
    const retry = h("button", { type: "button", class: "button" }, t("retry"));
    retry.addEventListener("click", () => this.#read(null));
    this.#message.hidden = false;
    this.#message.replaceChildren(h("strong", {}, t("runs.error")), " ", reason, " ", retry);
  }

  #show() {
    const runs = this.#sorted;
    const isFirst = this.#loaded && !runs.length && !this.#words;
    this.#showRows(runs);
    this.#table.hidden = !runs.length;
    this.#more.hidden = !this.#cursor;
    this.#tools.hidden = isFirst || !this.#loaded;
    setText(this.#count, runs.length ? `${runs.length}${this.#cursor ? "+" : ""}` : "");
    this.#message.hidden = runs.length > 0 || isFirst;
    if (!runs.length) setText(this.#message, this.#loaded ? t("runs.none", { q: this.#words }) : t("runs.loading"));
    const welcome = this.querySelector("first-run");
    if (isFirst && !welcome) this.append(h("first-run"));
    if (!isFirst) welcome?.remove();
  }

  /** Rows are kept and moved, so that focus and selection survive a live change. @param {RunSummary[]} runs */
  #showRows(runs) {
    const rows = new Map([...this.#body.querySelectorAll("run-row")].map((row) => [row.dataset.run, row]));
    runs.forEach((run, i) => {
      const row = rows.get(run.id) ?? h("run-row");
      rows.delete(run.id);
      row.run = run;
      if (this.#body.children[i] !== row) this.#body.insertBefore(row, this.#body.children[i] ?? null);
    });
    for (const row of rows.values()) row.remove();
  }
}

function headings() {
  const columns = /** @type {const} */ (["state", "run", "clipping", "loss_scaling", "nonfinite", "step", "rate", "norm", "loss", "seen"]);
  const cells = columns.map((column) => h("span", { role: "columnheader", class: `cell ${column}` }, t(`column.${column}`)));
  return h("div", { role: "row", class: "run-headings" }, ...cells);
}

export const registerRunList = () => customElements.define("run-list", RunList);
