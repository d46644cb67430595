/** The three verdicts of a diagnosis in the words of the page, and the findings beside them; pure. */

import { inBrief } from "./advice.js";
import { factsOf } from "./evidence.js";
import { counted, integer } from "./format.js";
import { t } from "./texts.js";

/** @typedef {"clipping" | "loss_scaling" | "nonfinite"} VerdictName */
/** Green only for healthy, amber and red for what wants a look, quiet for what is not known. @typedef {"healthy" | "neutral" | "quiet" | "warning" | "critical"} Tone */
/**
 * @typedef {object} Verdict
 * @property {VerdictName} name
 * @property {Tone} tone
 * @property {string} word
 * @property {string} lead the sentence with the numbers
 * @property {string} layer where it began; the lead ends in the words before it
 * @property {string} rest the advice
 * @property {Reason | null} reason
 */
/**
 * What stands behind a verdict or a finding.
 * @typedef {{code: string, title: string, advice: string, facts: import("./evidence.js").Fact[], steps: [number, number] | null}} Reason
 */

/** @type {VerdictName[]} as they stand on the page */
export const VERDICTS = ["clipping", "loss_scaling", "nonfinite"];

/** What the third verdict is made from, the gravest first where two are equally severe. */
const NONFINITE_CODES = ["run_dead", "nonfinite_applied", "nonfinite_steps", "loss_nonfinite"];
/** @type {Severity[]} */
const SEVERITIES = ["ok", "info", "warning", "critical"];

/** @param {Severity} severity @param {string} verdict @returns {Tone} */
function toneOf(severity, verdict) {
  if (severity === "warning" || severity === "critical") return severity;
  if (verdict === "unknown" || verdict === "not_used" || verdict === "off") return "quiet";
  return verdict === "healthy" ? "healthy" : "neutral";
}

/**
 * A verdict's word and colour, as badges and cards show it.
 * @param {VerdictSummary} summary
 * @param {VerdictName} name
 * @param {boolean} [hasNorms] nothing can be said of norms that were not recorded
 * @returns {{tone: Tone, word: string}}
 */
export function badgeOf(summary, name, hasNorms = true) {
  if (name === "nonfinite") {
    const { num_steps, severity } = summary.nonfinite;
    if (!num_steps && !hasNorms && severity === "ok") return { tone: "quiet", word: t("verdict.nonfinite.unrecorded") };
    const tone = toneOf(severity, num_steps ? "" : "healthy");
    if (!num_steps && severity !== "ok") return { tone, word: t("verdict.nonfinite.loss") };
    return { tone, word: num_steps ? counted(num_steps, t("verdict.nonfinite.step"), t("verdict.nonfinite.steps")) : t("verdict.nonfinite.none") };
  }
  const { verdict, severity } = summary[name];
  return { tone: toneOf(severity, verdict), word: t(/** @type {"verdict.clipping.off"} */ (`verdict.${name}.${verdict}`)) };
}

/** A grave finding that none of the three badges tells of. @param {VerdictSummary} summary @returns {{tone: Tone, word: string} | null} */
export function worstBeside({ clipping, loss_scaling, nonfinite, worst }) {
  if (!worst || (worst.severity !== "warning" && worst.severity !== "critical")) return null;
  const told = [clipping, loss_scaling, nonfinite].map(({ severity }) => SEVERITIES.indexOf(severity));
  if (Math.max(...told) >= SEVERITIES.indexOf(worst.severity)) return null;
  const words = worst.code.replaceAll("_", " ");
  return { tone: worst.severity, word: words.charAt(0).toUpperCase() + words.slice(1) };
}

/**
 * What is grave in other streams than the one on screen: the summary tells of the worst of all.
 * @param {VerdictSummary} summary
 * @param {string} shown the stream on screen
 * @returns {{stream: string, name: VerdictName | null, tone: Tone, word: string}[]}
 */
export function graveElsewhere(summary, shown) {
  const names = /** @type {const} */ (["clipping", "loss_scaling"]);
  const told = names.map((name) => ({ stream: summary[name].stream, name, ...badgeOf(summary, name) }));
  const beside = worstBeside(summary);
  const all = [...told, ...(beside && summary.worst ? [{ stream: summary.worst.stream, name: null, ...beside }] : [])];
  return all.filter(({ stream, tone }) => stream !== shown && (tone === "warning" || tone === "critical"));
}

