/** Figures grown by live ticks, so that no viewer reads them again; pure. */

import { bytesOf } from "./arrays.js";
import { bucketOf, hasValues, lastPoint, lastStep, layerOf, metricOf } from "./figures.js";

/** The columns a figure is about: where one comes to hold values, an empty figure is worth reading again. */
const MAIN_COLUMNS = {
  norm: ["grad_norm_before_clip"],
  clip_fraction: ["max_norm", "clipped_layer_fraction"],
  clip_coef: ["clip_coef"],
  loss: ["loss"],
  loss_scale: ["loss_scale"],
  update_ratio: ["update_ratio"],
};

/** Marks stand on an axis of their own from 0 to 1: not finite at the very top, skipped just below. */
const MARK_HEIGHT = { nonfinite: 1, skipped: 0.94 };

/**
 * Appends a tick's steps up to `last`.
 * @param {Figure} figure
 * @param {Tick} tick
 * @param {number} last
 * @returns {boolean} false where the figure cannot be grown and must be read again
 */
export function extendFigure(figure, tick, last) {
  if (figure.name === "layers") return extendHeat(figure, tick, last);
  if (metricOf(figure.name) !== null) return true; // a tick brings none: they are read again now and then
  if (layerOf(figure.name) !== null) return extendLayer(figure, tick, last);
  const { steps } = tick;
  if (!hasValues(figure)) return !hasNews(/** @type {keyof typeof MAIN_COLUMNS} */ (figure.name), steps);
  if (steps.step.length && steps.step[0] <= lastStep(figure)) return false;
  for (let i = 0; i < steps.step.length; i++) {
    if (steps.step[i] > last) break;
    addStep(figure, steps, i);
  }
  return true;
}

/** Opens a point for a step, or takes it into the bucket at the end. @param {Figure} figure @param {Tick["steps"]} steps @param {number} i */
function addStep(figure, steps, i) {
  const step = steps.step[i];
  const end = lastPoint(figure);
  const opens = end < 0 || bucketOf(figure, step) !== bucketOf(figure, end);
  const numBefore = opens ? 0 : lastStep(figure) - end + 1;
  for (const trace of figure.traces) {
    const value = trace.live?.window ? slidShare(figure, trace, steps, i) : valueFor(trace, steps, i);
    if (value === null) continue;
    const hasPoint = !opens && trace.x.length > 0 && bucketOf(figure, trace.x[trace.x.length - 1]) === bucketOf(figure, end);
    if (hasPoint) trace.y[trace.y.length - 1] = joined(trace, trace.y[trace.y.length - 1], value, numBefore);
    else {
      trace.x.push(opens ? step : end);
      trace.y.push(value);
    }
  }
  if (opens) figure.num_appended++;
  figure.last_step = step;
}

/** What a bucket shows once another value is in it. @param {Trace} trace @param {number} old @param {number} added @param {number} numBefore */
function joined(trace, old, added, numBefore) {
  if (Number.isNaN(old) || trace.live?.window) return added;
  if (Number.isNaN(added)) return old;
  if (trace.role === "band_low") return Math.min(old, added);
  if (trace.role === "band_high" || trace.live?.where) return Math.max(old, added);
  return old + (added - old) / (numBefore + 1);
}

/**
 * A share of the newest steps, moved on by one. Which of the steps before the first live one it was made of is not
 * known here: in their place leaves what they were on the whole.
 * @param {Figure} figure
 * @param {Trace} trace
 * @param {Tick["steps"]} steps
 * @param {number} i
 */
function slidShare(figure, trace, steps, i) {
  const before = trace.y.filter(Number.isFinite).at(-1) ?? NaN;
  if (typeof steps.grad_norm_before_clip?.[i] !== "number") return before;
  const happened = steps[trace.live?.y ?? ""]?.[i] ? 1 : 0;
  if (Number.isNaN(before)) return happened;
  const window = trace.live?.window ?? 1;
  const numKnown = lastStep(figure) - (figure.first_step ?? 0) + 1;
  if (numKnown < window) return before + (happened - before) / (numKnown + 1);
  trace.slide ??= { before, recent: [] };
  trace.slide.recent.push(happened);
  const leaves = trace.slide.recent.length > window ? (trace.slide.recent.shift() ?? 0) : trace.slide.before;
  return Math.min(1, Math.max(0, before + (happened - leaves) / window));
}

