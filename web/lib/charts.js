/** The only file that touches Plotly: loads it, draws. */

import { AIM, areDense, indexesOnScreen } from "./scales.js";
import { indexAt } from "./arrays.js";
import { readTokens, styleOf, translucent } from "./chart-theme.js";
import { smoothed } from "./drawing.js";
import { coarsened, outline } from "./histogram.js";

/** @typedef {import("./chart-theme.js").Tokens} Tokens */
/**
 * @typedef {object} Frame what all charts of a run share, and the scale of one
 * @property {[number, number]} steps first and last on screen
 * @property {number[]} stepTicks
 * @property {{left: number, right: number, top: number, bottom: number}} margin
 * @property {number} width
 * @property {number} height
 */

/** Those whose line may be smoothed: a share is a mean already, a loss scale goes in steps. */
const ROUGH = /^(norm|clip_coef|loss|update_ratio|layer:.*|metric:.*)$/s;

/** How tall a bar of the histogram is at least. */
const BAR_PX = 5;

/** @type {Promise<PlotlyLike> | null} */
let loading = null;

/** Plotly, loaded at first use: running it takes most of a second, so facts must be on screen before. */
export function loadPlotly() {
  loading ??= new Promise((resolve, reject) => {
    const address = document.querySelector("meta[name=plotly]")?.getAttribute("content") ?? "";
    const script = document.createElement("script");
    script.src = address;
    script.async = true;
    script.addEventListener("load", () => (window.Plotly ? resolve(window.Plotly) : reject(new Error("plotly.min.js holds no Plotly"))));
    script.addEventListener("error", () => {
      loading = null;
      script.remove();
      reject(new Error("plotly.min.js did not load"));
    });
    document.head.append(script);
  });
  return loading;
}

/** Starts the download without running it. */
export function fetchPlotlyEarly() {
  const address = document.querySelector("meta[name=plotly]")?.getAttribute("content");
  if (!address || loading || document.querySelector("link[data-plotly]")) return;
  const link = document.createElement("link");
  link.rel = "preload";
  link.as = "script";
  link.href = address;
  link.dataset.plotly = "";
  document.head.append(link);
}

/**
 * @param {PlotlyLike} Plotly
 * @param {HTMLElement} element
 * @param {Figure} figure
 * @param {Frame} frame
 * @param {import("./scales.js").Scale} scale
 * @param {{range: [number, number], ticks: import("./axes.js").Ticks} | null} right
 * @param {number} smoothing points that the line is smoothed over
 */
export function drawLines(Plotly, element, figure, frame, scale, right, smoothing) {
  const theme = readTokens();
  const lines = figure.traces.filter(({ role }) => role !== "band_low" && role !== "band_high" && role !== "border");
  const points = ROUGH.test(figure.name) ? smoothing : 0;
  const data = [...band(figure, frame, theme), ...lines.flatMap((trace) => lineOrSmooth(trace, frame, theme, points, scale.log))];
  const layout = {
    ...sharedLayout(frame, theme),
    shapes: figure.name === "clip_fraction" ? shareShapes(figure, theme) : [],
    yaxis: yAxis(scale.log ? scale.range.map(Math.log10) : scale.range, scale.ticks, scale.log, theme),
    yaxis2: {
      ...(right ? yAxis(right.range, right.ticks, false, theme) : { range: [0, 1], visible: false }),
      overlaying: "y",
      side: "right",
      showgrid: false,
      tickmode: "array",
      fixedrange: true,
    },
  };
  return Plotly.react(element, data, layout, { staticPlot: true, displayModeBar: false });
}

/**
 * @param {PlotlyLike} Plotly
 * @param {HTMLElement} element
 * @param {Figure} figure
 * @param {Frame} frame
 * @param {[number, number]} span of the colours, in log10
 */
export function drawHeat(Plotly, element, figure, frame, span) {
  const theme = readTokens();
  const { heat } = figure;
  if (!heat) return Promise.resolve(null);
  const from = Math.max(0, indexAt(heat.x, frame.steps[0]));
  const to = indexAt(heat.x, frame.steps[1]) + 1;
  const numColours = theme.heat.length - 1;
  const data = [
    {
      type: "heatmap",
      x: edges(heat, from, to),
      y: heat.layers.map((_, i) => i),
      z: heat.z.map((row) => row.slice(from, to)),
      zmin: span[0],
      zmax: span[1],
      colorscale: theme.heat.map((colour, i) => [i / numColours, colour]),
      showscale: false,
      hoverinfo: "skip",
    },
    ...figure.traces.map((trace) => styledTrace(trace, frame, theme)),
  ];
  const layout = {
    ...sharedLayout(frame, theme),
    yaxis: { range: [heat.layers.length - 0.5, -0.5], visible: false, fixedrange: true },
  };
  return Plotly.react(element, data, layout, { staticPlot: true, displayModeBar: false });
}

