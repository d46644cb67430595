/** Several runs side by side: what differs in their set-up, and their curves over one axis; pure. */

/** How many runs a comparison takes. @type {[number, number]} */
export const COMPARED = [2, 8];

/** @typedef {"step" | "time"} Align */
/** @typedef {{key: string, values: (string | null)[], differs: boolean}} Setting */
/**
 * @typedef {object} Curve
 * @property {number} run which of the runs, from 0
 * @property {number[]} x
 * @property {number[]} y NaN where there is nothing
 * @property {number[]} low
 * @property {number[]} high
 * @property {number[]} limit the threshold, where the chart has one
 * @property {boolean} isExact each point is a step
 */

/** @typedef {{run: number, nonfinite: number[], skipped: number[]}} Marks x of the points with such steps */

/** The charts, and the column each draws. */
export const CHARTS = /** @type {const} */ ([
  { name: "norm", column: "grad_norm_before_clip", limit: "max_norm", log: true },
  { name: "loss", column: "loss", limit: null, log: false },
  { name: "clip_coef", column: "clip_coef", limit: null, log: false },
  { name: "loss_scale", column: "loss_scale", limit: null, log: true },
]);
export const COLUMNS = ["grad_norm_before_clip", "max_norm", "loss", "clip_coef", "loss_scale"];

/** What the runs were started with, one row per setting, those that differ first. @param {RunDetail[]} runs @returns {Setting[]} */
export function settingsOf(runs) {
  const flat = runs.map(allSettings);
  const keys = [...new Set(flat.flatMap((settings) => [...settings.keys()]))];
  const rows = keys.map((key) => {
    const values = flat.map((settings) => settings.get(key) ?? null);
    return { key, values, differs: new Set(values).size > 1 };
  });
  return [...rows.filter(({ differs }) => differs), ...rows.filter(({ differs }) => !differs)];
}

/** @param {RunDetail} run @returns {Map<string, string>} */
function allSettings({ config, streams_detail, total_steps, world_size, frameworks, tags }) {
  const flat = new Map();
  for (const [stream, { record }] of Object.entries(streams_detail)) {
    flatten(stream === "main" ? "" : `${stream}.`, record, flat);
  }
  flatten("", { total_steps, world_size, tags: tags.join(", ") || null }, flat);
  flatten("config.", config, flat);
  flatten("", frameworks, flat);
  return flat;
}

/** @param {string} prefix @param {object} value @param {Map<string, string>} into */
function flatten(prefix, value, into) {
  for (const [name, one] of Object.entries(value)) {
    if (one === null || one === undefined) continue;
    if (typeof one === "object" && !Array.isArray(one)) flatten(`${prefix}${name}.`, one, into);
    else into.set(`${prefix}${name}`, typeof one === "string" ? one : JSON.stringify(one));
  }
}

/**
 * A chart's curves, one per run that has the column.
 * @param {RunSeries[]} series in the order of the runs
 * @param {string} column
 * @param {string | null} limit
 * @param {Align} align
 * @returns {Curve[]}
 */
export function curvesOf(series, column, limit, align) {
  return series.flatMap((one, run) => {
    const found = one.columns[column];
    const y = found ? numbers(found.mean) : [];
    if (!y.some(Number.isFinite)) return [];
    const x = align === "step" ? one.step : secondsSince(one.wall_time_s);
    const limits = limit ? numbers(one.columns[limit]?.mean ?? []) : [];
    return [{ run, x, y, low: numbers(found.min), high: numbers(found.max), limit: limits, isExact: one.bucket_steps === 1 }];
  });
}

/**
 * Where a run's norms were not finite and where it skipped steps; a run without either is left out.
 * @param {RunSeries[]} series in the order of the runs
 * @param {Align} align
 * @returns {Marks[]}
 */
export function marksOf(series, align) {
  return series.flatMap(({ step, wall_time_s, columns, num_skipped }, run) => {
    const x = align === "step" ? step : secondsSince(wall_time_s);
    const odd = columns.grad_norm_before_clip?.num_nonfinite ?? [];
    const marks = { run, nonfinite: x.filter((_, i) => odd[i] > 0), skipped: x.filter((_, i) => num_skipped[i] > 0) };
    return marks.nonfinite.length || marks.skipped.length ? [marks] : [];
  });
}

/**
 * Why a run has no line of norms, null where it has one.
 * @param {RunSummary} run
 * @param {RunSeries | undefined} series
 * @param {string} stream
 * @returns {"stream" | "nonfinite" | "norms" | null}
 */
export function absenceOf(run, series, stream) {
  if (!series || series.stream !== stream) return null;
  if (!run.streams.includes(stream)) return "stream";
  const norm = series.columns.grad_norm_before_clip;
  if (norm?.mean.some((value) => value !== null)) return null;
  return norm?.num_nonfinite.some(Boolean) ? "nonfinite" : "norms";
}

/** @param {(number | null)[]} values */
function numbers(values) {
  return values.map((value) => value ?? NaN);
}

/** Seconds since the first of the moments; one that nobody said is NaN. @param {(number | null)[]} moments */
function secondsSince(moments) {
  const start = moments.find((moment) => moment !== null) ?? 0;
  return moments.map((moment) => (moment === null ? NaN : moment - start));
}

/** From the smallest x of all curves to the largest. @param {Curve[]} curves @returns {[number, number] | null} */
export function spanOf(curves) {
  const [low, high] = bounds(curves.flatMap(({ x }) => x), () => true);
  return low <= high ? [low, Math.max(high, low + 1)] : null;
}

/** The values to show between two x, thresholds among them unless they lie far off. @param {Curve[]} curves @param {[number, number]} span @param {boolean} log @returns {[number, number] | null} */
export function extentOf(curves, [from, to], log) {
  const inside = curves.flatMap(({ x, low, high }) => x.flatMap((at, i) => (at >= from && at <= to ? [low[i], high[i]] : [])));
  const [low, high] = bounds(inside, (value) => !log || value > 0);
  if (low > high) return null;
  const limits = curves.flatMap(({ limit }) => limit).filter((value) => value > low / 300 && value < high * 300);
  return [Math.min(low, ...limits), Math.max(high, ...limits)];
}

/** @param {number[]} values @param {(value: number) => boolean} counts @returns {[number, number]} */
function bounds(values, counts) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (!Number.isFinite(value) || !counts(value)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}

/**
 * The path of a line, broken where there is nothing.
 * @param {number[]} x
 * @param {number[]} y
 * @param {(value: number) => number} toX
 * @param {(value: number) => number} toY
 */
export function pathOf(x, y, toX, toY) {
  let path = "";
  let pen = false;
  for (let i = 0; i < x.length; i++) {
    const [left, top] = [toX(x[i]), toY(y[i])];
    if (!Number.isFinite(left) || !Number.isFinite(top)) pen = false;
    else {
      path += `${pen ? "L" : "M"}${left.toFixed(1)} ${top.toFixed(1)}`;
      if (!pen && !Number.isFinite(y[i + 1])) path += "h0.1"; // one point alone would leave no trace
      pen = true;
    }
  }
  return path;
}

/** The index of the point nearest to an x, -1 where there is none. @param {number[]} x @param {number} at */
export function nearest(x, at) {
  let best = -1;
  x.forEach((value, i) => {
    if (Number.isFinite(value) && (best < 0 || Math.abs(value - at) < Math.abs(x[best] - at))) best = i;
  });
  return best;
}
