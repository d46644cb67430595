/** Figures decoded and read at a step; pure. */

import { indexAt, numbers, rows, words } from "./arrays.js";

/** @type {ChartName[]} in the order they stand on the page */
export const FIGURES = ["norm", "clip_fraction", "clip_coef", "loss", "loss_scale", "update_ratio", "layers"];

/** What is read of the server: the user's metrics come in one answer, and are a chart each. @type {readonly FigureName[]} */
export const READ = [...FIGURES, "metrics"];

/** The charts as they stand: the user's metrics under the loss, single layers under their map. @param {FigureName[]} metrics @param {string[]} layers @returns {FigureName[]} */
export function rowNames(metrics, layers) {
  const underLoss = FIGURES.indexOf("loss") + 1;
  return [...FIGURES.slice(0, underLoss), ...metrics, ...FIGURES.slice(underLoss), ...layers.map(layerFigure)];
}

const ONE_LAYER = "layer:";
const ONE_METRIC = "metric:";

/** The layer a figure is of, null where it is of the run. @param {FigureName} name */
export function layerOf(name) {
  return name.startsWith(ONE_LAYER) ? name.slice(ONE_LAYER.length) : null;
}

/** @param {string} layer @returns {FigureName} */
export function layerFigure(layer) {
  return `${ONE_LAYER}${layer}`;
}

/** The metric a figure is of, null where it is of none. @param {FigureName} name */
export function metricOf(name) {
  return name.startsWith(ONE_METRIC) ? name.slice(ONE_METRIC.length) : null;
}

/** A figure for each metric of the answer about them all, by what it is called. @param {EncodedFigure} encoded @returns {Figure[]} */
export function metricFigures(encoded) {
  const names = [...new Set(encoded.data.map((trace) => trace.metric ?? ""))];
  return names.map((metric) => {
    const data = encoded.data.filter((trace) => trace.metric === metric);
    return decodeFigure(`${ONE_METRIC}${metric}`, { ...encoded, data, bucket_steps: data[0].bucket_steps ?? 1 });
  });
}

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
    launches: (encoded.launches ?? []).filter(({ is_shown }) => is_shown),
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
    attempt: trace.attempt ?? null,
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
export function isLine(trace) {
  return trace.role === "series" || trace.role === "lr" || trace.role === "threshold" || trace.role === "band_high";
}

/** The last step a figure holds, −1 for none: its last bucket may not be full. @param {Figure} figure */
export function lastStep(figure) {
  const point = lastPoint(figure);
  const bucketEnd = (bucketOf(figure, point) + 1) * figure.bucket_steps - 1;
  return point < 0 ? -1 : Math.max(point, Math.min(figure.last_step ?? point, bucketEnd));
}

/** @param {Figure} figure @param {number} step */
export function bucketOf(figure, step) {
  return Math.floor(step / figure.bucket_steps);
}

/** Where its last point stands. @param {Figure} figure */
export function lastPoint(figure) {
  const x = figure.heat?.x ?? figure.traces.find(isLine)?.x ?? [];
  return x.length ? x[x.length - 1] : -1;
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
