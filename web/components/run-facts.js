/** <run-facts>: the numbers under the verdicts, in one line; there before any chart is. */

import { h, setText } from "../lib/dom.js";
import { explained } from "../lib/explained.js";
import { hasValues, readAt } from "../lib/figures.js";
import { integer, log2Exactly, lossScale, maxNorm, NOTHING, number, percent, powerOfTwo } from "../lib/format.js";
import { hasNorms, newestValue, nonfiniteWord } from "../lib/newest.js";
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
   * @param {StepCounts | null} facts of the stream and attempt on screen; null while they are read
   * @param {RunDetail} run
   * @param {StreamRecord} record what the hook said of the stream: others may not record skips and scales at all
   * @param {Map<FigureName, Figure>} figures tell a newest value that is not finite from one never recorded
   */
  show(facts, run, record, figures) {
    this.#showDropped(run.attempts);
    if (!facts?.num_steps) {
      for (const name of FACTS) this.#set(name, NOTHING, [facts ? t("fact.none") : ""]);
      return;
    }
    const { last, num_steps } = facts;
    const threshold = nonfiniteWord(last, "max_norm") ?? (typeof last.max_norm === "number" ? maxNorm(last.max_norm) : null);
    const coef = nonfiniteWord(last, "clip_coef") ?? (typeof last.clip_coef === "number" ? number(last.clip_coef) : null);
    const norm = figures.get("norm");
    const isOdd = Boolean(norm && readAt(norm, Infinity)?.marks.has("nonfinite")) && !Number.isFinite(last.grad_norm_before_clip ?? NaN);
    const isNonfinite = isOdd || nonfiniteWord(last, "grad_norm_before_clip") !== null;
    const beside = [threshold === null ? t("fact.norm.no.threshold") : t("fact.norm.threshold", { max_norm: threshold }), ...(coef === null ? [] : [t("fact.norm.coef", { coef })])];
    this.#set("norm", isNonfinite ? t("reading.nonfinite") : number(last.grad_norm_before_clip), beside, isNonfinite);
    const clips = threshold !== null || facts.num_clipped > 0;
    this.#set("clipped", clips ? percent(facts.num_clipped, num_steps) : NOTHING, [clips ? t("fact.clipped.of", { clipped: integer(facts.num_clipped), all: integer(num_steps) }) : t("fact.clipped.unknown")]);
    const isKnown = facts.num_skipped > 0 || record.precision !== undefined || typeof last.loss_scale === "number" || nonfiniteWord(last, "loss_scale") !== null;
    if (!isKnown) this.#set("skipped", NOTHING, [t("fact.unknown")]);
    else this.#set("skipped", integer(facts.num_skipped), [t("fact.skipped.of", { all: integer(num_steps), share: percent(facts.num_skipped, num_steps) })]);
    this.#showScale(last, record.scaler === null || record.precision === "fp32" || record.precision === "bf16");
    if (!facts.num_nonfinite && norm && !hasNorms({ ...run, ...facts }) && !hasValues(norm)) this.#set("nonfinite", NOTHING, [t("fact.unknown")]);
    else this.#set("nonfinite", integer(facts.num_nonfinite), [facts.num_nonfinite ? t("fact.nonfinite.some", { all: integer(num_steps) }) : t("fact.nonfinite.none")]);
    this.#set("loss", newestValue(last, "loss", 4), [lossWords(last, figures.get("loss"))], nonfiniteWord(last, "loss") !== null);
  }

  /** @param {LastValues} last @param {boolean} isOff said to be */
  #showScale(last, isOff) {
    const scale = last.loss_scale;
    const odd = nonfiniteWord(last, "loss_scale");
    if (odd !== null) {
      this.#set("scale", odd, [t("fact.loss.words")], true);
      return;
    }
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

/** @param {LastValues} last @param {Figure | undefined} figure */
function lossWords(last, figure) {
  if (typeof last.loss === "number" || nonfiniteWord(last, "loss") !== null) return t("fact.loss.words");
  return figure && hasValues(figure) ? t("fact.newest.none") : t("fact.loss.none");
}

/** @param {FactName} name */
function tile(name) {
  const value = h("dd", { class: "fact-value" });
  const words = h("dd", { class: "fact-words" });
  return { element: h("div", { class: `fact ${name}` }, h("dt", {}, explained(t(`fact.${name}`), t(`why.fact.${name}`))), value, words), value, words };
}

export const registerRunFacts = () => customElements.define("run-facts", RunFacts);
