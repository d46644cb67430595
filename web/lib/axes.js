/** Ticks and ranges of axes, made here so that the lines in all charts and the labels under them agree; pure. */

import { plain, powerOfTen, powerOfTwo, withExponent } from "./format.js";

/** @typedef {{values: number[], labels: string[]}} Ticks */

/** More than any axis has room for. */
const MOST_TICKS = 1_000;

/** A round spacing that gives about `count` ticks. @param {number} span @param {number} count */
function roundSpacing(span, count) {
  const rough = span / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const factor = [1, 2, 5, 10].find((candidate) => candidate * power >= rough * 0.999) ?? 10;
  return factor * power;
}

/** @param {number} low @param {number} high @param {number} count @param {boolean} [integers] */
export function linearValues(low, high, count, integers = false) {
  if (!(high > low)) return { values: [low], spacing: 1 };
  const spacing = integers ? Math.max(1, roundSpacing(high - low, count)) : roundSpacing(high - low, count);
  const values = [];
  // By count: where the numbers are so large that one more makes no difference, counting up would never end.
  const first = Math.ceil(low / spacing - 1e-9);
  const most = Math.min(MOST_TICKS, Math.floor((high - low) / spacing) + 2);
  for (let n = 0; n < most; n++) {
    const value = (first + n) * spacing;
    if (value > (integers ? high : high * (1 + 1e-12) + 1e-300)) break;
    values.push((integers ? value : Number(value.toPrecision(12))) + 0);
  }
  return { values, spacing };
}

/** @param {[number, number]} range @param {number} count @returns {Ticks} */
export function linearTicks([low, high], count) {
  const { values } = linearValues(low, high, count);
  return { values, labels: labelled(values) };
}

/** All with an exponent where one needs it. @param {number[]} values */
function labelled(values) {
  const labels = values.map(plain);
  return labels.some((label) => label.includes("e")) ? values.map(withExponent) : labels;
}

/**
 * 1, 10, 100 over many decades, with 3 or with 2 and 5 between over few; round steps within less than one.
 * @param {[number, number]} range
 * @param {number} count
 * @returns {Ticks}
 */
export function logTicks([low, high], count) {
  const decades = Math.log10(high / low);
  if (decades < 0.7) return linearTicks([low, high], count);
  const every = Math.max(1, Math.ceil(decades / count));
  const within = decades <= count / 5 ? [1, 2, 3, 5, 7] : decades <= count / 3 ? [1, 2, 5] : decades <= count / 2 ? [1, 3] : [1];
  const values = [];
  for (let exponent = Math.floor(Math.log10(low)); exponent <= Math.log10(high); exponent++) {
    if (exponent % every) continue;
    for (const factor of within) {
      const value = Number(`${factor}e${exponent}`);
      if (value >= low * 0.999 && value <= high * 1.001) values.push(value);
    }
  }
  const asPowers = values.some((value) => value >= 1e6 || value < 1e-3) && values.every(isPowerOfTen);
  return { values, labels: asPowers ? values.map((value) => powerOfTen(Math.round(Math.log10(value)))) : labelled(values) };
}

/** @param {number} value */
function isPowerOfTen(value) {
  return Math.abs(Math.log10(value) - Math.round(Math.log10(value))) < 1e-9;
}

/** 2¹⁴, 2¹⁶, … @param {[number, number]} range @param {number} count @returns {Ticks} */
export function powerOfTwoTicks([low, high], count) {
  const first = Math.ceil(Math.log2(low) - 1e-9);
  const last = Math.floor(Math.log2(high) + 1e-9);
  const every = 2 ** Math.max(0, Math.ceil(Math.log2((last - first + 1) / count)));
  const exponents = [];
  for (let exponent = Math.ceil(first / every) * every; exponent <= last; exponent += every) exponents.push(exponent);
  return { values: exponents.map((exponent) => 2 ** exponent), labels: exponents.map(powerOfTwo) };
}

/** A little air around the values. @param {[number, number]} extent @param {boolean} log @returns {[number, number]} */
export function padded([low, high], log) {
  if (log) {
    const decades = Math.max(Math.log10(high / low), 0.3);
    const middle = Math.log10(low * high) / 2;
    return [10 ** (middle - decades * 0.6), 10 ** (middle + decades * 0.58)];
  }
  const span = high - low || Math.abs(high) || 1;
  return [low - span * 0.08, high + span * 0.1];
}
