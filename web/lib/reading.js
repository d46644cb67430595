/** What a chart says at a step, in words; pure. */

import { layerOf, metricOf, readAt } from "./figures.js";
import { lossScale, maxNorm, NOTHING, number, percent, plain } from "./format.js";
import { t } from "./texts.js";

/** @typedef {{value: string, notes: string[], marked: boolean}} Parts */

/** How a figure's values are written. @type {Partial<Record<FigureName, (value: number) => string>>} */
const SHOW = { loss_scale: lossScale, update_ratio: (value) => number(value, 2), loss: (value) => number(value, 4), clip_fraction: (value) => (Number.isNaN(value) ? NOTHING : percent(value)) };

/** @param {Figure} figure @param {number | null} step null for the newest @returns {Parts} */
export function readingOf(figure, step) {
  const reading = readAt(figure, step ?? Infinity);
  if (!reading) return { value: "", notes: [], marked: false };
  const { values, marks } = reading;
  const isNonfinite = marks.has("nonfinite") && !Number.isFinite(values.series ?? NaN);
  const show = SHOW[figure.name] ?? number;
  const notes = [];
  const { band_low, band_high, threshold, lr, headroom } = values;
  if (band_low !== undefined && band_high !== undefined && band_low < band_high) notes.push(t("reading.range", { low: show(band_low), high: show(band_high) }));
  if (headroom !== undefined && headroom > 0) notes.push(t("reading.headroom", { value: show(headroom) }));
  if (threshold !== undefined && threshold > 0) notes.push(t("reading.max_norm", { value: maxNorm(threshold) }));
  if (lr !== undefined && !Number.isNaN(lr)) notes.push(t("reading.lr", { value: plain(Number(lr.toPrecision(2))) }));
  const named = /** @type {const} */ (["clipped", "spike", "skipped", "nonfinite", "zero"]).filter((mark) => marks.has(mark));
  if (step !== null) notes.push(...named.filter((mark) => mark !== "nonfinite" || !isNonfinite).map((mark) => t(`reading.${mark}`)));
  return { value: isNonfinite ? t("reading.nonfinite") : values.series === undefined ? "" : show(values.series), notes, marked: isNonfinite || (step !== null && marks.has("nonfinite")) };
}

/** @param {FigureName} name */
export function titleOf(name) {
  return layerOf(name) ?? metricOf(name) ?? t(`chart.${/** @type {ChartName} */ (name)}`);
}
