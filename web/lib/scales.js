/** The vertical scale of a figure over the steps on screen; pure. */

import { linearTicks, logTicks, padded, powerOfTwoTicks } from "./axes.js";
import { extent, indexAt } from "./arrays.js";
import { maxNorm, percent } from "./format.js";

/** Decades beyond the norms at which a threshold is named at the edge instead of flattening the curve. */
const FAR_DECADES = 2.5;

/** The share of steps that a fixed threshold is best set to clip. */
export const AIM = [0.1, 0.2];

/**
 * @typedef {object} Scale
 * @property {[number, number]} range in values, also where log
 * @property {boolean} log
 * @property {import("./axes.js").Ticks} ticks
 * @property {{value: number, beyond: -1 | 0 | 1} | null} threshold the newest on screen; beyond the upper or lower edge
 */

/** @param {Trace} trace @param {[number, number]} steps @returns {[number, number]} index range that covers the steps */
export function indexesOnScreen(trace, [first, last]) {
  return [Math.max(0, indexAt(trace.x, first)), indexAt(trace.x, last) + 1];
}

/** @param {Trace[]} traces @param {[number, number]} steps @param {boolean} positive */
function extentOf(traces, steps, positive) {
  const extents = traces.map((trace) => extent(trace.y, ...indexesOnScreen(trace, steps), positive)).filter((found) => found !== null);
  if (!extents.length) return null;
  return /** @type {[number, number]} */ ([Math.min(...extents.map(([low]) => low)), Math.max(...extents.map(([, high]) => high))]);
}

/**
 * @param {Figure} figure
 * @param {[number, number]} steps on screen
 * @param {number} height of the plot in pixels
 * @param {boolean} [log] other than the figure has it
 * @returns {Scale}
 */
export function scaleOf(figure, steps, height, log = figure.log) {
  const count = Math.max(2, Math.floor(height / 28));
  if (figure.name === "loss_scale") return powerScale(figure, steps, count);
  const threshold = thresholdOf(figure, steps);
  if (figure.range) return fixedScale(figure.name, figure.range, count);
  const lines = figure.traces.filter((trace) => trace.axis === "y" && trace.role !== "threshold");
  const found = extentOf(lines, steps, log) ?? (threshold ? [threshold, threshold] : [log ? 1 : 0, 1]);
  const [low, high] = /** @type {[number, number]} */ (found);
  const beyond = threshold === null ? 0 : distance(threshold, low, high);
  const values = threshold !== null && !beyond ? [low, high, threshold] : [low, high];
  const range = padded([Math.min(...values), Math.max(...values)], log);
  if (figure.name === "norm" && !log) range[0] = 0;
  const ticks = log ? logTicks(range, count) : linearTicks(range, count);
  return { range, log, ticks, threshold: threshold === null ? null : { value: threshold, beyond } };
}

/** @param {FigureName} name @param {[number, number]} range @param {number} count @returns {Scale} */
function fixedScale(name, range, count) {
  const { values, labels } = linearTicks(range, Math.min(count, 3));
  return { range, log: false, ticks: { values, labels: name === "clip_fraction" ? values.map((value) => percent(value)) : labels }, threshold: null };
}

/** @param {number} threshold @param {number} low @param {number} high @returns {-1 | 0 | 1} */
function distance(threshold, low, high) {
  if (threshold > high * 10 ** FAR_DECADES) return 1;
  return threshold < low / 10 ** FAR_DECADES ? -1 : 0;
}

/** The newest on screen, null where there is none. @param {Figure} figure @param {[number, number]} steps */
export function thresholdOf(figure, steps) {
  const trace = figure.traces.find((candidate) => candidate.role === "threshold");
  if (!trace) return null;
  const [from, to] = indexesOnScreen(trace, steps);
  for (let i = to - 1; i >= from; i--) if (trace.y[i] > 0) return trace.y[i];
  return null;
}

/** @param {Figure} figure @param {[number, number]} steps @param {number} count @returns {Scale} */
function powerScale(figure, steps, count) {
  const [low, high] = extentOf(figure.traces.filter((trace) => trace.axis === "y"), steps, true) ?? [1, 1];
  const range = /** @type {[number, number]} */ ([low / 2, high * 4]);
  return { range, log: true, ticks: powerOfTwoTicks(range, count), threshold: null };
}

/** The scale of the learning rate, on the right. @param {Figure} figure @param {[number, number]} steps @param {number} height */
export function rightScaleOf(figure, steps, height) {
  const found = extentOf(figure.traces.filter((trace) => trace.role === "lr"), steps, false);
  if (!found) return null;
  const range = /** @type {[number, number]} */ ([0, found[1] * 1.12 || 1]);
  return { range, ticks: linearTicks(range, Math.max(2, Math.floor(height / 50))) };
}

