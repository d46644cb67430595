/** A run's story as moments: its events, alerts, attempts, changes of the threshold and bursts of NaN, the newest first. */

import { alertTitle } from "./alert-words.js";
import { serverNow } from "./clock.js";
import { ago, counted, maxNorm } from "./format.js";
import { knownText, t } from "./texts.js";
import { verdictsOf } from "./verdicts.js";

/** @typedef {"event" | "verdict" | "alert" | "resume" | "threshold" | "nonfinite"} MomentKind */
/** @typedef {{kind: MomentKind, step: number | null, steps: [number, number] | null, words: string, tone: string, order: number}} Moment */

const MOST_BURSTS = 20;
/** A threshold that changes more often moves by itself: that is its policy and no event. */
const MOST_CHANGES = 20;
/** A mean over a bucket in which it changed lies between the two. */
const SAME_WITHIN = 1e-4;

/**
 * By step. How a run ended comes first, launches whose steps are not known last.
 * @param {object} known
 * @param {RunEvent[]} known.events
 * @param {RunAlert[]} known.alerts
 * @param {RunDetail} known.run
 * @param {Diagnosis | null} known.diagnosis
 * @param {string} known.stream on screen
 * @param {Launch[]} known.launches
 * @param {Figure | undefined} known.norm
 * @returns {Moment[]}
 */
export function momentsOf({ events, alerts, run, diagnosis, stream, launches, norm }) {
  const told = events.filter((event) => event.stream === stream || event.kind !== "verdict").map(momentOf);
  const tone = diagnosis ? verdictsOf(diagnosis)[2].tone : "neutral";
  const bursts = (diagnosis?.nonfinite.bursts ?? []).filter(({ num_steps }) => num_steps > 1).slice(-MOST_BURSTS).map((burst) => burstOf(burst, tone));
  const alarms = alerts.filter((alert) => !alert.stream || alert.stream === stream).map(alarmOf);
  return [...told, ...alarms, ...bursts, ...resumesOf(run, launches), ...changesOf(norm)].sort((a, b) => b.order - a.order);
}

/** @param {RunEvent} event @returns {Moment} */
function momentOf({ kind, step, message }) {
  const isVerdict = kind === "verdict";
  const name = knownText(`timeline.event.${kind}`) ?? sentence(kind);
  const words = isVerdict ? (knownText(`timeline.said.${message}`) ?? sentence(message ?? "")) : [name, message].filter(Boolean).join(": ");
  return { kind: isVerdict ? "verdict" : "event", step, steps: null, words, tone: kind === "failed" ? "critical" : "", order: step ?? Infinity };
}

/** @param {RunAlert} alert @returns {Moment} */
function alarmOf(alert) {
  const { severity, state, first_step, last_step } = alert;
  const title = alertTitle(alert);
  const steps = first_step === null ? null : /** @type {[number, number]} */ ([first_step, last_step ?? first_step]);
  const words = state === "open" ? title : t(`timeline.alert.${state}`, { title });
  const isOver = state === "resolved";
  return { kind: "alert", step: first_step, steps, words, tone: isOver ? "" : severity === "critical" || severity === "warning" ? severity : "", order: first_step ?? Infinity };
}

/** @param {Diagnosis["nonfinite"]["bursts"][number]} burst @param {string} tone @returns {Moment} */
function burstOf({ first_step, last_step, num_steps, first_layer }, tone) {
  const where = first_layer ? t("timeline.burst.in", { layer: first_layer }) : "";
  const words = t("timeline.burst", { steps: counted(num_steps, t("verdict.nonfinite.step"), t("verdict.nonfinite.steps")), where });
  return { kind: "nonfinite", step: first_step, steps: [first_step, last_step], words, tone, order: first_step };
}

/** Where an attempt takes over from another; one that has no steps on screen is told of without a step. @param {RunDetail} run @param {Launch[]} launches @returns {Moment[]} */
function resumesOf(run, launches) {
  return run.attempts.slice(1).map(({ number, started_at_s }) => {
    const place = launches.findIndex(({ attempt }) => attempt === number);
    // Where it is the first on screen, it began there or before.
    const step = place > 0 ? launches[place].first_step : null;
    const words = t("timeline.resumed", { number, ago: ago(serverNow() - started_at_s) });
    return { kind: "resume", step, steps: null, words, tone: "", order: step ?? number - 1e3 };
  });
}

/** @param {Figure | undefined} norm @returns {Moment[]} */
function changesOf(norm) {
  const line = norm?.traces.find(({ role }) => role === "threshold");
  if (!line) return [];
  /** @type {Moment[]} */
  const changes = [];
  let [before, candidate] = [NaN, NaN];
  for (let i = 0; i < line.y.length; i++) {
    const value = line.y[i];
    if (!Number.isFinite(value) || isSame(value, before)) continue;
    const settled = Number.isNaN(before) || norm?.bucket_steps === 1 || isSame(value, line.y[i + 1] ?? value);
    if (Number.isNaN(candidate)) candidate = line.x[i];
    if (!settled) continue;
    if (!Number.isNaN(before)) {
      changes.push({ kind: "threshold", step: candidate, steps: null, words: t("timeline.threshold", { from: maxNorm(before), to: maxNorm(value) }), tone: "", order: candidate });
      if (changes.length > MOST_CHANGES) return [];
    }
    [before, candidate] = [value, NaN];
  }
  return changes;
}

/** @param {number} a @param {number} b */
function isSame(a, b) {
  return Math.abs(a - b) <= SAME_WITHIN * Math.abs(b);
}

/** @param {string} words */
function sentence(words) {
  return words.charAt(0).toUpperCase() + words.slice(1);
}
