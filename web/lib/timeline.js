/** A run's story as moments: its events, launches and bursts of NaN, the newest first. */

import { serverNow } from "./clock.js";
import { ago, counted } from "./format.js";
import { t } from "./texts.js";
import { verdictsOf } from "./verdicts.js";

/** @typedef {{step: number | null, steps: [number, number] | null, words: string, tone: string, order: number}} Moment */

const MOST = 12;
const MOST_BURSTS = 4;

/**
 * By step. How a run ended comes first, launches, whose steps nobody tells, last.
 * @param {RunEvent[]} events of the run
 * @param {RunDetail} run
 * @param {Diagnosis | null} diagnosis
 * @param {string} stream on screen
 * @returns {Moment[]}
 */
export function momentsOf(events, run, diagnosis, stream) {
  const told = events.filter((event) => event.stream === stream || event.kind !== "verdict").map(momentOf);
  const tone = diagnosis ? verdictsOf(diagnosis)[2].tone : "neutral";
  const bursts = (diagnosis?.nonfinite.bursts ?? []).filter(({ num_steps }) => num_steps > 1).slice(-MOST_BURSTS).map((burst) => burstOf(burst, tone));
  const launches = run.attempts.filter(({ number }) => number > 1).map(({ number, started_at_s }) =>
    ({ step: null, steps: null, words: t("timeline.resumed", { number, ago: ago(serverNow() - started_at_s) }), tone: "", order: number - 1e3 }));
  return [...told, ...bursts, ...launches].sort((a, b) => b.order - a.order).slice(0, MOST);
}

/** @param {RunEvent} event @returns {Moment} */
function momentOf({ kind, step, message }) {
  const words = kind === "verdict" ? sentence(message ?? "") : [sentence(kind), message].filter(Boolean).join(": ");
  return { step, steps: null, words, tone: kind === "failed" ? "critical" : "", order: step ?? Infinity };
}

/** @param {Diagnosis["nonfinite"]["bursts"][number]} burst @param {string} tone @returns {Moment} */
function burstOf({ first_step, last_step, num_steps, first_layer }, tone) {
  const where = first_layer ? t("timeline.burst.in", { layer: first_layer }) : "";
  return { step: first_step, steps: [first_step, last_step], words: t("timeline.burst", { steps: counted(num_steps, "step"), where }), tone, order: first_step };
}

/** @param {string} words */
function sentence(words) {
  return words.charAt(0).toUpperCase() + words.slice(1);
}
