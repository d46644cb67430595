/** <run-list>: the page of all runs, in one dense table that stays up to date by itself. */

import { deleteRun, getProjects, getTags, patchRun } from "../lib/api.js";
import { forEach } from "../lib/bulk.js";
import { h, setText } from "../lib/dom.js";
import { counted, integer } from "../lib/format.js";
import { onKey } from "../lib/keys.js";
import { addressValues, comparePath, goTo, rememberInAddress } from "../lib/router.js";
import { addressOf, filterOf, narrows } from "../lib/run-filter.js";
import { RunListModel } from "../lib/run-list-model.js";
import { t } from "../lib/texts.js";
import { sayToast } from "../lib/toasts.js";

export class RunList extends HTMLElement {
  #life = new AbortController();
  #count = h("span", { class: "muted", role: "status" });
  #filters = h("run-filters");
  #table = h("run-table", { class: "card run-table" });
  #selection = h("run-selection", { class: "card" });
  #delete = h("delete-dialog");
  #tags = h("tags-dialog");
  #log = h("log-dialog");
  #dropLog = h("button", { type: "button", class: "button" }, t("drop.open"));
  #problem = h("div", { class: "notice problem", role: "alert", hidden: true });
  #message = h("div", { class: "notice", role: "status" });
  #skeleton = h("div", { class: "card skeleton-rows", "aria-hidden": "true" }, ...Array.from({ length: 8 }, () => h("div", { class: "skeleton" })));
  /** @type {Set<string>} */
  #picked = new Set();
  #lastPicked = "";
  /** @type {string[]} */
  #offered = [];
  #model = new RunListModel(filterOf(addressValues()));

