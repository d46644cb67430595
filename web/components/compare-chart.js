/** <compare-chart>: one column of several runs over a shared axis. Methods `show` and `cross`. */

import { linearTicks, logTicks, padded, powerOfTwoTicks } from "../lib/axes.js";
import { extentOf, nearest, pathOf } from "../lib/comparing.js";
import { glyph, h, setText } from "../lib/dom.js";
import { integer, lossScale, number } from "../lib/format.js";
import { CHART_GLYPHS } from "../lib/marks.js";
import { t } from "../lib/texts.js";

/** @typedef {import("../lib/comparing.js").Curve} Curve */
/** @typedef {import("../lib/comparing.js").Marks} Marks */
/**
 * @typedef {object} Shown
 * @property {"norm" | "loss" | "clip_coef" | "loss_scale"} name
 * @property {boolean} log
 * @property {Curve[]} curves
 * @property {Marks[]} marks a row each, over the curves
 * @property {[number, number]} span from left to right
 * @property {import("../lib/axes.js").Ticks} ticks of the shared axis
 * @property {string[]} names of the runs
 * @property {boolean} last the chart with the axis' labels
 */

/** The edges that all charts share. */
const EDGES = { left: 60, right: 26 };
const TOP = 8;
/** Of the marks of one run. */
const ROW = 19;
const KINDS = /** @type {const} */ (["nonfinite", "skipped"]);
const AXIS = 22;
/** Of the labels of the axis, the last of which ends with the picture at the latest. */
const HALF_LETTER = 3.6;
/** For half a label at the lower edge. */
const BOTTOM = 7;
/** Around the middle of the row, one kind over the other: overflows are both. */
const SHAPES = { nonfinite: "m-3-8l6 6m0-6l-6 6", skipped: "m-3.5 1.5h7l-3.5 6z" };
const SPACE = "http://www.w3.org/2000/svg";

export class CompareChart extends HTMLElement {
  #title = h("h2", { class: "chart-title" });
  #legend = h("span", { class: "compare-legend muted" });
  #readings = h("span", { class: "compare-readings" });
  #plot = h("div", { class: "compare-plot" });
  #empty = h("p", { class: "muted" });
  #line = h("span", { class: "compare-cross", hidden: true });
  /** @type {Shown | null} */
  #shown = null;

