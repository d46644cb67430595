/** A run's norm and its threshold in a picture the size of a word: paths for an SVG, and live steps joined on; pure. */

/** @typedef {{norm: string, threshold: string, marks: number[]}} SparkPaths */

/** A threshold further away than this from all norms is drawn at the edge: the norm must keep its shape. */
const FAR = 30;
const MOST_POINTS = 160;

/**
 * @param {Sparkline} points
 * @param {number} width
 * @param {number} height
 * @returns {SparkPaths} `marks` is where norms were not finite
 */
export function pathsOf(points, width, height) {
  const { step, norm, max_norm, num_nonfinite } = points;
  const first = step[0] ?? 0;
  const span = Math.max(1, (step.at(-1) ?? 0) - first);
  const x = (/** @type {number} */ i) => ((step[i] - first) / span) * width;
  const y = heightsOf(norm, max_norm, height);
  return {
    norm: lines(norm, x, y, false, width),
    threshold: lines(max_norm, x, y, true, width),
    marks: step.flatMap((_, i) => (num_nonfinite[i] ? [x(i)] : [])),
  };
}

/** @param {(number | null)[]} norm @param {(number | null)[]} threshold @param {number} height @returns {(value: number) => number} */
function heightsOf(norm, threshold, height) {
  const isDrawn = (/** @type {number | null} */ value) => value !== null && value > 0;
  const norms = /** @type {number[]} */ (norm.filter(isDrawn));
  const limits = /** @type {number[]} */ (threshold.filter(isDrawn));
  const base = norms.length ? norms : limits;
  if (!base.length) return () => height / 2;
  let [low, high] = [Math.min(...base), Math.max(...base)];
  for (const limit of limits) {
    if (limit >= low / FAR && limit <= high * FAR) [low, high] = [Math.min(low, limit), Math.max(high, limit)];
  }
  // A flat line lies in the middle.
  if (high / low < 1.2) [low, high] = [low / 1.5, high * 1.5];
  const scale = Math.log(high / low);
  const inner = height - 4;
  return (value) => 2 + inner * (1 - Math.min(1, Math.max(0, Math.log(Math.max(value, low) / low) / scale)));
}

/**
 * @param {(number | null)[]} values
 * @param {(i: number) => number} x
 * @param {(value: number) => number} y
 * @param {boolean} stepped holds its value until the next point, as a threshold does
 * @param {number} width
 */
function lines(values, x, y, stepped, width) {
  let path = "";
  let pen = false;
  values.forEach((value, i) => {
    if (value === null) {
      pen = false;
      return;
    }
    const at = `${round(x(i))} ${round(y(value))}`;
    if (pen) path += stepped ? `H${round(x(i))}V${round(y(value))}` : `L${at}`;
    else path += `M${at}`;
    // One point alone would leave no trace.
    if (!pen && (values[i + 1] ?? null) === null) path += stepped && values.length === 1 ? `H${width}` : "h1";
    pen = true;
  });
  return path;
}

/** @param {number} value */
function round(value) {
  return Math.round(value * 10) / 10;
}

/** The share of clipped steps, of the line's stream and of each step as it was made last. @param {ListedRun} run @returns {{clipped: number, steps: number}} */
export function clippedOf({ of_stream, sparkline }) {
  return { clipped: of_stream.num_clipped - (sparkline?.num_replaced_clipped ?? 0), steps: of_stream.num_steps - (sparkline?.num_replaced ?? 0) };
}

/**
 * The points with a run's newest step in them: the server draws them anew some seconds later.
 * @param {Sparkline | null} points
 * @param {RunSummary} run
 * @returns {Sparkline | null}
 */
export function extended(points, { last_step, last }) {
  if (last_step === null) return points;
  const value = last.grad_norm_before_clip ?? null;
  const isBad = "grad_norm_before_clip" in (last.nonfinite ?? {});
  const one = { step: last_step, norm: value, max_norm: last.max_norm ?? null, bad: isBad ? 1 : 0 };
  const newest = points?.step.at(-1);
  if (!points || newest === undefined) {
    return value === null && !isBad ? points : { step: [one.step], norm: [one.norm], max_norm: [one.max_norm], num_nonfinite: [one.bad] };
  }
  const bucket = points.step.length > 1 ? points.step[1] - points.step[0] : 1;
  if (last_step < newest + bucket) {
    const i = points.step.length - 1;
    return {
      ...points,
      norm: points.norm.with(i, value === null ? points.norm[i] : Math.max(value, points.norm[i] ?? value)),
      max_norm: points.max_norm.with(i, one.max_norm ?? points.max_norm[i]),
      num_nonfinite: points.num_nonfinite.with(i, points.num_nonfinite[i] || one.bad),
    };
  }
  return thinned({
    ...points,
    step: [...points.step, one.step],
    norm: [...points.norm, one.norm],
    max_norm: [...points.max_norm, one.max_norm],
    num_nonfinite: [...points.num_nonfinite, one.bad],
  });
}

/** Two points as one, the larger norm of them, where hours of live steps have made too many. @param {Sparkline} points @returns {Sparkline} */
function thinned(points) {
  const { step, norm, max_norm, num_nonfinite } = points;
  if (step.length <= MOST_POINTS) return points;
  const halves = step.filter((_, i) => i % 2 === 0).map((_, i) => 2 * i);
  const larger = (/** @type {(number | null)[]} */ values) => halves.map((i) => {
    const pair = values.slice(i, i + 2).filter((value) => value !== null);
    return pair.length ? Math.max(.../** @type {number[]} */ (pair)) : null;
  });
  return {
    ...points,
    step: halves.map((i) => step[i]),
    norm: larger(norm),
    max_norm: halves.map((i) => max_norm[i]),
    num_nonfinite: halves.map((i) => num_nonfinite[i] + (num_nonfinite[i + 1] ?? 0)),
  };
}
