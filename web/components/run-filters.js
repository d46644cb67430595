/** <run-filters>: what a list of runs is narrowed to and sorted by. Property `filter`; event `filter` with the new one. */

import { h } from "../lib/dom.js";
import { integer } from "../lib/format.js";
import { MOST_LETTERS, STATUSES } from "../lib/run-filter.js";
import { orderOf, ORDERS } from "../lib/run-order.js";
import { t } from "../lib/texts.js";

const TYPING_MS = 200;

export class RunFilters extends HTMLElement {
  #words = h("input", { type: "search", class: "filter", maxlength: MOST_LETTERS, placeholder: t("runs.filter"), "aria-label": t("runs.filter"), "aria-keyshortcuts": "/", spellcheck: "false", autocomplete: "off" });
  #status = h("select", { "aria-label": t("runs.status") }, h("option", { value: "" }, t("runs.status.any")), ...STATUSES.map((status) => h("option", { value: status }, t(`runs.status.${status}`))));
  #project = h("select", { "aria-label": t("runs.project") });
  #tag = h("select", { "aria-label": t("runs.tag") });
  #sort = h("select", { id: "sort-runs" }, ...ORDERS.map((order) => h("option", { value: order }, t(`runs.sort.${order}`))));
  /** @type {import("../lib/run-filter.js").RunFilter} */
  #filter = { q: "", status: null, project: null, tag: null, sort: ORDERS[0] };
  #typing = 0;

  connectedCallback() {
    if (this.firstChild) return;
    this.offer([], []);
    this.append(this.#words, this.#project, this.#status, this.#tag, h("label", { class: "choice" }, t("runs.sort"), this.#sort));
    this.#words.addEventListener("input", () => this.#typed());
    for (const select of [this.#status, this.#project, this.#tag, this.#sort]) select.addEventListener("change", () => this.#tell());
  }

  disconnectedCallback() {
    clearTimeout(this.#typing);
  }

  set filter(/** @type {import("../lib/run-filter.js").RunFilter} */ filter) {
    this.#filter = filter;
    if (this.#words.value.trim() !== filter.q) this.#words.value = filter.q;
    this.#status.value = filter.status ?? "";
    this.#sort.value = filter.sort;
    choose(this.#project, filter.project);
    choose(this.#tag, filter.tag);
  }

  /** What there is to choose from. @param {{project: string, num_runs: number}[]} projects @param {{tag: string, num_runs: number}[]} tags */
  offer(projects, tags) {
    const option = (/** @type {string} */ name, /** @type {number} */ count) => h("option", { value: `=${name}` }, `${name} (${integer(count)})`);
    this.#project.replaceChildren(h("option", { value: "" }, t("runs.project.any")), ...projects.map(({ project, num_runs }) => option(project, num_runs)));
    this.#tag.replaceChildren(h("option", { value: "" }, t("runs.tag.any")), ...tags.map(({ tag, num_runs }) => option(tag, num_runs)));
    choose(this.#project, this.#filter.project);
    choose(this.#tag, this.#filter.tag);
    this.#project.hidden = projects.length < 2 && this.#filter.project === null;
    this.#tag.hidden = !tags.length && this.#filter.tag === null;
  }

  focusWords() {
    this.#words.focus();
    this.#words.select();
  }

  #typed() {
    clearTimeout(this.#typing);
    this.#typing = window.setTimeout(() => this.#tell(), TYPING_MS);
  }

  #tell() {
    const chosen = (/** @type {HTMLSelectElement} */ select) => (select.value ? select.value.slice(1) : null);
    const detail = {
      q: this.#words.value.trim(),
      status: STATUSES.find((status) => status === this.#status.value) ?? null,
      project: chosen(this.#project),
      tag: chosen(this.#tag),
      sort: orderOf(this.#sort.value),
    };
    this.#filter = detail;
    this.dispatchEvent(new CustomEvent("filter", { detail, bubbles: true }));
  }
}

/** A choice that is not offered, from an address say, is offered none the less. @param {HTMLSelectElement} select @param {string | null} name */
function choose(select, name) {
  const value = name === null ? "" : `=${name}`;
  if (![...select.options].some((option) => option.value === value)) select.append(h("option", { value }, name));
  select.value = value;
}

export const registerRunFilters = () => customElements.define("run-filters", RunFilters);
