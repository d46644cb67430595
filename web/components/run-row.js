/** <run-row>: one run of the list. Property `run`. */

import { h, setText } from "../lib/dom.js";
import { integer, NOTHING, number, percent, rate } from "../lib/format.js";
import { runPath } from "../lib/router.js";
import { t } from "../lib/texts.js";
import { badgeOf, VERDICTS, worstBeside } from "../lib/verdicts.js";

export class RunRow extends HTMLElement {
  #project = h("span", { class: "project" });
  #name = h("span", { class: "name" });
  #link = h("a", { class: "run-link" }, this.#project, h("span", { class: "separator" }, " / "), this.#name);
  #state = h("run-state");
  #step = h("span", { class: "value" });
  #bar = h("span", { class: "bar", "aria-hidden": "true" }, h("span"));
  #rate = h("span", { class: "value" });
  #worst = h("verdict-badge");
  #badges = VERDICTS.map(() => h("verdict-badge"));
  #evidence = this.#badges.map((badge) => h("a", { class: "evidence-link" }, badge));
  #clipped = h("span", { class: "value muted" });
  #norm = h("span", { class: "value" });
  #loss = h("span", { class: "value" });
  #seen = h("time-ago");

  connectedCallback() {
    if (this.firstChild) return;
    this.setAttribute("role", "row");
    this.append(
      cell("state", null, this.#state),
      cell("run", null, this.#link, this.#worst),
      cell("clipping", t("column.clipping"), this.#evidence[0], this.#clipped),
      cell("loss_scaling", t("column.loss_scaling"), this.#evidence[1]),
      cell("nonfinite", t("column.nonfinite"), this.#evidence[2]),
      cell("step", t("column.step"), this.#step, this.#bar),
      cell("rate", t("column.rate"), this.#rate),
      cell("norm", t("column.norm.short"), this.#norm),
      cell("loss", t("column.loss"), this.#loss),
      cell("seen", null, this.#seen),
    );
  }

  set run(/** @type {RunSummary} */ run) {
    this.dataset.run = run.id;
    this.#link.href = runPath(run.id);
    this.#link.title = `${run.project} / ${run.name}`;
    setText(this.#project, run.project);
    setText(this.#name, run.name);
    this.#state.state = run.state;
    this.#showProgress(run);
    setText(this.#rate, run.state === "running" ? rate(run.steps_per_s) : NOTHING);
    this.#showVerdicts(run);
    setText(this.#norm, number(run.last.grad_norm_before_clip));
    setText(this.#loss, number(run.last.loss, 4));
    this.#seen.at_s = run.last_seen_s;
  }

  /** @param {RunSummary} run */
  #showVerdicts(run) {
    const { verdict, streams } = run;
    VERDICTS.forEach((name, i) => {
      this.#evidence[i].hidden = !verdict;
      if (!verdict) return;
      const badge = badgeOf(verdict, name);
      const stream = name !== "nonfinite" && streams.length > 1 ? verdict[name].stream : null;
      this.#badges[i].badge = badge;
      this.#evidence[i].href = `${runPath(run.id)}?${new URLSearchParams({ why: name, ...(stream && { stream }) })}`;
      this.#evidence[i].setAttribute("aria-label", t("runs.evidence", { name: t(`verdict.${name}`), word: badge.word }));
    });
    const clips = run.num_clipped > 0 || run.last.max_norm != null;
    setText(this.#clipped, clips ? percent(run.num_clipped, run.num_steps) : "");
    const worst = verdict && worstBeside(verdict);
    this.#worst.hidden = !worst;
    if (worst) this.#worst.badge = worst;
  }

  /** @param {RunSummary} run */
  #showProgress({ last_step, total_steps }) {
    const made = last_step === null ? 0 : last_step + 1;
    setText(this.#step, last_step === null ? t("run.no.steps") : total_steps ? `${integer(last_step)} / ${integer(total_steps)}` : integer(last_step));
    this.#bar.hidden = !total_steps;
    if (total_steps) /** @type {HTMLElement} */ (this.#bar.firstChild).style.width = `${Math.min(100, (100 * made) / total_steps)}%`;
  }
}

/** @param {string} name @param {string | null} label shown on narrow screens only @param {...HTMLElement} children */
function cell(name, label, ...children) {
  return h("span", { role: "cell", class: `cell ${name}` }, label && h("span", { class: "label", "aria-hidden": "true" }, label), ...children);
}

export const registerRunRow = () => customElements.define("run-row", RunRow);
