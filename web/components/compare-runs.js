/** <compare-runs>: the runs of a comparison with their verdicts; one can be taken out or another put in. Method `show`; event `runs` with the new ids. */

import { absenceOf, COMPARED } from "../lib/comparing.js";
import { h } from "../lib/dom.js";
import { integer } from "../lib/format.js";
import { hasNorms, newestValue } from "../lib/newest.js";
import { runPath } from "../lib/router.js";
import { t } from "../lib/texts.js";
import { badgeOf, VERDICTS } from "../lib/verdicts.js";

export class CompareRuns extends HTMLElement {
  #list = h("ol", { class: "compare-list" });
  #names = h("datalist", { id: "compare-names" });
  #add = h("input", { type: "text", list: "compare-names", placeholder: t("compare.add"), "aria-label": t("compare.add"), autocomplete: "off", spellcheck: "false" });
  #form = h("form", { class: "compare-add" }, this.#add, this.#names, h("button", { type: "submit", class: "button" }, t("compare.add.do")));
  /** @type {Map<string, string>} what is offered → run id */
  #offered = new Map();
  /** @type {string[]} */
  #ids = [];

  connectedCallback() {
    if (this.firstChild) return;
    this.append(this.#list, this.#form);
    this.#form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#put(this.#add.value.trim());
    });
    this.#add.addEventListener("input", () => this.#offered.has(this.#add.value) && this.#put(this.#add.value));
  }

  /** @param {RunDetail[]} runs @param {string[]} ids all that were asked for @param {{series: RunSeries[], stream: string}} drawn */
  show(runs, ids, { series, stream }) {
    this.#ids = ids;
    this.#form.hidden = ids.length >= COMPARED[1];
    this.#list.replaceChildren(...runs.map((run, i) => this.#item(run, i, absenceWords(run, series, stream))));
  }

  /** Runs to choose from. @param {RunSummary[]} runs */
  offer(runs) {
    this.#offered = new Map(runs.map((run) => [`${run.project} / ${run.name} · ${run.id.slice(0, 8)}`, run.id]));
    this.#names.replaceChildren(...[...this.#offered.keys()].map((value) => h("option", { value })));
  }

  /** @param {string} words what was chosen, or a run's id */
  #put(words) {
    const id = this.#offered.get(words) ?? words.replaceAll("-", "").toLowerCase();
    if (!/^[0-9a-f]{32}$/.test(id)) {
      this.#add.setCustomValidity(t("compare.add.unknown"));
      this.#add.reportValidity();
      this.#add.setCustomValidity("");
      return;
    }
    this.#add.value = "";
    if (!this.#ids.includes(id)) this.#tell([...this.#ids, id]);
  }

  /** @param {RunDetail} run @param {number} i @param {string} absence why there is no line of it */
  #item(run, i, absence) {
    const { verdict } = run;
    const badges = verdict ? VERDICTS.map((name) => {
      const badge = h("verdict-badge");
      const shown = (badge.badge = badgeOf(verdict, name, hasNorms(run)));
      return h("a", { class: "evidence-link", href: `${runPath(run.id)}?why=${name}`, "aria-label": t("runs.evidence", { name: t(`verdict.${name}`), word: shown.word }) }, badge);
    }) : [];
    const state = h("run-state");
    state.state = run.state;
    const out = h("button", { type: "button", class: "button small", "aria-label": t("compare.out", { name: run.name }) }, "×");
    out.addEventListener("click", () => this.#tell(this.#ids.filter((id) => id !== run.id)));
    return h("li", { "data-run": i },
      h("span", { class: "compare-number" }, String(i + 1)),
      h("span", { class: "compare-who" }, h("a", { class: "compare-name", href: runPath(run.id), title: `${run.project} / ${run.name}` }, h("span", { class: "project" }, `${run.project} / `), h("bdi", { class: "name" }, run.name)), ...(absence ? [h("span", { class: "compare-absence" }, absence)] : [])),
      state,
      h("span", { class: "compare-badges" }, ...badges),
      h("span", { class: "compare-facts muted" }, t("compare.facts", { step: integer(run.last_step), norm: newestValue(run.last, "grad_norm_before_clip"), loss: newestValue(run.last, "loss", 4) })),
      out);
  }

  /** @param {string[]} ids */
  #tell(ids) {
    this.dispatchEvent(new CustomEvent("runs", { detail: ids, bubbles: true }));
  }
}

/** @param {RunDetail} run @param {RunSeries[]} series @param {string} stream */
function absenceWords(run, series, stream) {
  const why = absenceOf(run, series.find(({ run_id }) => run_id === run.id), stream);
  return why ? t(`compare.absent.${why}`, { stream }) : "";
}

export const registerCompareRuns = () => customElements.define("compare-runs", CompareRuns);
