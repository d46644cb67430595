/** How the charts draw: on which scale, and how smooth; pure. */

import { layerOf } from "./figures.js";

/** @type {Drawing} */
export const NATURAL = { scale: null, smoothing: 0 };

export const SCALES = /** @type {const} */ (["log", "linear"]);
/** As a person picks them: `auto` leaves each chart its natural one. */
export const SCALE_CHOICES = /** @type {const} */ (["auto", ...SCALES]);

/** Points that a line may be smoothed over. */
export const SMOOTHINGS = [0, 5, 20, 50];

/** Whose scale can be chosen: the others are shares, or powers of two. @param {FigureName} name */
export function hasFreeScale(name) {
  return name === "norm" || name === "loss" || layerOf(name) !== null;
}

/** Whether a chart stands on a log axis. @param {{name: FigureName, log: boolean}} figure @param {Drawing["scale"]} scale */
export function isLog(figure, scale) {
  return scale === null || !hasFreeScale(figure.name) ? figure.log : scale === "log";
}

/**
 * The mean of the points around each, over the finite ones; a gap stays a gap. The window is cut at both ends alike,
 * so that a line keeps to where it is.
 * @param {number[]} values
 * @param {number} points
 * @param {boolean} log whether the mean is that of the logs: on a log axis a spike would else lift the whole line
 */
export function smoothed(values, points, log) {
  if (points < 2) return values;
  const half = Math.floor(points / 2);
  const [sums, counts] = [[0], [0]];
  values.forEach((value, i) => {
    const there = Number.isFinite(value) && (!log || value > 0);
    sums.push(sums[i] + (there ? (log ? Math.log(value) : value) : 0));
    counts.push(counts[i] + (there ? 1 : 0));
  });
  return values.map((value, i) => {
    if (!Number.isFinite(value)) return value;
    const reach = Math.min(half, i, values.length - 1 - i);
    const [from, to] = [i - reach, i + reach + 1];
    const count = counts[to] - counts[from];
    if (!count) return value;
    const mean = (sums[to] - sums[from]) / count;
    return log ? Math.exp(mean) : mean;
  });
}

/** The drawing as it stands in the address. @param {Drawing} drawing */
export function drawingToAddress({ scale, smoothing }) {
  return { y: scale, smooth: smoothing ? String(smoothing) : null };
}

/** @param {URLSearchParams} address @returns {Drawing} */
export function drawingFromAddress(address) {
  const scale = SCALES.find((name) => name === address.get("y")) ?? null;
  const smoothing = Number(address.get("smooth"));
  return { scale, smoothing: SMOOTHINGS.includes(smoothing) ? smoothing : 0 };
}