  connectedCallback() {
    this.#life = new AbortController();
    const { signal } = this.#life;
    document.title = `${t("runs.title")} · ${t("app.name")}`;
    this.#model = new RunListModel(filterOf(addressValues()));
    this.#filters.filter = this.#model.filter;
    this.replaceChildren(
      h("header", { class: "page-head" }, h("h1", {}, t("runs.title")), this.#count, this.#dropLog, this.#filters),
      this.#problem, this.#table, this.#skeleton, this.#message, this.#selection, this.#delete, this.#tags, this.#log,
    );
    this.#model.addEventListener("change", () => this.#show(), { signal });
    this.#listen(signal);
    this.#keys(signal);
    this.#takeDrops(signal);
    this.#show();
    this.#model.start(signal);
    this.#offer();
  }

  disconnectedCallback() {
    this.#life.abort();
  }

  /** @param {AbortSignal} signal */
  #listen(signal) {
    const on = (/** @type {string} */ name, /** @type {(detail: any) => void} */ listener) =>
      this.addEventListener(name, (event) => listener(/** @type {CustomEvent} */ (event).detail), { signal });
    on("filter", (filter) => this.#narrow(filter));
    on("order", (sort) => this.#narrow({ ...this.#model.filter, sort: this.#model.filter.sort === sort ? filterOf(new URLSearchParams()).sort : sort }));
    on("more", () => this.#model.readMore());
    on("pick", (detail) => this.#pick(detail));
    on("pickall", (all) => this.#pickOnly(all ? this.#model.runs.map(({ id }) => id) : []));
    on("unpick", () => this.#pickOnly([]));
    on("compare", () => goTo(comparePath(this.#pickedRuns.map(({ id }) => id))));
    on("archive", (archived) => this.#change(archived ? "archived" : "unarchived", (run) => this.#patch(run, { archived })));
    on("tag", () => this.#tags.ask(this.#pickedRuns, this.#offered));
    on("tags", ({ add, remove }) => this.#retag(new Set(add), new Set(remove)));
    on("delete", () => this.#delete.ask(this.#pickedRuns));
    on("confirm", () => this.#change("deleted", async ({ id }) => {
      await deleteRun(id);
      this.#model.remove(id);
    }));
  }

  /** A file dropped anywhere on the page is a log to be read. @param {AbortSignal} signal */
  #takeDrops(signal) {
    this.#dropLog.addEventListener("click", () => this.#log.open(), { signal });
    document.addEventListener("dragover", (event) => event.dataTransfer?.types.includes("Files") && event.preventDefault(), { signal });
    document.addEventListener("drop", (event) => {
      if (!event.dataTransfer?.files.length) return;
      event.preventDefault();
      const here = this.querySelector("first-run log-drop");
      if (here) /** @type {import("./log-drop.js").LogDrop} */ (here).take(event.dataTransfer);
      else this.#log.open(event.dataTransfer);
    }, { signal });
  }

  /** @param {AbortSignal} signal */
  #keys(signal) {
    onKey("/", () => this.#filters.focusWords(), signal);
    onKey("j", () => this.#table.moveFocus(1), signal);
    onKey("k", () => this.#table.moveFocus(-1), signal);
    onKey("x", () => {
      const id = this.#table.focused;
      if (id) this.#pick({ id, selected: !this.#picked.has(id), range: false });
    }, signal);
    onKey("Escape", () => this.#pickOnly([]), signal);
    this.#filters.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowDown" || !(event.target instanceof HTMLInputElement)) return;
      event.preventDefault();
      this.#table.focusRow(0);
    }, { signal });
  }

  get #pickedRuns() {
    return [...this.#picked].flatMap((id) => this.#model.get(id) ?? []);
  }

  /** @param {import("../lib/run-filter.js").RunFilter} filter */
  #narrow(filter) {
    this.#filters.filter = filter;
    rememberInAddress(addressOf(filter));
    this.#model.narrow(filter);
  }

  /** @param {{id: string, selected: boolean, range: boolean}} detail */
  #pick({ id, selected, range }) {
    const ids = this.#model.runs.map((run) => run.id);
    const [from, to] = [ids.indexOf(range ? this.#lastPicked : id), ids.indexOf(id)].sort((a, b) => a - b);
    for (const one of from < 0 ? [id] : ids.slice(from, to + 1)) {
      if (selected) this.#picked.add(one);
      else this.#picked.delete(one);
    }
    this.#lastPicked = id;
    this.#show();
  }

  /** @param {string[]} ids */
  #pickOnly(ids) {
    this.#picked = new Set(ids);
    this.#show();
  }

  /** @param {RunSummary} run @param {Parameters<typeof patchRun>[1]} changes */
  async #patch(run, changes) {
    this.#model.put(await patchRun(run.id, changes));
  }

  /** @param {Set<string>} add @param {Set<string>} remove */
  #retag(add, remove) {
    return this.#change("tagged", (run) => {
      const tags = [...new Set([...run.tags.filter((tag) => !remove.has(tag)), ...add])];
      return tags.join("\n") === run.tags.join("\n") ? Promise.resolve() : this.#patch(run, { tags });
    });
  }

  /** @param {"archived" | "unarchived" | "tagged" | "deleted"} what @param {(run: RunSummary) => Promise<unknown>} work */
  async #change(what, work) {
    const runs = this.#pickedRuns;
    this.#pickOnly([]);
    const { done, problems } = await forEach(runs, work);
    if (problems.length) {
      const failed = t("picked.failed", { count: integer(runs.length - done), all: integer(runs.length) });
      sayToast({ tone: "critical", title: failed, words: problems.join(" ") });
    } else if (done) sayToast({ tone: "neutral", title: t(`picked.${what}`, { runs: counted(done, t("runs.run"), t("runs.runs")) }) });
    this.#offer();
  }

  /** The projects and tags to choose from; without them the list still works. */
  async #offer() {
    const { signal } = this.#life;
    const [projects, tags] = await Promise.all([getProjects(signal), getTags(signal)].map((asked) => asked.catch(() => ({ items: [] }))));
    if (signal.aborted) return;
    this.#offered = /** @type {{tag: string}[]} */ (tags.items).map(({ tag }) => tag);
    this.#filters.offer(/** @type {any} */ (projects.items), /** @type {any} */ (tags.items));
  }

  #show() {
    const { runs, filter, isLoaded, problem, numRuns } = this.#model;
    for (const id of this.#picked) if (!this.#model.get(id)) this.#picked.delete(id);
    const isFirst = isLoaded && !runs.length && !narrows(filter);
    this.#table.hidden = !runs.length;
    this.#filters.hidden = isFirst || (!isLoaded && !problem); // what an address asks for may be the problem
    this.#dropLog.hidden = isFirst || !isLoaded;
    this.#skeleton.hidden = isLoaded || Boolean(problem);
    if (runs.length) this.#table.show(runs, this.#picked, filter.sort, numRuns);
    this.#selection.show(this.#pickedRuns);
    setText(this.#count, runs.length ? integer(numRuns) : "");
    this.#showProblem(problem);
    this.#message.hidden = runs.length > 0 || isFirst || Boolean(problem) || !isLoaded;
    setText(this.#message, filter.q ? t("runs.none", { q: filter.q }) : t("runs.none.filter"));
    const welcome = this.querySelector("first-run");
    if (isFirst && !welcome) this.append(h("first-run"));
    if (!isFirst) welcome?.remove();
  }

  /** @param {string | null} reason */
  #showProblem(reason) {
    this.#problem.hidden = !reason;
    if (!reason) return;
    const retry = h("button", { type: "button", class: "button" }, t("retry"));
    retry.addEventListener("click", () => this.#model.read());
    this.#problem.replaceChildren(h("strong", {}, t("runs.error")), " ", reason, " ", retry);
  }
}

export const registerRunList = () => customElements.define("run-list", RunList);
