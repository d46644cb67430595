/** Figures decoded, grown by live ticks and read at a step; pure. */

import { bytesOf, indexAt, numbers, rows, words } from "./arrays.js";

/** @type {ChartName[]} in the order they stand on the page */
export const FIGURES = ["norm", "clip_fraction", "clip_coef", "loss", "loss_scale", "layers"];

/** The columns a figure is about: where one comes to hold values, an empty figure is worth reading again. */
const MAIN_COLUMNS = {
  norm: ["grad_norm_before_clip"],
  clip_fraction: ["max_norm", "clipped_layer_fraction"],
  clip_coef: ["clip_coef"],
  loss: ["loss"],
  loss_scale: ["loss_scale"],
};

const ONE_LAYER = "layer:";

/** The layer a figure is of, null where it is of the run. @param {FigureName} name */
export function layerOf(name) {
  return name.startsWith(ONE_LAYER) ? name.slice(ONE_LAYER.length) : null;
}

/** @param {string} layer @returns {FigureName} */
export function layerFigure(layer) {
  return `${ONE_LAYER}${layer}`;
}

/** Marks stand on an axis of their own from 0 to 1: not finite at the very top, skipped just below. */
const MARK_HEIGHT = { nonfinite: 1, skipped: 0.94 };

/** @param {FigureName} name @param {EncodedFigure} encoded @returns {Figure} */
export function decodeFigure(name, encoded) {
  const heat = encoded.data.find((trace) => trace.role === "heat");
  const layers = heat ? words(heat.y) : [];
  const { yaxis } = encoded.layout;
  return {
    name,
    position: encoded.position,
    bucket_steps: encoded.bucket_steps || 1,
    first_step: encoded.first_step,
    last_step: encoded.last_step,
    log: yaxis?.type === "log",
    range: yaxis?.range && yaxis.type !== "log" ? yaxis.range : null,
    traces: encoded.data.filter((trace) => trace.role !== "heat").map((trace) => decodeTrace(trace, heat ? layers : null)),
    heat: heat ? { x: numbers(heat.x), layers, z: rows(heat.z), bucket_steps: encoded.bucket_steps || 1, floor: heat.zmin ?? -12 } : null,
    num_appended: 0,
    num_missed: 0,
  };
}

/** @param {EncodedTrace} trace @param {string[] | null} layers where y names layers, it becomes their index @returns {Trace} */
function decodeTrace(trace, layers) {
  return {
    role: trace.role,
    key: trace.key,
    x: numbers(trace.x),
    y: layers ? indexesOf(trace.y, layers) : numbers(trace.y),
    axis: trace.yaxis === "y2" ? "y2" : "y",
    shape: trace.line?.shape === "hv" ? "hv" : "linear",
    live: trace.live ?? null,
  };
}

/** Where the named layers stand, NaN where none is named. @param {AnyArray} names @param {string[]} layers */
function indexesOf(names, layers) {
  const places = new Map(layers.map((name, i) => [name, i]));
  return Array.isArray(names) ? names.map((name) => (name === null ? NaN : (places.get(String(name)) ?? NaN))) : [];
}

/** Whether there is a line or a map to draw. @param {Figure} figure */
export function hasValues(figure) {
  if (figure.heat) return figure.heat.x.length > 0 && figure.heat.layers.length > 0;
  return figure.traces.some((trace) => isLine(trace) && trace.y.some(Number.isFinite));
}

/** @param {Trace} trace */
function isLine(trace) {
  return trace.role === "series" || trace.role === "lr" || trace.role === "threshold" || trace.role === "band_high";
}

/** The last step a figure holds, −1 for none: its last bucket may not be full. @param {Figure} figure */
export function lastStep(figure) {
  const point = lastPoint(figure);
  const bucketEnd = (bucketOf(figure, point) + 1) * figure.bucket_steps - 1;
  return point < 0 ? -1 : Math.max(point, Math.min(figure.last_step ?? point, bucketEnd));
}

/** Where its last point stands. @param {Figure} figure */
function lastPoint(figure) {
  const x = figure.heat?.x ?? figure.traces.find(isLine)?.x ?? [];
  return x.length ? x[x.length - 1] : -1;
}

/**
 * Appends a tick's steps up to `last`.
 * @param {Figure} figure
 * @param {Tick} tick
 * @param {number} last
 * @returns {boolean} false where the figure cannot be grown and must be read again
 */
export function extendFigure(figure, tick, last) {
  if (figure.name === "layers") return extendHeat(figure, tick, last);
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

/** @param {Figure} figure @param {number} step */
function bucketOf(figure, step) {
  return Math.floor(step / figure.bucket_steps);
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
  if (recorded === null) return rule.where ? null : NaN;
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

/**
 * What a figure says at a step: a value per role (NaN where nothing was recorded), and the marks in its bucket.
 * @typedef {{first: number, last: number, values: Partial<Record<Role, number>>, marks: Set<Role>}} Reading
 * @param {Figure} figure
 * @param {number} step
 * @returns {Reading | null}
 */
export function readAt(figure, step) {
  const lines = figure.traces.filter((trace) => trace.live?.where === undefined || trace.live?.where === null);
  const main = lines.find((trace) => trace.role === "series") ?? lines[0];
  const i = main ? indexAt(main.x, step) : -1;
  if (!main || i < 0) return null;
  const first = main.x[i];
  const next = main.x[i + 1] ?? lastStep(figure) + 1;
  const last = Math.min(next, (bucketOf(figure, first) + 1) * figure.bucket_steps) - 1;
  /** @type {Reading} */
  const reading = { first, last: Math.max(first, last), values: {}, marks: new Set() };
  for (const trace of figure.traces) {
    const at = indexAt(trace.x, reading.last);
    if (at < 0 || trace.x[at] < first) continue;
    if (trace.axis === "y2" && trace.role !== "lr") reading.marks.add(trace.role);
    else if (trace.role === "clipped" || trace.role === "spike") reading.marks.add(trace.role);
    else reading.values[trace.role] = trace.y[at];
  }
  return reading;
}

/** A layer's log10 norm at a step, NaN where there is none. @param {HeatMap} heat @param {number} layer @param {number} step */
export function heatAt(heat, layer, step) {
  const i = indexAt(heat.x, step);
  return i < 0 ? NaN : (heat.z[layer]?.[i] ?? NaN);
}