  connectedCallback() {
    if (this.firstChild) return;
    this.append(h("header", {}, this.#title, this.#legend, this.#readings), this.#plot, this.#empty);
  }

  /** @param {Shown} shown */
  show(shown) {
    this.#shown = shown;
    this.dataset.chart = shown.name;
    setText(this.#title, t(`chart.${shown.name}`));
    const extent = extentOf(shown.curves, shown.span, shown.log);
    this.#empty.hidden = extent !== null;
    this.#plot.hidden = extent === null;
    const kinds = extent ? KINDS.filter((kind) => shown.marks.some((marks) => marks[kind].length)) : [];
    const isBanded = shown.name === "norm" && shown.curves.some(({ isExact }) => !isExact);
    this.#legend.replaceChildren(...(isBanded ? [h("span", { class: "legend-item" }, h("span", { class: "swatch band", "aria-hidden": "true" }), t("compare.band"))] : []), ...kinds.map((kind) => h("span", { class: "legend-item" }, glyph(CHART_GLYPHS[kind], { size: 10 }), t(`norm.${kind}`))));
    if (extent === null) setText(this.#empty, t("compare.empty"));
    this.#plot.style.setProperty("--marks", `${shown.marks.length * ROW}px`);
    if (extent) this.#draw(shown, extent);
  }

  /** Where the cross-hair stands; null hides it. @param {number | null} x */
  cross(x) {
    const shown = this.#shown;
    this.#line.hidden = x === null;
    if (x === null || !shown || this.#plot.hidden) return this.#readings.replaceChildren();
    const width = this.#plot.clientWidth;
    const [from, to] = shown.span;
    this.#line.style.left = `${EDGES.left + ((x - from) / (to - from)) * (width - EDGES.left - EDGES.right)}px`;
    const write = shown.name === "loss_scale" ? lossScale : number;
    this.#readings.replaceChildren(...shown.curves.flatMap(({ run, x: at, y, low, high }) => {
      const i = nearest(at, x);
      if (i < 0) return [];
      const range = low[i] < high[i] ? ` (${t("reading.range", { low: write(low[i]), high: write(high[i]) })})` : "";
      return [h("span", { class: "compare-reading", "data-run": run }, h("b", {}, String(run + 1)), ` ${write(y[i])}${range}`)];
    }));
  }

  /** @param {Shown} shown @param {[number, number]} extent */
  #draw(shown, extent) {
    const { curves, marks, span, log, name, names } = shown;
    const top = TOP + marks.length * ROW;
    const width = this.#plot.clientWidth;
    const height = this.#plot.clientHeight - (shown.last ? AXIS : BOTTOM);
    const isFixed = name === "clip_coef";
    const range = isFixed ? /** @type {[number, number]} */ ([0, 1.05]) : name === "loss_scale" ? /** @type {[number, number]} */ ([extent[0] / 2, extent[1] * 2]) : padded(extent, log);
    if (name === "norm" && !log) range[0] = 0;
    const count = Math.max(2, Math.floor((height - top) / 32));
    const ticks = name === "loss_scale" ? powerOfTwoTicks(range, count) : log ? logTicks(range, count) : linearTicks(range, count);
    const toX = (/** @type {number} */ x) => EDGES.left + ((x - span[0]) / (span[1] - span[0])) * (width - EDGES.left - EDGES.right);
    const share = (/** @type {number} */ y) => (log ? Math.log(y / range[0]) / Math.log(range[1] / range[0]) : (y - range[0]) / (range[1] - range[0]));
    const toY = (/** @type {number} */ y) => (log && y <= 0 ? NaN : top + (height - top) * (1 - Math.min(1.2, Math.max(-0.2, share(y)))));
    const right = width - EDGES.right;
    const svg = element("svg", { viewBox: `0 0 ${width} ${this.#plot.clientHeight}`, width, height: this.#plot.clientHeight, role: "img", "aria-label": words(shown, extent, names) });
    const clip = `clip-${name}`;
    svg.append(element("clipPath", { id: clip }, element("rect", { x: EDGES.left, y: top - 4, width: right - EDGES.left, height: height - top + 8 })));
    ticks.values.forEach((value, i) => svg.append(
      element("line", { class: "grid", x1: EDGES.left, x2: right, y1: toY(value), y2: toY(value) }),
      element("text", { class: "tick", x: EDGES.left - 8, y: toY(value) + 4, "text-anchor": "end" }, ticks.labels[i]),
    ));
    shown.ticks.values.forEach((value, i) => {
      if (value < span[0] || value > span[1]) return;
      svg.append(element("line", { class: "grid", x1: toX(value), x2: toX(value), y1: TOP, y2: height }));
      if (shown.last) svg.append(element("text", { class: "tick", x: Math.min(toX(value), width - HALF_LETTER * shown.ticks.labels[i].length), y: height + 16, "text-anchor": "middle" }, shown.ticks.labels[i]));
    });
    const lines = element("g", { "clip-path": `url(#${clip})` });
    for (const curve of curves) {
      const { run, x, y, low, high, limit, isExact } = curve;
      if (!isExact && name === "norm") lines.append(element("path", { class: "band", "data-run": run, d: bandOf(curve, low, high, toX, toY) }));
      if (limit.length) lines.append(element("path", { class: "limit", "data-run": run, d: pathOf(x, limit, toX, toY) }));
      lines.append(element("path", { class: "curve", "data-run": run, d: pathOf(x, y, toX, toY) }));
    }
    marks.forEach((one, i) => svg.append(...marksOf(one, TOP + (i + 0.5) * ROW, span, toX, right)));
    svg.append(lines, ...labels(curves, span, toX, toY, right));
    this.#plot.replaceChildren(svg, this.#line);
  }
}

/** The range of each bucket as one shape. @param {Curve} curve @param {number[]} low @param {number[]} high @param {(x: number) => number} toX @param {(y: number) => number} toY */
function bandOf({ x }, low, high, toX, toY) {
  const there = x.map((_, i) => i).filter((i) => Number.isFinite(toY(low[i])) && Number.isFinite(toY(high[i])) && Number.isFinite(x[i]));
  const at = (/** @type {number} */ i, /** @type {number[]} */ values) => `${toX(x[i]).toFixed(1)} ${toY(values[i]).toFixed(1)}`;
  return there.length ? `M${there.map((i) => at(i, high)).join("L")}L${there.toReversed().map((i) => at(i, low)).join("L")}Z` : "";
}

/** A run's marks in a row, and its number at the end of that. @param {Marks} marks @param {number} y @param {[number, number]} span @param {(x: number) => number} toX @param {number} right */
function marksOf(marks, y, span, toX, right) {
  const { run } = marks;
  const paths = KINDS.map((kind) => {
    // Marks of points that fall together are one.
    const places = [...new Set(marks[kind].filter((x) => x >= span[0] && x <= span[1]).map((x) => Math.round(toX(x))))];
    return element("path", { class: `mark-${kind}`, "data-run": run, d: places.map((x) => `M${x} ${y}${SHAPES[kind]}`).join("") });
  });
  return [...paths, element("text", { class: "mark-run", "data-run": run, x: right + 5, y: y + 4 }, String(run + 1))];
}

/** Each curve's number at its right end, moved apart where ends meet. @param {Curve[]} curves @param {[number, number]} span @param {(x: number) => number} toX @param {(y: number) => number} toY @param {number} right */
function labels(curves, span, toX, toY, right) {
  const ends = curves.flatMap(({ run, x, y }) => {
    const i = y.findLastIndex((value, at) => Number.isFinite(toY(value)) && x[at] >= span[0] && x[at] <= span[1]);
    return i < 0 ? [] : [{ run, left: Math.min(toX(x[i]) + 5, right + 5), top: toY(y[i]) + 4 }];
  }).sort((a, b) => a.top - b.top);
  ends.forEach((end, i) => {
    if (i && end.top - ends[i - 1].top < 12 && Math.abs(end.left - ends[i - 1].left) < 24) end.top = ends[i - 1].top + 12;
  });
  return ends.map(({ run, left, top }) => element("text", { class: "end", "data-run": run, x: left, y: top }, String(run + 1)));
}

/** What somebody who cannot see the chart is told of it. @param {Shown} shown @param {[number, number]} extent @param {string[]} names */
function words({ name, curves, marks }, extent, names) {
  const curvesTold = t("compare.chart", { name: t(`chart.${name}`), low: number(extent[0]), high: number(extent[1]), runs: curves.map(({ run }) => names[run]).join(", ") });
  const told = marks.map(({ run, nonfinite, skipped }) => t("compare.marks", { run: names[run], nonfinite: integer(nonfinite.length), skipped: integer(skipped.length) }));
  return [curvesTold, ...told].join(". ");
}

/** @param {string} tag @param {Record<string, string | number>} attributes @param {...(Node | string)} children */
function element(tag, attributes, ...children) {
  const made = document.createElementNS(SPACE, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, typeof value === "number" ? String(Math.round(value * 10) / 10) : value);
  made.append(...children);
  return made;
}

export const registerCompareChart = () => customElements.define("compare-chart", CompareChart);
