/**
 * <chart-row>: one chart of the stack: its title, its value at a step, its plot, or words where there is nothing to draw.
 * Event `close`: the chart of one layer is no longer wanted.
 */

import { readTokens } from "../lib/chart-theme.js";
import { drawHeat, drawLines, pictureOf, purge } from "../lib/charts.js";
import { h, setText } from "../lib/dom.js";
import { explained } from "../lib/explained.js";
import { isLog } from "../lib/drawing.js";
import { heatAt, layerOf, metricOf } from "../lib/figures.js";
import { number } from "../lib/format.js";
import { shortNames } from "../lib/layer-names.js";
import { readingOf, titleOf } from "../lib/reading.js";
import { AIM, colourSpan, heightOf, holdsThreshold, LABEL_PLACES, labelPlace, rightScaleOf, scaleOf, thresholdLabel } from "../lib/scales.js";
import { knownText, t } from "../lib/texts.js";

/** Space above and below the curves inside a plot; marks at the top edge need half their height. */
const TOP_PX = 8;
const BOTTOM_PX = 7;
const LAYER_PX = { most: 16, least: 1, tallest: 640 };
/** However many layers there are: the charts under the map must stay within reach. */
const TALLEST_MAP_PX = 1_200;
/** As many letters of a layer's name as there is room for. */
const NAME_LETTERS = 22;
const TALLEST_OF_WINDOW = 0.46;
const NAME_PX = 13;

const NOTHING_DRAWN = { figure: null, shown: "", theme: null };

export class ChartRow extends HTMLElement {
  /** @type {FigureName} */
  #name = "norm";
  #title = h("h2", { class: "chart-title" });
  #value = h("p", { class: "chart-value" });
  #notes = h("p", { class: "chart-notes" });
  #plot = h("div", { class: "chart-plot", "aria-hidden": "true" });
  #label = h("span", { class: "threshold-label", hidden: true });
  #edges = h("div", { class: "edge-labels", "aria-hidden": "true" });
  #names = h("div", { class: "layer-names", "aria-hidden": "true" });
  #colours = h("span", { class: "colour-bar", hidden: true });
  #words = h("p", { class: "chart-words" });
  #area = h("div", { class: "chart-area" }, h("div", { class: "plot-clip" }, this.#plot), this.#label, this.#edges, this.#names);
  /** Of the map of layers, and the steps it was drawn over. */
  #drawnSteps = [0, 0];
  #pick = h("layer-picker", { hidden: true });
  #close = h("button", { type: "button", class: "link", "data-own-gestures": true }, t("layers.close.short"));
  #menu = h("chart-menu");
  #head = h("header", { class: "chart-head" }, this.#title, this.#menu, this.#value, this.#notes);
  #height = 0;
  /** What the plot shows: it is not drawn again for nothing. @type {{figure: Figure | null, shown: string, theme: object | null}} */
  #drawn = NOTHING_DRAWN;
  /** Of the chart that is drawn; null where none is. @type {import("../lib/scales.js").Scale | null} */
  scale = null;
  #labelPlace = LABEL_PLACES[0];
  /** @type {{figure: Figure, until: number, span: [number, number]} | null} */
  #span = null;

  set name(/** @type {FigureName} */ name) {
    this.#name = name;
    const layer = layerOf(name);
    this.dataset.figure = layer !== null ? "layer" : metricOf(name) !== null ? "metric" : name;
    this.#title.replaceChildren(explained(titleOf(name), knownText(`why.chart.${name}`)));
    this.#menu.chart = titleOf(name);
    if (name === "layers") this.#head.append(this.#pick, this.#colours);
    if (layer === null) return;
    this.#close.setAttribute("aria-label", t("layers.close", { layer }));
    this.#title.title = layer;
    this.#close.addEventListener("click", () => this.dispatchEvent(new CustomEvent("close", { detail: layer, bubbles: true })));
    this.#head.append(this.#close);
  }

  get name() {
    return this.#name;
  }

