/** A finding's numbers, each named with its unit and the stage it was taken at; pure. */

import { integer, lossScale, maxNorm, NOTHING, number, percent } from "./format.js";
import { knownText, t } from "./texts.js";

/** @typedef {{name: string, value: string, note: string}} Fact */

const FRACTIONS = /(^|_)(fraction|share|rate)(_|$)|^clip_coef_spread$/;
const COUNTS = /^num_|_streak$|_interval$|^longest$/;
const STEPS = /(^|_)step$/;
const SCALES = /(^|_)scale$/;

/** What the recommended range's two ends say is one fact. */
const RANGE = ["recommended_low", "recommended_high"];

/**
 * @param {string} code of the finding: the same number may mean another thing under another
 * @param {Record<string, number | null>} evidence
 * @returns {Fact[]}
 */
export function factsOf(code, evidence) {
  const [low, high] = RANGE.map((name) => evidence[name]);
  const facts = Object.entries(evidence).flatMap(([name, value]) => (value === null || RANGE.includes(name) || isIdle(name, value) ? [] : [factOf(code, name, value)]));
  if (typeof low === "number" && typeof high === "number") {
    facts.push({ name: t("evidence.recommended"), value: `${maxNorm(short(low))}–${maxNorm(short(high))}`, note: t("evidence.recommended.note") });
  }
  return facts;
}

/** The largest of no spikes. @param {string} name @param {number} value */
function isIdle(name, value) {
  return value === 0 && /^(largest_spike_ratio|num_spikes_with_loss_rise|newest_streak)$/.test(name);
}

/** @param {string} code @param {string} name @param {number} value @returns {Fact} */
function factOf(code, name, value) {
  const own = `evidence.${code}.${name}`;
  const shared = `evidence.${name}`;
  return {
    name: knownText(own) ?? knownText(shared) ?? name.replaceAll("_", " "),
    value: written(name, value),
    note: knownText(`${own}.note`) ?? knownText(`${shared}.note`) ?? "",
  };
}

/** @param {string} name @param {number} value */
function written(name, value) {
  if (!Number.isFinite(value)) return NOTHING;
  if (STEPS.test(name) || COUNTS.test(name)) return integer(value);
  if (FRACTIONS.test(name)) return percent(value);
  if (SCALES.test(name)) return lossScale(value);
  return name === "max_norm" ? maxNorm(value) : number(value);
}

/** @param {number} value three digits are as many as a person will type */
function short(value) {
  return Number(value.toPrecision(3));
}
