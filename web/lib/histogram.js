/** How the norms are distributed: the figure decoded, grown by live steps, and the share above a threshold; pure. */

import { numbers } from "./arrays.js";

/**
 * @typedef {object} Histogram
 * @property {number[]} edges rising, one more than counts
 * @property {number[]} counts finite norms between two edges
 * @property {number} total
 * @property {{low: number, high: number} | null} recommended
 * @property {number} position of the live stream it holds
 */

/** @param {EncodedFigure} encoded @returns {Histogram | null} null where there are no norms */
export function decodeHistogram(encoded) {
  const found = (/** @type {Role} */ role) => encoded.data.find((trace) => trace.role === role);
  const total = encoded.num_norms ?? 0;
  const { edges, shares } = joined([found("norms"), found("below"), found("above")].map(stairsOf));
  if (!total || !shares.length) return null;
  const box = numbers(found("recommended")?.y);
  const recommended = box.length ? { low: Math.min(...box), high: Math.max(...box) } : null;
  return { edges, counts: shares.map((share) => share * total), total, recommended, position: encoded.position };
}

/** @typedef {{edges: number[], shares: number[]}} Bins */

/** The bins whose outline a trace is: it goes up by pairs of corners, along the axis at both ends. @param {EncodedTrace | undefined} trace @returns {Bins} */
function stairsOf(trace) {
  const [x, y] = [numbers(trace?.x), numbers(trace?.y)];
  return { edges: y.filter((_, i) => i % 2 === 0), shares: x.slice(1, -1).filter((_, i) => i % 2 === 0) };
}

/** The bins under and over the threshold as one row; one that it cuts is made whole again. @param {Bins[]} parts @returns {Bins} */
function joined(parts) {
  const [first, ...others] = parts.filter(({ shares }) => shares.length);
  if (!first) return { edges: [], shares: [] };
  const { edges, shares } = { edges: [...first.edges], shares: [...first.shares] };
  for (const part of others) {
    const width = Math.max(...[first, part].flatMap(({ edges: all }) => all.slice(1).map((edge, i) => edge / all[i])));
    const isCut = shares.at(-1) === part.shares[0] && part.edges[1] / edges[edges.length - 2] <= width * (1 + 1e-9);
    if (isCut) edges.pop();
    edges.push(...part.edges.slice(1));
    shares.push(...(isCut ? part.shares.slice(1) : part.shares));
  }
  return { edges, shares };
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

/**
 * The same with bins put together until each is as tall as asked, so that a few norms make hills and no comb.
 * @param {Histogram} histogram
 * @param {number} ratio of the upper to the lower edge that a bin should have at least
 * @returns {Histogram}
 */
export function coarsened(histogram, ratio) {
  const { edges, counts } = histogram;
  const joined = Math.ceil(Math.log(ratio) / Math.log(edges[1] / edges[0]) - 1e-9);
  if (!(joined > 1)) return histogram;
  const starts = edges.map((_, i) => i).filter((i) => i % joined === 0 && i < counts.length);
  return {
    ...histogram,
    edges: [...starts.map((i) => edges[i]), edges[counts.length]],
    counts: starts.map((i) => counts.slice(i, i + joined).reduce((sum, count) => sum + count, 0)),
  };
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
  return true;
}