  connectedCallback() {
    if (this.firstChild) return;
    this.append(this.#head, this.#area, this.#words);
    this.setAttribute("role", "group");
  }

  disconnectedCallback() {
    purge(this.#plot);
    this.#drawn = NOTHING_DRAWN;
  }

  /** Words instead of a plot. @param {string} words @param {boolean} tall keeps the plot's room, where it will come */
  showWords(words, tall) {
    setText(this.#words, words);
    this.#words.hidden = false;
    this.classList.toggle("is-empty", !tall);
    this.scale = null;
    if (tall) return;
    purge(this.#plot);
    this.#drawn = NOTHING_DRAWN;
    this.#value.textContent = "";
    this.#notes.replaceChildren();
    delete this.#notes.dataset.lines;
    this.#colours.hidden = this.#label.hidden = this.#pick.hidden = this.#menu.hidden = true;
  }

  /**
   * @param {PlotlyLike} Plotly
   * @param {Figure} figure
   * @param {[number, number]} steps
   * @param {number[]} stepTicks
   * @param {{left: number, right: number}} margin
   * @param {Drawing} drawing
   */
  draw(Plotly, figure, steps, stepTicks, margin, drawing) {
    this.#words.hidden = true;
    this.#menu.hidden = false;
    this.classList.remove("is-empty");
    if (figure.heat) this.#plot.style.height = `${heatHeight(figure.heat.layers.length)}px`;
    const height = this.#plot.clientHeight;
    const theme = readTokens();
    const shown = JSON.stringify([figure.position, figure.num_appended, figure.last_step, steps, stepTicks, margin, this.#plot.clientWidth, height, drawing]);
    if (this.#drawn.figure === figure && this.#drawn.shown === shown && this.#drawn.theme === theme) return;
    this.#drawn = { figure, shown, theme };
    const frame = { steps, stepTicks, margin: { ...margin, top: TOP_PX, bottom: BOTTOM_PX }, width: this.#plot.clientWidth, height };
    this.#height = height - TOP_PX - BOTTOM_PX;
    if (figure.heat) {
      const span = this.#spanOf(figure, figure.heat, steps);
      drawHeat(Plotly, this.#plot, figure, frame, span);
      this.#drawnSteps = steps;
      this.#plot.style.transform = "";
      this.#showColours(span);
      this.#showNames(figure.heat.layers);
      this.#pick.hidden = false;
      this.#pick.layers = figure.heat.layers;
      return;
    }
    const scale = (this.scale = scaleOf(figure, steps, this.#height, isLog(figure, drawing.scale)));
    const right = figure.name === "loss" && margin.right > 30 ? rightScaleOf(figure, steps, this.#height) : null;
    drawLines(Plotly, this.#plot, figure, frame, scale, right ?? (figure.name === "loss" ? hiddenRight(figure, steps, this.#height) : null), drawing.smoothing);
    this.#showThreshold(figure, steps, scale, frame.width - margin.left - margin.right);
    if (figure.name === "clip_fraction") this.#showEdges(figure, scale);
  }

  /** Moves a map that is not drawn anew to where its steps are by now. @param {[number, number]} steps @param {import("../lib/step-scale.js").StepScale} scale */
  shift([first, last], { left, width }) {
    const [before, until] = this.#drawnSteps;
    const span = last - first + 1;
    this.#plot.style.transformOrigin = `${left}px 0`;
    this.#plot.style.transform = `translateX(${((before - first) / span) * width}px) scaleX(${(until - before + 1) / span})`;
  }

  /** The chart as a picture's address. @param {PlotlyLike} Plotly @param {Figure} figure @param {{title: string, below: string, stepLabels: string[]}} words */
  picture(Plotly, figure, words) {
    return pictureOf(Plotly, this.#plot, { ...words, names: figure.heat?.layers ?? null });
  }

  /** Where the curves are, in pixels of the element that holds this one. */
  get plotBox() {
    return { top: this.offsetTop + this.#area.offsetTop + this.#plot.offsetTop + TOP_PX, height: this.#height };
  }

  /** The colours stay while steps come in, and are fitted again when the map has grown by half. @param {Figure} figure @param {HeatMap} heat @param {[number, number]} steps */
  #spanOf(figure, heat, steps) {
    const kept = this.#span;
    if (kept?.figure === figure && figure.num_appended < kept.until) return kept.span;
    this.#span = { figure, until: figure.num_appended + Math.max(10, heat.x.length / 2), span: colourSpan(heat, steps) };
    return this.#span.span;
  }

  /** @param {Figure} figure @param {[number, number]} steps @param {import("../lib/scales.js").Scale} scale @param {number} width */
  #showThreshold(figure, steps, scale, width) {
    const { threshold } = scale;
    this.#label.hidden = !threshold;
    if (!threshold) return;
    const { value, beyond } = threshold;
    const at = beyond > 0 ? 1 : beyond < 0 ? 0 : heightOf(scale, value);
    if (beyond) this.#labelPlace = { atRight: !holdsThreshold(figure, steps, value), under: beyond > 0 };
    else this.#labelPlace = labelPlace(figure, steps, scale, width, this.#height, this.#labelPlace);
    setText(this.#label, thresholdLabel(value, beyond));
    this.#label.style.top = `${TOP_PX + (1 - at) * this.#height}px`;
    this.#label.classList.toggle("is-under", this.#labelPlace.under);
    this.#label.classList.toggle("is-right", this.#labelPlace.atRight);
  }

  /** What the band and the lines in the chart of shares mean, at its right edge. @param {Figure} figure @param {import("../lib/scales.js").Scale} scale */
  #showEdges(figure, scale) {
    const borders = figure.traces.filter(({ role, y }) => role === "border" && y.length).map(({ key, y }) => ({ words: knownText(key) ?? "", at: y[0] }));
    const edges = [{ words: t("clip_fraction.aim"), at: (AIM[0] + AIM[1]) / 2 }, ...borders];
    const shown = JSON.stringify([edges, this.#height]);
    if (this.#edges.dataset.shown === shown) return;
    this.#edges.dataset.shown = shown;
    this.#edges.replaceChildren(...edges.map(({ words, at }) => {
      const label = h("span", {}, words);
      label.style.top = `${TOP_PX + (1 - heightOf(scale, at)) * this.#height}px`;
      return label;
    }));
  }

  /** @param {[number, number]} span */
  #showColours([low, high]) {
    this.#colours.hidden = false;
    this.#colours.setAttribute("role", "img");
    const ends = [number(10 ** low, 2), number(10 ** high, 2)];
    if (this.#colours.dataset.ends === ends.join()) return;
    this.#colours.dataset.ends = ends.join();
    this.#colours.setAttribute("aria-label", t("layers.colours", { low: ends[0], high: ends[1] }));
    this.#colours.replaceChildren(
      h("span", {}, ends[0]), h("span", { class: "swatch heat" }), h("span", {}, ends[1]),
      h("span", { class: "swatch blank" }), h("span", {}, t("layers.blank")),
    );
  }

  /** As many names as there is room for, the others show in the reading. @param {string[]} layers */
  #showNames(layers) {
    const each_px = this.#height / layers.length;
    const every = Math.ceil(NAME_PX / each_px);
    const shown = `${each_px} ${layers.join("\n")}`;
    if (this.#names.dataset.shown === shown) return;
    this.#names.dataset.shown = shown;
    const short = shortNames(layers, NAME_LETTERS);
    this.#names.replaceChildren(
      ...layers.flatMap((layer, i) => {
        if (i % every) return [];
        const name = h("span", { title: layer }, short[i]);
        name.style.top = `${TOP_PX + (i + 0.5) * each_px}px`;
        return [name];
      }),
    );
  }

  /**
   * Shows the values at a step, or the newest ones.
   * @param {Figure} figure
   * @param {number | null} step
   * @param {number | null} y in pixels of this element, where the pointer is over it
   * @returns {string} the same in words
   */
  read(figure, step, y) {
    const parts = figure.heat ? this.#heatParts(figure.heat, step, y) : readingOf(figure, step);
    setText(this.#value, parts.value);
    const lines = parts.notes.join("\n");
    if (this.#notes.dataset.lines !== lines) {
      this.#notes.dataset.lines = lines;
      this.#notes.replaceChildren(...parts.notes.map((note) => h("span", {}, note)));
    }
    this.classList.toggle("is-reading", step !== null);
    this.classList.toggle("is-marked", parts.marked);
    const words = [titleOf(this.#name), parts.value, ...parts.notes].filter(Boolean).join(", ");
    this.setAttribute("aria-label", words);
    return words;
  }

  /** The layer at a height of this element, null where there is none. @param {Figure} figure @param {number} y */
  layerAt(figure, y) {
    return figure.heat?.layers[this.#layerAt(figure.heat, y)] ?? null;
  }

  /** @param {HeatMap} heat @param {number | null} y */
  #layerAt(heat, y) {
    const top = this.#plot.getBoundingClientRect().top - this.getBoundingClientRect().top;
    const layer = y === null ? -1 : Math.floor(((y - top - TOP_PX) / this.#height) * heat.layers.length);
    return layer < heat.layers.length ? layer : -1;
  }

  /** @param {HeatMap} heat @param {number | null} step @param {number | null} y */
  #heatParts(heat, step, y) {
    const layer = this.#layerAt(heat, y);
    if (step === null || layer < 0) return { value: "", notes: [t("chart.layers.words")], marked: false };
    const value = heatAt(heat, layer, step);
    return { value: Number.isNaN(value) ? t("layers.blank") : number(10 ** value), notes: [heat.layers[layer]], marked: false };
  }
}

/** The learning rate keeps its own scale where there is no room for its labels. @param {Figure} figure @param {[number, number]} steps @param {number} height */
function hiddenRight(figure, steps, height) {
  const right = rightScaleOf(figure, steps, height);
  return right && { range: right.range, ticks: { values: [], labels: [] } };
}

/** @param {number} numLayers */
function heatHeight(numLayers) {
  const tallest = Math.min(LAYER_PX.tallest, innerHeight * TALLEST_OF_WINDOW);
  const each = Math.min(LAYER_PX.most, Math.max(LAYER_PX.least, tallest / numLayers));
  return Math.round(Math.min(TALLEST_MAP_PX, Math.max(48, numLayers * each))) + TOP_PX + BOTTOM_PX;
}

export const registerChartRow = () => customElements.define("chart-row", ChartRow);
