/** <run-row>: one run of the list. Property `run`. */

import { h, setText } from "../lib/dom.js";
import { integer, lossScale, NOTHING, number, percent, rate } from "../lib/format.js";
import { runPath } from "../lib/router.js";
import { t } from "../lib/texts.js";

export class RunRow extends HTMLElement {
  #project = h("span", { class: "project" });
  #name = h("span", { class: "name" });
  #link = h("a", { class: "run-link" }, this.#project, h("span", { class: "separator" }, " / "), this.#name);
  #state = h("run-state");
  #step = h("span", { class: "value" });
  #bar = h("span", { class: "bar", "aria-hidden": "true" }, h("span"));
  #rate = h("span", { class: "value" });
  #clipped = h("span", { class: "value" });
  #skipped = h("span", { class: "value" });
  #norm = h("span", { class: "value" });
  #loss = h("span", { class: "value" });
  #seen = h("time-ago");

  connectedCallback() {
    if (this.firstChild) return;
    this.setAttribute("role", "row");
    this.append(
      cell("state", null, this.#state),
      cell("run", null, this.#link),
      cell("step", t("column.step"), this.#step, this.#bar),
      cell("rate", t("column.rate"), this.#rate),
      cell("clipped", t("column.clipped"), this.#clipped),
      cell("skipped", t("column.skipped"), this.#skipped),
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
    const clips = run.num_clipped > 0 || run.last.max_norm != null;
    setText(this.#clipped, clips ? percent(run.num_clipped, run.num_steps) : NOTHING);
    setText(this.#skipped, run.num_steps ? integer(run.num_skipped) : NOTHING);
    this.#skipped.title = run.last.loss_scale ? `${t("fact.scale")} ${lossScale(run.last.loss_scale)}` : "";
    setText(this.#norm, number(run.last.grad_norm_before_clip));
    setText(this.#loss, number(run.last.loss, 4));
    this.#seen.at_s = run.last_seen_s;
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