/** @param {keyof typeof MAIN_COLUMNS} name @param {Tick["steps"]} steps */
function hasNews(name, steps) {
  return MAIN_COLUMNS[name].some((column) => (steps[column] ?? []).some((value) => value !== null));
}

/** A trace's value of a live step; null where it has none there. @param {Trace} trace @param {Tick["steps"]} steps @param {number} i */
function valueFor(trace, steps, i) {
  const rule = trace.live;
  if (!rule || (rule.where && !steps[rule.where]?.[i])) return null;
  if (!rule.y) return MARK_HEIGHT[/** @type {"skipped"} */ (trace.role)] ?? 1;
  const recorded = steps[rule.y]?.[i] ?? null;
  if (recorded === null) return rule.where || rule.sparse ? null : NaN;
  return Number(recorded);
}

/** @param {Figure} figure @param {Tick} tick @param {number} last */
function extendHeat(figure, tick, last) {
  const { heat } = figure;
  if (!tick.layers) return true;
  if (!heat || !hasValues(figure)) return false;
  const norms = new Float32Array(bytesOf(tick.layers.norms).buffer);
  if (norms.length !== heat.layers.length) return false;
  // A tick brings the layers of its last step only: where an earlier one was not finite, ask for the whole.
  if (tick.steps.nonfinite?.slice(0, -1).some(Boolean)) return false;
  const { step } = tick.layers;
  if (step > last) return true;
  const end = heat.x.length - 1;
  if (step < heat.x[end]) return false;
  figure.num_missed += tick.steps.step.length - 1;
  const opens = bucketOf(figure, step) !== bucketOf(figure, heat.x[end]);
  if (opens) heat.x.push(step);
  appendNorms(figure, heat, norms, opens);
  if (opens) figure.num_appended++;
  figure.last_step = step;
  return true;
}

/** One layer's norm: a tick brings that of its last step, a bucket shows its largest. @param {Figure} figure @param {Tick} tick @param {number} last */
function extendLayer(figure, tick, last) {
  if (!tick.layers) return true;
  const line = figure.traces.find((trace) => trace.role === "series");
  const norm = new Float32Array(bytesOf(tick.layers.norms).buffer)[line?.live?.layer ?? -1];
  if (!line || norm === undefined || tick.steps.nonfinite?.slice(0, -1).some(Boolean)) return false;
  const { step } = tick.layers;
  if (step > last) return true;
  const end = line.x.length - 1;
  if (end >= 0 && step < line.x[end]) return false;
  figure.num_missed += tick.steps.step.length - 1;
  const value = Number.isFinite(norm) && norm >= 0 ? norm : NaN;
  if (end < 0 || bucketOf(figure, step) !== bucketOf(figure, line.x[end])) {
    line.x.push(step);
    line.y.push(value);
    figure.num_appended++;
  } else if (!(line.y[end] >= value)) line.y[end] = Number.isNaN(value) ? line.y[end] : value;
  figure.last_step = step;
  if (Number.isFinite(norm)) return true;
  const marks = figure.traces.find((trace) => trace.role === "nonfinite");
  marks?.x.push(step);
  marks?.y.push(MARK_HEIGHT.nonfinite);
  return true;
}

/** @param {Figure} figure @param {HeatMap} heat @param {Float32Array} norms @param {boolean} opens a new bucket */
function appendNorms(figure, heat, norms, opens) {
  const end = heat.x.length - 1;
  const marks = figure.traces.find((trace) => trace.role === "nonfinite");
  norms.forEach((norm, layer) => {
    // A norm of zero is not "no gradient": it stands at the lower end of the colours.
    const value = Number.isFinite(norm) && norm >= 0 ? Math.max(Math.log10(norm), heat.floor) : NaN;
    const row = heat.z[layer];
    row[end] = opens || Number.isNaN(row[end]) ? value : Math.max(row[end], Number.isNaN(value) ? -Infinity : value);
    // Where a layer goes on without a finite norm its empty cells say so: the mark is where that began.
    const goesOn = end > 0 && Number.isNaN(row[end - 1]) && Number.isNaN(row[end]);
    if (Number.isFinite(norm) || !marks || goesOn) return;
    marks.x.push(heat.x[end]);
    marks.y.push(layer);
  });
}
