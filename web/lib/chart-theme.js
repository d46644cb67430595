/** What roles look like in the charts: colours from the same tokens as the page, by theme. */

import { onThemeChange } from "./theme.js";

/** @typedef {ReturnType<typeof fromStyles>} Tokens */

/** @type {Tokens | null} */
let tokens = null;
onThemeChange(() => (tokens = null), new AbortController().signal);

/** The tokens of the theme that is shown. */
export function readTokens() {
  return (tokens ??= fromStyles());
}

function fromStyles() {
  const style = getComputedStyle(document.documentElement);
  const read = (/** @type {string} */ name) => style.getPropertyValue(`--${name}`).trim();
  return {
    series: read("series"),
    warning: read("warning"),
    critical: read("critical"),
    ok: read("ok"),
    muted: read("muted"),
    text: read("text"),
    surface: read("surface"),
    grid: read("grid"),
    heat: [0, 1, 2, 3, 4].map((i) => read(`heat-${i}`)),
    font: getComputedStyle(document.body).fontFamily,
    fontSize: Math.round(0.6875 * parseFloat(style.fontSize)),
  };
}

/** @param {string} hex `#rrggbb` @param {number} alpha */
export function translucent(hex, alpha) {
  const [r, g, b] = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  return `rgba(${r}, ${g}, ${b}, ${alpha})`;
}

/** How a role is drawn. @param {Trace} trace @param {number} count of its points on screen @param {Tokens} theme */
export function styleOf(trace, count, theme) {
  const { shape } = trace;
  const few = count <= 60;
  const line = (/** @type {string} */ color, /** @type {number} */ width, dash = "solid") => ({
    mode: few ? "lines+markers" : "lines",
    line: { color, width, dash, shape },
    marker: { color, size: count === 1 ? 6 : 4 },
  });
  switch (trace.role) {
    case "threshold":
      return { ...line(theme.warning, 1.5), mode: count === 1 ? "markers" : "lines" };
    case "lr":
      return { ...line(theme.muted, 1.2, "dot"), mode: count === 1 ? "markers" : "lines" };
    case "headroom":
      return { ...line(theme.muted, 1.2, "dot"), mode: count === 1 ? "markers" : "lines" };
    case "ghost":
      return { ...line(theme.muted, 1.2), opacity: 0.45, mode: count === 1 ? "markers" : "lines" };
    case "zero":
      return marks("line-ew-open", theme.critical, 10, 1, 2.5);
    case "dominant":
      return { ...line(theme.text, 1.5), mode: "lines" };
    case "spike":
      return marks("diamond-open", theme.series, 9, 1, 1.4);
    case "clipped":
      return marks("circle", theme.warning, few ? 6 : 5, 0.9);
    case "skipped":
      return marks("triangle-down", theme.text, 8, 1);
    case "nonfinite":
      return marks("x", theme.critical, 8, 1);
    default:
      return line(theme.series, 1.5);
  }
}

/** @param {string} symbol @param {string} color @param {number} size @param {number} opacity @param {number} [width] of the outline */
function marks(symbol, color, size, opacity, width = 0) {
  return { mode: "markers", cliponaxis: false, marker: { symbol, color, size, opacity, line: { width, color } } };
}
