/** <run-row>: one run of the list. Properties `run`, `selected` and `alerts`; event `pick`: {id, selected, range}. */

import { h, setText } from "../lib/dom.js";
import { abbreviated, duration, integer, NOTHING, percent, rate } from "../lib/format.js";
import { hasNorms, newestValue, nonfiniteWord } from "../lib/newest.js";
import { runPath } from "../lib/router.js";
import { secondsLeft } from "../lib/run-order.js";
import { clippedOf } from "../lib/sparkline.js";
import { t } from "../lib/texts.js";
import { badgeOf, VERDICTS, worstBeside } from "../lib/verdicts.js";

const TAGS_SHOWN = 3;

export class RunRow extends HTMLElement {
  /** @type {ListedRun | null} a run that has changed is another object */
  #shown = null;
  #pick = h("input", { type: "checkbox" });
  #project = h("span", { class: "project" });
  #name = h("span", { class: "name" });
  #link = h("a", { class: "run-link" }, this.#project, h("span", { class: "separator" }, " / "), h("bdi", {}, this.#name));
  #tags = h("span", { class: "run-tags" });
  #state = h("run-state");
  #step = h("span", { class: "value" });
  #left = h("span", { class: "left muted" });
  #bar = h("span", { class: "bar", "aria-hidden": "true" }, h("span"));
  #rate = h("span", { class: "value" });
  #worst = h("verdict-badge");
  #badges = VERDICTS.map(() => h("verdict-badge"));
  #evidence = this.#badges.map((badge) => h("a", { class: "evidence-link" }, badge));
  #clipped = h("span", { class: "value muted" });
  #spark = h("spark-line");
  #norm = h("span", { class: "value" });
  #loss = h("span", { class: "value" });
  #alerts = h("a", { class: "row-alerts", hidden: true });
  #seen = h("time-ago");