/** Before the diagnosis is read, the words of the run's summary. @param {VerdictSummary} summary @param {boolean} hasNorms @returns {Verdict[]} */
export function verdictsInBrief(summary, hasNorms) {
  return VERDICTS.map((name) => ({ name, ...badgeOf(summary, name, hasNorms), lead: "", layer: "", rest: "", reason: null }));
}

/** Where there is no diagnosis: no step yet, or not read yet. @param {string} [word] @returns {Verdict[]} */
export function noVerdicts(word) {
  const calm = { tone: /** @type {Tone} */ ("quiet"), word: word ?? t("verdict.none"), layer: "", rest: "", reason: null };
  return VERDICTS.map((name) => ({ name, ...calm, lead: word ? "" : t(`verdict.none.${name}`) }));
}

/** @param {Diagnosis} diagnosis @returns {Verdict[]} */
export function verdictsOf(diagnosis) {
  return [clippingOf(diagnosis), scalingOf(diagnosis), nonfiniteOf(diagnosis)];
}

/** What is left to say beside the three. @param {Diagnosis} diagnosis @returns {Finding[]} */
export function findingsBeside(diagnosis) {
  const { clipping, loss_scaling } = diagnosis;
  const told = [
    carrying(diagnosis, `clipping_${clipping.verdict}`, clipping.advice),
    carrying(diagnosis, `loss_scale_${loss_scaling.verdict}`, loss_scaling.advice),
    nonfiniteFinding(diagnosis),
  ];
  return diagnosis.findings.filter((finding) => !told.includes(finding));
}

/** @param {Finding} finding @returns {Reason} */
export function reasonOf({ code, title, advice, evidence, first_step, last_step }) {
  return { code, title, advice, facts: factsOf(code, evidence), steps: first_step === null || last_step === null ? null : [first_step, last_step] };
}

/** @param {Diagnosis} diagnosis @returns {Verdict} */
function clippingOf(diagnosis) {
  const { clip_fraction, median_clip_coef, norm, recommended_max_norm: range, verdict, severity, advice } = diagnosis.clipping;
  const numbers = {
    num_finite: diagnosis.range.num_finite, clip_fraction, median_clip_coef,
    median_norm: norm.p50, p90_norm: norm.p90, p99_norm: norm.p99, max: norm.max,
    recommended_low: range?.low ?? null, recommended_high: range?.high ?? null,
  };
  const word = t(`verdict.clipping.${verdict}`);
  return { name: "clipping", tone: toneOf(severity, verdict), word, layer: "", ...inBrief(advice), reason: reasonFor(diagnosis, `clipping_${verdict}`, word, advice, numbers) };
}

/** @param {Diagnosis} diagnosis @returns {Verdict} */
function scalingOf(diagnosis) {
  const { verdict, severity, num_skipped, skip_rate, last_scale, min_scale, advice } = diagnosis.loss_scaling;
  const word = t(`verdict.loss_scaling.${verdict}`);
  /** @type {Record<string, number | null>} */
  const numbers = last_scale === null ? {} : { num_steps: diagnosis.range.num_steps, num_skipped, skip_rate, last_scale, min_scale };
  const brief = verdict === "not_used" ? { lead: t("verdict.loss_scaling.not_used.lead"), rest: "" } : inBrief(advice);
  return { name: "loss_scaling", tone: toneOf(severity, verdict), word, layer: "", ...brief, reason: reasonFor(diagnosis, `loss_scale_${verdict}`, word, advice, numbers) };
}

/** The finding that carries a verdict, or the verdict's own numbers where there was nothing to find. @param {Diagnosis} diagnosis @param {string} code @param {string} title @param {string} advice @param {Record<string, number | null>} numbers @returns {Reason} */
function reasonFor(diagnosis, code, title, advice, numbers) {
  const finding = carrying(diagnosis, code, advice);
  return finding ? reasonOf(finding) : { code, title, advice, facts: factsOf(code, numbers), steps: null };
}

