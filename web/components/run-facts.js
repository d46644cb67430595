/** <run-facts>: the numbers under the verdicts, in one line; there before any chart is. */

import { h, setText } from "../lib/dom.js";
import { explained } from "../lib/explained.js";
import { hasValues, readAt } from "../lib/figures.js";
import { integer, log2Exactly, lossScale, maxNorm, NOTHING, number, percent, powerOfTwo } from "../lib/format.js";
import { hasNorms } from "../lib/newest.js";
import { t } from "../lib/texts.js";

/** @typedef {"norm" | "clipped" | "skipped" | "scale" | "nonfinite" | "loss"} FactName */

/** @type {FactName[]} */
const FACTS = ["norm", "clipped", "skipped", "scale", "nonfinite", "loss"];

export class RunFacts extends HTMLElement {
  #tiles = new Map(FACTS.map((name) => [name, tile(name)]));
  #dropped = h("p", { class: "warning-line", role: "note" });

  connectedCallback() {
    if (this.firstChild) return;
    this.append(h("dl", { class: "card facts" }, ...[...this.#tiles.values()].map(({ element }) => element)), this.#dropped);
  }

  /**
   * @param {StepCounts} facts of the stream on screen
   * @param {RunDetail} run
   * @param {StreamRecord} record what the hook said of the stream: others may not record skips and scales at all
   * @param {Map<FigureName, Figure>} figures tell a newest value that is not finite from one never recorded
   */
  show(facts, run, record, figures) {
    this.#showDropped(run.attempts);
    const { last, num_steps } = facts;
    if (!num_steps) {
      for (const name of FACTS) this.#set(name, NOTHING, [t("fact.none")]);
      return;
    }
    const policyKnown = last.max_norm !== null && last.max_norm !== undefined;
    const coef = last.clip_coef === null || last.clip_coef === undefined ? [] : [t("fact.norm.coef", { coef: number(last.clip_coef) })];
    const norm = figures.get("norm");
    const isNonfinite = Boolean(norm && readAt(norm, Infinity)?.marks.has("nonfinite")) && !Number.isFinite(last.grad_norm_before_clip ?? NaN);
    this.#set("norm", isNonfinite ? t("reading.nonfinite") : number(last.grad_norm_before_clip), [policyKnown ? t("fact.norm.threshold", { max_norm: maxNorm(/** @type {number} */ (last.max_norm)) }) : t("fact.norm.no.threshold"), ...coef], isNonfinite);
    const clips = policyKnown || facts.num_clipped > 0;
    this.#set("clipped", clips ? percent(facts.num_clipped, num_steps) : NOTHING, [clips ? t("fact.clipped.of", { clipped: integer(facts.num_clipped), all: integer(num_steps) }) : t("fact.clipped.unknown")]);
    const isKnown = facts.num_skipped > 0 || record.precision !== undefined || typeof last.loss_scale === "number";
    if (!isKnown) this.#set("skipped", NOTHING, [t("fact.unknown")]);
    else this.#set("skipped", integer(facts.num_skipped), [t("fact.skipped.of", { all: integer(num_steps), share: percent(facts.num_skipped, num_steps) })]);
    this.#showScale(last.loss_scale, record.scaler === null || record.precision === "fp32" || record.precision === "bf16");
    if (!facts.num_nonfinite && norm && !hasNorms({ ...run, ...facts }) && !hasValues(norm)) this.#set("nonfinite", NOTHING, [t("fact.unknown")]);
    else this.#set("nonfinite", integer(facts.num_nonfinite), [facts.num_nonfinite ? t("fact.nonfinite.some", { all: integer(num_steps) }) : t("fact.nonfinite.none")]);
    this.#set("loss", number(last.loss, 4), [lossWords(last.loss, figures.get("loss"))]);
  }

  /** @param {number | null | undefined} scale @param {boolean} isOff said to be */
  #showScale(scale, isOff) {
    if (scale === null || scale === undefined) {
      this.#set("scale", isOff ? t("fact.scale.none") : NOTHING, [t(isOff ? "fact.scale.none.words" : "fact.unknown")]);
      return;
    }
    const value = lossScale(scale);
    const exponent = log2Exactly(scale);
    const other = exponent === null ? "" : value === powerOfTwo(exponent) ? number(scale) : powerOfTwo(exponent);
    this.#set("scale", value, [other]);
  }

  /** @param {Attempt[]} attempts */
  #showDropped(attempts) {
    const list = attempts.flatMap(({ number, dropped }) =>
      Object.entries(dropped).filter(([, count]) => count > 0).map(([reason, count]) => t("run.dropped.one", { count: integer(count), number, reason })),
    );
    this.#dropped.hidden = !list.length;
    setText(this.#dropped, list.length ? t("run.dropped", { list: list.join(", ") }) : "");
  }

  /** @param {FactName} name @param {string} value @param {string[]} lines @param {boolean} [alarming] */
  #set(name, value, lines, alarming = false) {
    const shown = /** @type {ReturnType<typeof tile>} */ (this.#tiles.get(name));
    setText(shown.value, value);
    setText(shown.words, lines.join(" · "));
    shown.element.classList.toggle("is-critical", alarming);
  }
}

/** @param {number | null | undefined} loss @param {Figure | undefined} figure */
function lossWords(loss, figure) {
  if (loss !== null && loss !== undefined) return t("fact.loss.words");
  return figure && hasValues(figure) ? t("fact.newest.none") : t("fact.loss.none");
}

/** @param {FactName} name */
function tile(name) {
  const value = h("dd", { class: "fact-value" });
  const words = h("dd", { class: "fact-words" });
  return { element: h("div", { class: `fact ${name}` }, h("dt", {}, explained(t(`fact.${name}`), t(`why.fact.${name}`))), value, words), value, words };
}

export const registerRunFacts = () => customElements.define("run-facts", RunFacts);