  connectedCallback() {
    if (this.firstChild) return;
    this.setAttribute("role", "row");
    this.append(
      cell("pick", h("label", {}, this.#pick)),
      cell("state", this.#state),
      cell("run", this.#link, this.#worst, this.#tags),
      cell("clipping", this.#evidence[0], this.#clipped),
      cell("loss_scaling", this.#evidence[1]),
      cell("nonfinite", this.#evidence[2]),
      cell("spark", this.#spark),
      cell("step", h("span", { class: "progress" }, this.#step, this.#left), this.#bar),
      cell("rate", this.#rate),
      cell("norm", this.#norm),
      cell("loss", this.#loss),
      cell("alerts", this.#alerts),
      cell("seen", this.#seen),
    );
    this.#pick.addEventListener("click", (event) => {
      const detail = { id: this.dataset.run ?? "", selected: this.#pick.checked, range: event.shiftKey };
      this.dispatchEvent(new CustomEvent("pick", { detail, bubbles: true }));
    });
  }

  set run(/** @type {ListedRun} */ run) {
    if (run === this.#shown) return;
    this.#shown = run;
    this.dataset.run = run.id;
    this.#pick.setAttribute("aria-label", t("runs.pick", { name: run.name }));
    this.#link.href = runPath(run.id);
    this.#alerts.href = runPath(run.id);
    this.#link.title = `${run.project} / ${run.name}`;
    setText(this.#project, run.project);
    setText(this.#name, run.name);
    this.#state.state = run.state;
    this.#showTags(run.tags);
    this.#showProgress(run);
    setText(this.#rate, run.state === "running" ? rate(run.steps_per_s) : NOTHING);
    this.#showVerdicts(run);
    this.#spark.points = run.sparkline ?? null;
    showValue(this.#norm, run, "grad_norm_before_clip", 3);
    showValue(this.#loss, run, "loss", 4);
    this.#seen.at_s = run.last_seen_s;
  }

  set alerts(/** @type {{count: number, isCritical: boolean}} */ { count, isCritical }) {
    this.#alerts.hidden = !count;
    if (!count) return;
    setText(this.#alerts, integer(count));
    this.#alerts.classList.toggle("is-critical", isCritical);
    this.#alerts.title = t("alerts.open", { count: integer(count) });
    this.#alerts.setAttribute("aria-label", this.#alerts.title);
  }

  set selected(/** @type {boolean} */ selected) {
    if (this.getAttribute("aria-selected") === String(selected) && this.#pick.checked === selected) return;
    this.#pick.checked = selected;
    this.setAttribute("aria-selected", String(selected));
  }

  focusLink() {
    this.#link.focus({ preventScroll: true });
  }

  /** @param {string[]} tags */
  #showTags(tags) {
    const words = [...tags.slice(0, TAGS_SHOWN), ...(tags.length > TAGS_SHOWN ? [`+${tags.length - TAGS_SHOWN}`] : [])];
    if (this.#tags.textContent === words.join("")) return;
    this.#tags.title = tags.join(", ");
    this.#tags.replaceChildren(...words.map((word) => h("span", { class: "tag" }, word)));
  }

  /** @param {ListedRun} run */
  #showVerdicts(run) {
    const { verdict, streams } = run;
    VERDICTS.forEach((name, i) => {
      this.#evidence[i].hidden = !verdict;
      if (!verdict) return;
      const badge = badgeOf(verdict, name, hasNorms(run));
      const stream = name !== "nonfinite" && streams.length > 1 ? verdict[name].stream : null;
      this.#badges[i].badge = badge;
      this.#evidence[i].href = `${runPath(run.id)}?${new URLSearchParams({ why: name, ...(stream && { stream }) })}`;
      this.#evidence[i].setAttribute("aria-label", t("runs.evidence", { name: t(`verdict.${name}`), word: badge.word }));
    });
    const { clipped, steps } = clippedOf(run);
    const clips = (clipped > 0 || run.last.max_norm != null) && isOfOneStream(run);
    setText(this.#clipped, clips ? percent(clipped, steps) : "");
    this.#clipped.title = clips ? t("runs.clipped.why") : "";
    const worst = verdict && worstBeside(verdict);
    this.#worst.hidden = !worst;
    if (worst) this.#worst.badge = worst;
  }

  /** @param {RunSummary} run */
  #showProgress(run) {
    const { last_step, total_steps } = run;
    const made = last_step === null ? 0 : last_step + 1;
    const left_s = secondsLeft(run);
    const all = [last_step, total_steps].filter((step) => step !== null);
    setText(this.#step, last_step === null ? t("run.no.steps") : all.map(shortStep).join(" / "));
    this.#step.title = last_step === null ? "" : all.map(integer).join(" / ");
    setText(this.#left, left_s === null ? "" : t("run.left", { duration: duration(left_s) }));
    this.#bar.hidden = !total_steps;
    if (total_steps) /** @type {HTMLElement} */ (this.#bar.firstChild).style.width = `${Math.min(100, (100 * made) / total_steps)}%`;
  }
}

/** Whether the badge of clipping, which is that of the worst stream, is of the stream whose steps are counted. @param {ListedRun} run */
function isOfOneStream({ verdict, streams }) {
  return !verdict || streams.length < 2 || verdict.clipping.stream === (streams.includes("main") ? "main" : streams[0]);
}

/** @param {number} step from a billion on, digits no longer fit */
function shortStep(step) {
  return step < 1e9 ? integer(step) : abbreviated(step);
}

/** The newest value; NaN and "not recorded" are two things. @param {HTMLElement} element @param {RunSummary} run @param {"grad_norm_before_clip" | "loss"} name @param {number} digits */
function showValue(element, { last, last_step }, name, digits) {
  const word = nonfiniteWord(last, name);
  setText(element, newestValue(last, name, digits));
  element.classList.toggle("is-nonfinite", Boolean(word));
  element.title = word ? t("runs.nonfinite.why") : last[name] === null && last_step !== null ? t("runs.absent.why") : "";
}

/** @param {string} name @param {...HTMLElement} children */
function cell(name, ...children) {
  return h("span", { role: "cell", class: `cell ${name}` }, ...children);
}

export const registerRunRow = () => customElements.define("run-row", RunRow);
