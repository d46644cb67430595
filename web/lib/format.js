/** Numbers and times as a person reads them, in the language of the page. */

import { t } from "./texts.js";

const NO_BREAK = "\u00a0";
const SUPERSCRIPTS = "⁰¹²³⁴⁵⁶⁷⁸⁹";
const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/** Stands where a number was not recorded. */
export const NOTHING = "–";

/** @param {number | null | undefined} value 65536 → `65,536` */
export function integer(value) {
  return value === null || value === undefined || !Number.isFinite(value) ? NOTHING : whole.format(value);
}

/**
 * About `digits` significant digits, small and huge numbers with an exponent: `20.1`, `1,234`, `1.2e-5`.
 * @param {number | null | undefined} value
 * @param {number} [digits]
 */
export function number(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return NOTHING;
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (value === 0) return "0";
  const size = Math.abs(value);
  const sign = value < 0 ? "−" : "";
  if (size >= 1e6 || size < 1e-3) return sign + exponential(size, digits - 1);
  const rounded = Number(size.toPrecision(digits));
  if (rounded >= 10 ** digits) return sign + whole.format(size);
  const decimals = Math.max(0, digits - 1 - Math.floor(Math.log10(rounded)));
  return sign + (rounded >= 1000 ? whole.format(rounded) : rounded.toFixed(Math.min(decimals, 6)));
}

/** @param {number} size @param {number} decimals */
function exponential(size, decimals) {
  const [mantissa, exponent] = size.toExponential(Math.max(0, decimals)).split("e");
  const short = mantissa.includes(".") ? mantissa.replace(/\.?0+$/, "") : mantissa;
  return `${short}e${Number(exponent)}`;
}

/**
 * A number without padding zeros, for axes and settings: `1`, `0.25`, `3e-4`.
 * @param {number} value
 */
export function plain(value) {
  const text = number(value, 4);
  return /[e,]/.test(text) || !text.includes(".") ? text : text.replace(/\.?0+$/, "");
}

/** Always with an exponent, as labels beside others that have one: `5e-4`, `1e-3`. @param {number} value */
export function withExponent(value) {
  return value === 0 ? "0" : `${value < 0 ? "−" : ""}${exponential(Math.abs(value), 3)}`;
}

/** @param {number} part @param {number} all 0.953 → `95 %`; null where there is nothing to share */
export function percent(part, all = 1) {
  if (!(all > 0) || !Number.isFinite(part)) return NOTHING;
  const value = (100 * part) / all;
  if (value === 0) return `0${NO_BREAK}%`;
  if (value < 0.01) return `<${NO_BREAK}0.01${NO_BREAK}%`;
  if (value > 99 && value < 100) return `${Math.min(value, 99.9).toFixed(1)}${NO_BREAK}%`;
  const decimals = value < 1 ? 2 : value < 10 ? 1 : 0;
  return `${value.toFixed(decimals).replace(/\.0$/, "")}${NO_BREAK}%`;
}

/** @param {number} exponent 16 → `2¹⁶` */
export function powerOfTwo(exponent) {
  const digits = String(Math.abs(exponent)).replace(/\d/g, (digit) => SUPERSCRIPTS[Number(digit)]);
  return `2${exponent < 0 ? "⁻" : ""}${digits}`;
}

/** @param {number} exponent 3 → `10³` */
export function powerOfTen(exponent) {
  return `10${powerOfTwo(exponent).slice(1)}`;
}

/** The exponent where the value is a power of two, else null. @param {number | null | undefined} value */
export function log2Exactly(value) {
  const exponent = value ? Math.log2(value) : NaN;
  return Number.isInteger(exponent) ? exponent : null;
}

/** A loss scale: `65,536`, and from 2²⁴ on the power, where digits no longer help. @param {number | null | undefined} value */
export function lossScale(value) {
  const exponent = log2Exactly(value);
  if (value === null || value === undefined) return NOTHING;
  if (exponent !== null && (value >= 2 ** 24 || value < 1 / 64)) return powerOfTwo(exponent);
  return Number.isInteger(value) && value < 2 ** 24 ? integer(value) : number(value, 4);
}

/** @param {number | null | undefined} steps_per_s `3.1 steps/s`, slow ones as `48 s/step` */
export function rate(steps_per_s) {
  if (!steps_per_s || !Number.isFinite(steps_per_s)) return NOTHING;
  if (steps_per_s < 0.1) return t("rate.slow", { time: number(1 / steps_per_s, 2) });
  return t("rate.fast", { rate: number(steps_per_s, steps_per_s < 100 ? 2 : 3) });
}

/** @param {number} seconds 8880 → `2 h 28 min` */
export function duration(seconds) {
  const s = Math.max(0, Math.round(seconds));
  const [min, h, d] = [Math.floor(s / 60), Math.floor(s / 3600), Math.floor(s / 86_400)];
  if (s < 60) return t("time.s", { s });
  if (s < 3600) return t("time.min", { min });
  return d ? t("time.d.h", { d, h: h % 24 }) : t("time.h.min", { h, min: min % 60 });
}

/** @param {number} seconds 12 → `12 s ago` */
export function ago(seconds) {
  if (seconds < 2) return t("time.now");
  const s = Math.floor(seconds);
  const [min, h, d] = [Math.floor(s / 60), Math.floor(s / 3600), Math.floor(s / 86_400)];
  const time = d ? t("time.d", { d }) : h ? t("time.h", { h }) : min ? t("time.min", { min }) : t("time.s", { s });
  return t("time.ago", { time });
}

/** @param {number} count @param {string} singular @param {string} [plural] */
export function counted(count, singular, plural = `${singular}s`) {
  return `${integer(count)}${NO_BREAK}${count === 1 ? singular : plural}`;
}

/** A number of parameters: `124 M`. @param {number} value */
export function abbreviated(value) {
  for (const [size, letter] of /** @type {[number, string][]} */ ([[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e3, "k"]])) {
    if (value >= size) return `${plain(Number((value / size).toPrecision(3)))}${NO_BREAK}${letter}`;
  }
  return integer(value);
}

/** An amount of storage: `1.2 GB`. @param {number} value */
export function bytes(value) {
  for (const [size, unit] of /** @type {[number, string][]} */ ([[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]])) {
    if (value >= size) return `${plain(Number((value / size).toPrecision(3)))}${NO_BREAK}${unit}`;
  }
  return `${integer(value)}${NO_BREAK}B`;
}

/** Steps on the shared axis: `12,500`, from a million on `1.25 M`. @param {number} step @param {number} spacing */
export function stepLabel(step, spacing) {
  for (const [size, letter] of /** @type {[number, string][]} */ ([[1e12, "T"], [1e9, "B"], [1e6, "M"]])) {
    if (step < size || spacing < size / 1e4) continue; // more than four decimals: digits of the next smaller
    const decimals = Math.max(0, Math.ceil(-Math.log10(spacing / size) - 1e-9));
    const [whole, fraction] = (step / size).toFixed(decimals).split(".");
    return `${integer(Number(whole))}${fraction ? `.${fraction}` : ""}${NO_BREAK}${letter}`;
  }
  return integer(step);
}

/** A threshold as people write it: `1.0`, `0.25`, `30`. @param {number} value */
export function maxNorm(value) {
  return Number.isInteger(value) && Math.abs(value) < 10 ? value.toFixed(1) : plain(value);
}
