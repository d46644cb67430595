/** How the norms are distributed: the figure decoded, grown by live steps, and the share above a threshold; pure. */

import { numbers } from "./arrays.js";

/**
 * @typedef {object} Histogram
 * @property {number[]} edges rising, one more than counts
 * @property {number[]} counts finite norms between two edges
 * @property {number} total
 * @property {number} position of the live stream it holds
 * @property {number} num_added live since it was read
 */

/** @param {EncodedFigure} encoded @returns {Histogram | null} null where there are no norms */
export function decodeHistogram(encoded) {
  const bars = encoded.data.find((trace) => trace.role === "bars");
  const counts = numbers(bars?.x);
  const centres = numbers(bars?.y);
  const widths = numbers(bars?.width);
  const total = counts.reduce((sum, count) => sum + count, 0);
  if (!total) return null;
  const edges = [];
  // A bar on a log axis stands at the geometric centre of its edges.
  for (let i = 0; i < centres.length; i++) edges.push(Math.hypot(widths[i] / 2, centres[i]) - widths[i] / 2);
  edges.push((edges.at(-1) ?? 0) + (widths.at(-1) ?? 0));
  return { edges, counts, total, position: encoded.position, num_added: 0 };
}

/** The norm below which a share of the norms is. @param {Histogram} histogram @param {number} share */
export function quantile({ edges, counts, total }, share) {
  let below = 0;
  for (let i = 0; i < counts.length; i++) {
    if (counts[i] && below + counts[i] >= share * total) return between(edges[i], edges[i + 1], (share * total - below) / counts[i]);
    below += counts[i];
  }
  return edges[edges.length - 1];
}

/** The share of norms above a threshold; within its own bin by the log of its place. @param {Histogram} histogram @param {number} threshold */
export function shareAbove({ edges, counts, total }, threshold) {
  let above = 0;
  for (let i = 0; i < counts.length; i++) {
    if (edges[i] >= threshold) above += counts[i];
    else if (edges[i + 1] > threshold) above += counts[i] * placeAbove(edges[i], edges[i + 1], threshold);
  }
  return above / total;
}

/** @param {number} low @param {number} high @param {number} threshold */
function placeAbove(low, high, threshold) {
  return low > 0 ? Math.log(high / threshold) / Math.log(high / low) : (high - threshold) / (high - low);
}

/** @param {number} low @param {number} high @param {number} share */
function between(low, high, share) {
  return low > 0 ? low * (high / low) ** share : low + (high - low) * share;
}

/**
 * The outline of the bars between two norms, as corners of a closed shape.
 * @param {Histogram} histogram
 * @param {number} from
 * @param {number} to
 */
export function outline({ edges, counts }, from, to) {
  /** @type {number[]} */
  const x = [];
  /** @type {number[]} */
  const y = [];
  for (let i = 0; i < counts.length; i++) {
    const low = Math.max(edges[i], from);
    const high = Math.min(edges[i + 1], to);
    if (high <= low) continue;
    x.push(counts[i], counts[i]);
    y.push(low, high);
  }
  if (!x.length) return { x, y };
  return { x: [0, ...x, 0], y: [y[0], ...y, y[y.length - 1]] };
}

/** Counts a live norm in. @param {Histogram} histogram @param {number} norm @returns {boolean} false where it lies beyond the bins */
export function addNorm(histogram, norm) {
  const { edges, counts } = histogram;
  if (!(norm >= edges[0] && norm < edges[edges.length - 1])) return false;
  let low = 0;
  let high = counts.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (edges[middle] <= norm) low = middle;
    else high = middle - 1;
  }
  counts[low]++;
  histogram.total++;
  histogram.num_added++;
  return true;
}
