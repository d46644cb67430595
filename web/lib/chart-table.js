/** The numbers of a chart as a table, and as CSV; pure. */

import { indexAt } from "./arrays.js";

/** @typedef {{columns: string[], rows: (number | string)[][]}} Table an empty cell is "" */

/** What each role is called where the chart's own name does not say it. @type {Partial<Record<Role, string>>} */
const COLUMN = {
  series: "mean", band_low: "min", band_high: "max", threshold: "max_norm", lr: "lr", headroom: "overflow_scale",
  clipped: "clipped", spike: "spike", skipped: "skipped", nonfinite: "nonfinite", zero: "zero",
};
const MARKS = new Set(["clipped", "spike", "skipped", "nonfinite", "zero"]);

/** @param {Figure} figure @param {[number, number]} steps on screen @returns {Table} */
export function tableOf(figure, steps) {
  return figure.heat ? mapTable(figure.heat, steps) : linesTable(figure, steps);
}

/** @param {Figure} figure @param {[number, number]} steps @returns {Table} */
function linesTable(figure, [first, last]) {
  const traces = figure.traces.filter(({ role, x }) => COLUMN[role] && x.length);
  const from = figure.bucket_steps > 1 ? first - figure.bucket_steps + 1 : first;
  const all = [...new Set(traces.flatMap(({ x }) => x))].filter((step) => step >= from && step <= last).sort((a, b) => a - b);
  const values = traces.map(({ x, y }) => new Map(x.map((step, i) => [step, y[i]])));
  const cell = (/** @type {number} */ i, /** @type {number} */ step) => {
    const value = values[i].get(step);
    if (value === undefined || Number.isNaN(value)) return "";
    return MARKS.has(traces[i].role) ? 1 : value;
  };
  return { columns: ["step", ...traces.map(({ role }) => COLUMN[role] ?? role)], rows: all.map((step) => [step, ...traces.map((_, i) => cell(i, step))]) };
}

/** A row for each step, a column for each layer. @param {HeatMap} heat @param {[number, number]} steps @returns {Table} */
function mapTable(heat, [first, last]) {
  const from = Math.max(0, indexAt(heat.x, first));
  const to = indexAt(heat.x, last) + 1;
  const rows = heat.x.slice(from, to).map((step, i) => [step, ...heat.z.map((row) => (Number.isFinite(row[from + i]) ? Number((10 ** row[from + i]).toPrecision(6)) : ""))]);
  return { columns: ["step", ...heat.layers], rows };
}

/** @param {Table} table */
export function csvOf({ columns, rows }) {
  return [columns, ...rows].map((row) => row.map(field).join(",")).join("\r\n") + "\r\n";
}

/** @param {number | string} value */
function field(value) {
  const text = String(value);
  // A program for tables would take such a name for a formula.
  const safe = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** A file's name without what a file system refuses. @param {...string} parts */
export function fileName(...parts) {
  return parts.map((part) => part.replace(/[^\p{L}\p{N}._-]+/gu, "-").slice(0, 60)).join("_").replace(/^[.-]+/, "") || "chart";
}
