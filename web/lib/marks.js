/** The marks of verdicts and findings: shapes differ, so that colour is never alone. What is quiet has none. */

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