/** The finding that a verdict is about: its own, or one that says what the verdict does. @param {Diagnosis} diagnosis @param {string} code @param {string} advice */
function carrying({ findings }, code, advice) {
  return findings.find((one) => one.code === code) ?? findings.find((one) => one.advice === advice) ?? null;
}

/** @param {Diagnosis} diagnosis */
function nonfiniteFinding({ findings }) {
  const found = NONFINITE_CODES.flatMap((code) => findings.filter((finding) => finding.code === code));
  return found.sort((a, b) => SEVERITIES.indexOf(b.severity) - SEVERITIES.indexOf(a.severity)).at(0) ?? null;
}

/** @param {Diagnosis} diagnosis @returns {Verdict} */
function nonfiniteOf(diagnosis) {
  const { num_steps, bursts } = diagnosis.nonfinite;
  const finding = nonfiniteFinding(diagnosis);
  const isUnrecorded = !num_steps && !diagnosis.range.num_finite;
  const tone = toneOf(finding?.severity ?? "ok", isUnrecorded ? "unknown" : num_steps || finding ? "" : "healthy");
  const newest = bursts.at(-1);
  const none = num_steps ? "verdict.nonfinite.earlier" : isUnrecorded ? "verdict.nonfinite.unrecorded.lead" : "verdict.nonfinite.none.lead";
  const where = newest ? { lead: whereWords(num_steps, bursts.length, newest), layer: newest.first_layer ?? "" } : { lead: t(none), layer: "" };
  /** @type {Reason} */
  const reason = finding ? reasonOf(finding) : { code: "", title: t("verdict.nonfinite.title"), advice: "", facts: factsOf("nonfinite", { num_steps }), steps: newest ? [newest.first_step, newest.last_step] : null };
  const word = nonfiniteWord(diagnosis, finding);
  if (!finding) return { name: "nonfinite", tone, word, ...where, rest: num_steps ? routineWords(diagnosis) : "", reason };
  const brief = inBrief(finding.advice);
  if (finding.code === "nonfinite_steps" && newest) return { name: "nonfinite", tone, word, ...where, rest: brief.rest, reason };
  const layer = newest?.first_layer ?? "";
  return { name: "nonfinite", tone, word, ...brief, lead: layer ? `${brief.lead} ${t("verdict.nonfinite.first.sentence")}` : brief.lead, layer, reason };
}

/** Of steps that the loss scaler skipped, where no finding is about them. @param {Diagnosis} diagnosis */
function routineWords({ loss_scaling: { severity, num_skipped, last_scale } }) {
  if (!num_skipped || last_scale === null) return "";
  return severity === "ok" || severity === "info" ? t("verdict.nonfinite.routine") : t("verdict.nonfinite.scale");
}

/** @param {Diagnosis} diagnosis @param {Finding | null} finding */
function nonfiniteWord({ range, nonfinite: { num_steps, bursts } }, finding) {
  if (finding?.code === "run_dead") return t("verdict.nonfinite.dead", { step: integer(finding.first_step) });
  if (finding?.code === "loss_nonfinite") return t("verdict.nonfinite.loss");
  if (!num_steps) return t(range.num_finite || finding ? "verdict.nonfinite.none" : "verdict.nonfinite.unrecorded");
  if (!finding || finding.severity === "info" || !bursts.length) return counted(num_steps, t("verdict.nonfinite.step"), t("verdict.nonfinite.steps"));
  return counted(bursts.length, t("verdict.nonfinite.burst"), t("verdict.nonfinite.bursts"));
}

/** @param {number} num_steps @param {number} num_bursts @param {Diagnosis["nonfinite"]["bursts"][number]} newest */
function whereWords(num_steps, num_bursts, { first_step, last_step, first_layer }) {
  const key = num_bursts > 1 ? "verdict.nonfinite.many" : "verdict.nonfinite.one";
  const words = t(key, { count: integer(num_steps), steps: stepWords(first_step, last_step) });
  return first_layer ? `${words}${t("verdict.nonfinite.first")}` : `${words}.`;
}

/** @param {number} first @param {number} last `step 12`, `steps 9,410–9,413` */
export function stepWords(first, last) {
  return first === last ? t("steps.one", { step: integer(first) }) : t("steps.range", { first: integer(first), last: integer(last) });
}