/**
 * Norms on the upright axis of the norm chart beside it, those above the line in full colour.
 * @param {PlotlyLike} Plotly
 * @param {HTMLElement} element
 * @param {import("./histogram.js").Histogram} histogram
 * @param {{width: number, height: number, margin: {left: number, right: number, top: number, bottom: number}}} frame
 * @param {import("./scales.js").Scale} scale
 * @param {{inForce: number | null, trial: number | null, line: number | null}} thresholds
 */
export function drawHistogram(Plotly, element, histogram, frame, scale, { inForce, trial, line }) {
  const [low, high] = scale.range;
  const bars = coarsened(histogram, scale.log ? (high / low) ** (BAR_PX / frame.height) : 1);
  const theme = readTokens();
  const most = Math.max(...bars.counts) * 1.06;
  const split = line ?? Infinity;
  const shape = (/** @type {number} */ from, /** @type {number} */ to, /** @type {string} */ fillcolor) =>
    ({ type: "scatter", mode: "lines", ...outline(bars, from, to), fill: "toself", fillcolor, line: { width: 0 }, hoverinfo: "skip" });
  const across = (/** @type {number | null} */ at, /** @type {string} */ color, dash = "solid") =>
    at === null ? [] : [{ type: "scatter", mode: "lines", x: [0, most], y: [at, at], line: { width: 1.5, color, dash }, hoverinfo: "skip" }];
  const data = [
    shape(0, split, translucent(theme.series, 0.22)), shape(split, Infinity, theme.series),
    ...across(inForce, theme.warning), ...across(trial, theme.text, "dash"),
  ];
  const layout = {
    ...sharedLayout({ ...frame, steps: [0.5, most - 0.5], stepTicks: [] }, theme),
    yaxis: { ...yAxis(scale.log ? scale.range.map(Math.log10) : scale.range, scale.ticks, scale.log, theme), showticklabels: frame.margin.left > 20 },
  };
  return Plotly.react(element, data, layout, { staticPlot: true, displayModeBar: false });
}

/**
 * A chart as it stands on the page, with its title and its axis of steps, as the address of a picture.
 * @param {PlotlyLike} Plotly
 * @param {HTMLElement} element it is drawn in
 * @param {{title: string, below: string, stepLabels: string[], names: string[] | null}} words `names` of the rows of a map
 */
export function pictureOf(Plotly, element, { title, below, stepLabels, names }) {
  const theme = readTokens();
  const drawn = /** @type {HTMLElement & {data: object[], layout: {xaxis: object, yaxis: object, height: number}}} */ (element);
  const layout = {
    ...drawn.layout,
    width: undefined,
    height: undefined,
    title: { text: escaped(title), x: 0.02, xanchor: "left", font: { size: 16, color: theme.text } },
    margin: { l: names ? 220 : 70, r: 70, t: 56, b: 56 },
    paper_bgcolor: theme.surface,
    plot_bgcolor: theme.surface,
    xaxis: { ...drawn.layout.xaxis, showticklabels: true, ticktext: stepLabels, title: { text: escaped(below) } },
    yaxis: names
      ? { ...drawn.layout.yaxis, visible: true, tickmode: "array", tickvals: names.map((_, i) => i), ticktext: names.map(escaped), tickfont: { size: 9 } }
      : drawn.layout.yaxis,
  };
  const height = names ? Math.min(1600, Math.max(360, 112 + 11 * names.length)) : 480;
  return Plotly.toImage({ data: drawn.data, layout }, { format: "png", width: 1280, height, scale: 2 });
}

/** Plotly reads some markup in texts. @param {string} words */
function escaped(words) {
  return words.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
}

/** @param {HTMLElement} element */
export function purge(element) {
  window.Plotly?.purge(element);
}

/** A cell covers the steps of its bucket, half a step before the first to half a step behind the last. @param {HeatMap} heat @param {number} from @param {number} to */
function edges(heat, from, to) {
  const { bucket_steps } = heat;
  const starts = heat.x.slice(from, to).map((step) => step - 0.5);
  starts.push((Math.floor(heat.x[to - 1] / bucket_steps) + 1) * bucket_steps - 0.5);
  return starts;
}

/** @param {Frame} frame @param {Tokens} theme */
function sharedLayout(frame, theme) {
  const { left, right, top, bottom } = frame.margin;
  return {
    width: frame.width,
    height: frame.height,
    margin: { l: left, r: right, t: top, b: bottom, pad: 0, autoexpand: false },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: theme.font, size: theme.fontSize, color: theme.muted },
    showlegend: false,
    hovermode: false,
    dragmode: false,
    xaxis: {
      type: "linear",
      range: [frame.steps[0] - 0.5, frame.steps[1] + 0.5],
      tickmode: "array",
      tickvals: frame.stepTicks,
      showticklabels: false,
      ticks: "",
      gridcolor: theme.grid,
      zeroline: false,
      showline: false,
      fixedrange: true,
    },
  };
}

