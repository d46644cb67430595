/** The marks of verdicts, findings and charts: shapes differ, so that colour is never alone. What is quiet has none. */

import { glyph } from "./dom.js";

/** @type {Record<Exclude<import("./verdicts.js").Tone, "quiet">, string>} */
const PATHS = {
  healthy: "M2.2 6.4l2.6 2.6l5-6.2",
  neutral: "M6 5.4v3.2M6 3.3v.1M6 1a5 5 0 1 0 0 10a5 5 0 1 0 0-10z",
  warning: "M6 1.2L11.2 10.600H.8zM6 4.700v2.600M6 8.900v.1",
  critical: "M3.900 1h4.200l2.900 2.900v4.200l-2.900 2.900h-4.200l-2.900-2.900v-4.200zM4.400 4.400l3.200 3.200M7.600 4.400l-3.200 3.200",
};

/** @param {keyof typeof PATHS} tone @param {number} [size] */
export function toneMark(tone, size = 12) {
  return glyph(PATHS[tone], { size, filled: false });
}

/** Marks of single steps, as the charts draw them. */
export const CHART_GLYPHS = {
  clippedDense: "M2 2.5v7M4.700 2.5v7M7.300 2.5v7M10 2.5v7",
  clipped: "M6 3a3 3 0 1 0 0 6a3 3 0 1 0 0-6z",
  spike: "M6 1.5L10.5 6 6 10.5 1.5 6z",
  skipped: "M1.5 2.5h9l-4.500 8z",
  nonfinite: "M2 3.4L3.400 2 6 4.600 8.600 2 10 3.400 7.400 6 10 8.600 8.600 10 6 7.400 3.400 10 2 8.600 4.600 6z",
};