/** How high a value stands: 0 at the lower edge of the plot, 1 at the upper. @param {Scale} scale @param {number} value */
export function heightOf({ range: [low, high], log }, value) {
  return log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
}

/** The value at a height, the other way round. @param {Scale} scale @param {number} height */
export function valueAt({ range: [low, high], log }, height) {
  return log ? low * (high / low) ** height : low + (high - low) * height;
}

/**
 * The span of colours: most norms, so that one spike does not pale the rest.
 * @param {HeatMap} heat
 * @param {[number, number]} steps
 * @returns {[number, number]}
 */
export function colourSpan(heat, steps) {
  const from = Math.max(0, indexAt(heat.x, steps[0]));
  const to = indexAt(heat.x, steps[1]) + 1;
  const stride = Math.max(1, Math.floor(((to - from) * heat.z.length) / 20_000));
  const sample = [];
  for (const row of heat.z) for (let i = from; i < to; i += stride) if (Number.isFinite(row[i])) sample.push(row[i]);
  if (!sample.length) return [0, 1];
  sample.sort((a, b) => a - b);
  const low = sample[Math.floor(sample.length * 0.01)];
  const high = sample[Math.floor((sample.length - 1) * 0.995)];
  return high - low < 0.5 ? [low - 0.25, high + 0.25] : [low, high];
}

/** @typedef {{atRight: boolean, under: boolean}} LabelPlace */

/** @type {LabelPlace[]} the best first */
export const LABEL_PLACES = [
  { atRight: false, under: false },
  { atRight: true, under: false },
  { atRight: false, under: true },
  { atRight: true, under: true },
];

/** Pixels that the threshold's label takes, and the room it likes to have. */
const LABEL_PX = { width: 120, height: 20 };

/**
 * Where the threshold's label hides the least: at the left or right end, above or under its line, where the line has that value.
 * @param {Figure} figure
 * @param {[number, number]} steps
 * @param {Scale} scale
 * @param {number} width of the plot
 * @param {number} height of the plot
 * @param {LabelPlace} kept where it stands: it stays while there is room
 * @returns {LabelPlace}
 */
export function labelPlace(figure, steps, scale, width, height, kept) {
  const threshold = heightOf(scale, scale.threshold?.value ?? 1) * height;
  const share = Math.min(1, LABEL_PX.width / width) * (steps[1] - steps[0]);
  const curves = figure.traces.filter((trace) => trace.axis === "y" && trace.role !== "threshold");
  let best = { ...LABEL_PLACES[1], room: -1 };
  for (const { atRight, under } of [kept, ...LABEL_PLACES]) {
    /** @type {[number, number]} */
    const end = atRight ? [steps[1] - share, steps[1]] : [steps[0], steps[0] + share];
    if (!atRight && !holdsThreshold(figure, end, scale.threshold?.value ?? 1)) continue;
    const room = roomBeside(curves, end, scale, threshold, height, under);
    if (room > best.room) best = { atRight, under, room };
    if (room >= LABEL_PX.height) return best;
  }
  return best;
}

/** Whether the threshold is the newest one at these steps too. @param {Figure} figure @param {[number, number]} steps @param {number} value */
export function holdsThreshold(figure, steps, value) {
  const trace = figure.traces.find(({ role }) => role === "threshold");
  if (!trace) return false;
  const [from, to] = indexesOnScreen(trace, steps);
  return trace.y.slice(from, to).every((y) => !(y > 0) || Math.abs(y - value) <= 1e-3 * value);
}

/** @param {Trace[]} curves @param {[number, number]} end @param {Scale} scale @param {number} threshold @param {number} height @param {boolean} under */
function roomBeside(curves, end, scale, threshold, height, under) {
  let room = under ? threshold : height - threshold;
  for (const { x, y } of curves) {
    for (let i = indexAt(x, end[0] - 1) + 1; i < x.length && x[i] <= end[1]; i++) {
      if (!Number.isFinite(y[i])) continue;
      const above = heightOf(scale, y[i]) * height - threshold;
      // A curve that only touches the line's side still runs through the label.
      if (under ? above <= 2 : above >= -2) room = Math.min(room, Math.max(0, under ? -above : above));
    }
  }
  return room;
}

/** The text beside the threshold. @param {number} value @param {-1 | 0 | 1} beyond */
export function thresholdLabel(value, beyond) {
  return `max_norm ${maxNorm(value)}${beyond > 0 ? " ↑" : beyond < 0 ? " ↓" : ""}`;
}


/** So many clipped steps are told by their density along the lower edge, not by marks that hide the curve. */
const MOST_DOTS = 120;

/** @param {Trace} clipped @param {[number, number]} steps */
export function areDense(clipped, steps) {
  const [from, to] = indexesOnScreen(clipped, steps);
  return to - from > MOST_DOTS;
}