/** @param {number[]} range @param {import("./axes.js").Ticks} ticks @param {boolean} log @param {Tokens} theme */
function yAxis(range, ticks, log, theme) {
  return {
    type: log ? "log" : "linear",
    range,
    tickmode: "array",
    tickvals: ticks.values,
    ticktext: ticks.labels,
    tickfont: { size: theme.fontSize, color: theme.muted },
    ticks: "",
    ticklabelstandoff: 6,
    ticklabeloverflow: "allow",
    gridcolor: theme.grid,
    zeroline: false,
    fixedrange: true,
  };
}

/**
 * Smallest to largest as closed shapes, one per stretch without a gap: `tonexty` would draw across the gaps.
 * @param {Figure} figure
 * @param {Frame} frame
 * @param {Tokens} theme
 */
function band(figure, frame, theme) {
  const low = figure.traces.find((trace) => trace.role === "band_low");
  const high = figure.traces.find((trace) => trace.role === "band_high");
  if (!low || !high) return [];
  const [from, to] = indexesOnScreen(low, frame.steps);
  /** @type {number[]} */
  const x = [];
  /** @type {number[]} */
  const y = [];
  let start = from;
  for (let i = from; i <= Math.min(to, low.x.length - 1) + 1; i++) {
    if (i < low.x.length && i <= to && Number.isFinite(low.y[i]) && Number.isFinite(high.y[i])) continue;
    if (i > start) {
      x.push(...low.x.slice(start, i), ...low.x.slice(start, i).reverse(), NaN);
      y.push(...high.y.slice(start, i), ...low.y.slice(start, i).reverse(), NaN);
    }
    start = i + 1;
  }
  const colour = translucent(theme.series, 0.2);
  return [{ type: "scatter", mode: "lines", x, y, fill: "toself", fillcolor: colour, line: { width: 0.5, color: colour }, hoverinfo: "skip" }];
}

/** The share to aim at as a band, the borders of the verdicts as lines, over all steps. @param {Figure} figure @param {Tokens} theme */
function shareShapes(figure, theme) {
  const across = { xref: "paper", x0: 0, x1: 1, yref: "y", layer: "below" };
  const borders = figure.traces.filter(({ role, y }) => role === "border" && y.length).map(({ y }) => ({
    ...across, type: "line", y0: y[0], y1: y[0], line: { width: 1, dash: "dot", color: translucent(theme.muted, 0.6) },
  }));
  return [{ ...across, type: "rect", y0: AIM[0], y1: AIM[1], line: { width: 0 }, fillcolor: translucent(theme.ok, 0.16) }, ...borders];
}

/**
 * A line that is smoothed has what it was made of behind it: no extreme is hidden.
 * @param {Trace} trace
 * @param {Frame} frame
 * @param {Tokens} theme
 * @param {number} points
 * @param {boolean} log
 * @returns {object[]}
 */
function lineOrSmooth(trace, frame, theme, points, log) {
  const line = styledTrace(trace, frame, theme);
  if (trace.role !== "series" || points < 2 || line.y.length < 3 * points) return [line];
  const faint = { ...line, mode: "lines", line: { width: 1, color: translucent(theme.series, 0.35) } };
  return [faint, { ...line, mode: "lines", line: { width: 2, color: theme.series }, y: smoothed(line.y, points, log) }];
}

/** @param {Trace} trace @param {Frame} frame @param {Tokens} theme */
function styledTrace(trace, frame, theme) {
  const [from, to] = indexesOnScreen(trace, frame.steps);
  const x = trace.x.slice(from, Math.min(trace.x.length, to + 1));
  const y = trace.y.slice(from, Math.min(trace.y.length, to + 1));
  if (trace.role === "clipped" && areDense(trace, frame.steps)) return clippedAlongTheEdge(x, theme);
  return { type: "scatter", x, y, yaxis: trace.axis, hoverinfo: "skip", ...styleOf(trace, x.length, theme) };
}

/** @param {number[]} x @param {Tokens} theme */
function clippedAlongTheEdge(x, theme) {
  // One path of short strokes: a thousand marks would each be an element.
  const strokes = { x: x.flatMap((step) => [step, step, NaN]), y: x.flatMap(() => [0, 0.035, NaN]) };
  return { type: "scatter", mode: "lines", ...strokes, yaxis: "y2", hoverinfo: "skip", opacity: 0.6, line: { width: 1, color: theme.warning } };
}
