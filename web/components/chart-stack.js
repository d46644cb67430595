/**
 * <chart-stack>: all charts of a run over one step axis, with one cross-hair through them. Property `model`.
 * Events: `look`, the view somebody zoomed to; `drawn`, where the norm chart stands; `layer`, one to see by itself;
 * `step`, the steps of a point whose numbers somebody wants to see; `table`, the numbers of a chart.
 */

import { csvOf, fileName, tableOf } from "../lib/chart-table.js";
import { loadPlotly } from "../lib/charts.js";
import { h, setText } from "../lib/dom.js";
import { FIGURES, layerOf, readAt, rowNames } from "../lib/figures.js";
import { integer } from "../lib/format.js";
import { listenForGestures } from "../lib/gestures.js";
import { nonfiniteWord } from "../lib/newest.js";
import { titleOf } from "../lib/reading.js";
import { saveCsv, savePng } from "../lib/taking.js";
import { t } from "../lib/texts.js";
import { onThemeChange, wearsPaper } from "../lib/theme.js";
import { ALL, isZoomed, zoomTo } from "../lib/view.js";

/** Live drawing is held back to this, the map to more where it takes long: it has a hundred times the points. */
const DRAW_MS = 250;
const DRAW_MAP_MS = 1_000;
/** Drawing the map takes one in so many milliseconds at most. */
const MAP_SHARE = 20;
/** What drawing may take of a frame before it waits for the next, so that the page stays smooth. */
const FRAME_MS = 30;
const LOAD_AGAIN_MS = 10_000;
/** More charts than that are a list. */
const MOST_METRICS = 8;

/** Charts of what few record: where there is nothing of it, they do not say so. */
const OPTIONAL = /^(update_ratio|metric:.*)$/s;

export class ChartStack extends HTMLElement {
  /** Set before the element is put into the page. @type {import("../lib/run-model.js").RunModel | null} */
  model = null;
  /** What stands beside the norm chart, and what lies over it. @type {HTMLElement[]} */
  beside = [];
  #life = new AbortController();
  #rows = FIGURES.map(newRow);
  #lane = h("event-lane", { class: "is-quiet" });
  #axis = h("step-axis");
  #overlay = h("chart-overlay");
  #spoken = h("p", { class: "visually-hidden", "aria-live": "polite" });
  #message = h("p", { class: "notice" });
  #nowhere = h("span");
  #back = h("button", { type: "button", class: "button small" }, t("range.reset"));
  #nothing = h("p", { class: "notice", role: "status", hidden: true }, this.#nowhere, " ", this.#back);
  /** On a phone the norms come first, the other charts when they are asked for. */
  #more = h("button", { type: "button", class: "button more-charts", "data-own-gestures": true }, t("charts.more"));
  #stack = h("div", { class: "stack is-folded", tabindex: 0, role: "group", "aria-label": t("charts.keys") }, this.#lane, ...this.#rows, this.#axis, this.#overlay);
  /** @type {PlotlyLike | null} */
  #plotly = null;
  #started = false;
  #frame = 0;
  /** Whether some charts wait for the next frame. */
  #isAtIt = false;
  /** Whether something came in meanwhile. */
  #isStale = false;
  #timer = 0;
  /** @type {WeakSet<Figure>} */
  #known = new WeakSet();
  #drawnAt_ms = 0;
  #mapDrawnAt_ms = 0;
  #mapCost_ms = 0;
  /** @type {Figure | null} */
  #mapDrawn = null;
  #mapTimer = 0;
  /** @type {[number, number]} */
  #steps = [0, 1];
  /** Steps somebody asked to see. @type {[number, number] | null} */
  #asked = null;
  /** @type {number | null} */
  #step = null;
  /** @type {number | null} */
  #y = null;
  /** @type {import("../lib/timeline.js").Moment[]} */
  #moments = [];

  connectedCallback() {
    this.#life = new AbortController();
    const { signal } = this.#life;
    this.#rows[0].after(...this.beside, this.#more);
    this.replaceChildren(this.#message, this.#nothing, this.#stack, this.#spoken);
    this.model?.addEventListener("figures", () => this.#drawFigures(), { signal });
    this.model?.addEventListener("facts", () => this.#drawSoon(), { signal });
    this.model?.addEventListener("view", () => this.#drawNow(), { signal });
    onThemeChange(() => this.#drawNow(), signal);
    document.addEventListener("visibilitychange", () => this.#drawSoon(), { signal });
    const resize = new ResizeObserver(() => this.#drawNow());
    resize.observe(this.#stack);
    signal.addEventListener("abort", () => resize.disconnect());
    this.#more.addEventListener("click", () => {
      this.#stack.classList.remove("is-folded");
      this.#drawNow();
    }, { signal });
    this.#back.addEventListener("click", () => this.#look(ALL), { signal });
    this.#stack.addEventListener("keydown", (event) => this.#key(event), { signal });
    this.#stack.addEventListener("take", (event) => this.#take(/** @type {CustomEvent} */ (event)), { signal });
    listenForGestures(this.#stack, {
      point: (x, y) => this.#point(x, y),
      leave: () => this.#pointAtStep(null, null),
      dragging: (from, to) => this.#overlay.select([from, to], this.#axis.scale),
      select: (from, to) => this.#look(zoomTo(this.#axis.scale.stepAt(from), this.#axis.scale.stepAt(to))),
      pick: (x, y) => this.#pick(x, y),
      pinch: (before, after) => this.#look(zoomTo(...this.#axis.scale.pinched(before, after))),
      cancel: () => this.#overlay.select(null, this.#axis.scale),
      reset: () => this.#look(ALL),
    }, signal);
    this.#draw();
  }

  disconnectedCallback() {
    this.#life.abort();
    cancelAnimationFrame(this.#frame);
    clearTimeout(this.#timer);
    clearTimeout(this.#mapTimer);
  }

  /** Loads the drawing library, once the facts have been painted: running it takes most of a second. */
  startDrawing() {
    if (this.#started) return;
    this.#started = true;
    requestAnimationFrame(() => requestAnimationFrame(async () => {
      try {
        this.#plotly = await loadPlotly();
        this.#drawNow();
      } catch {
        window.setTimeout(() => (this.#started = false), LOAD_AGAIN_MS);
        setText(this.#message, t("charts.plotly.failed"));
        this.#message.hidden = false;
      }
    }));
  }

  /** Shades the steps a finding is about. @param {[number, number] | null} steps */
  mark(steps) {
    this.#asked = steps;
    this.#overlay.mark(this.#asked, this.#axis.scale);
  }

  /** A chart that was just read is drawn at once, one that grows is held back. */
  #drawFigures() {
    const read = [...(this.model?.figures.values() ?? [])].filter((figure) => !this.#known.has(figure));
    for (const figure of read) this.#known.add(figure);
    if (read.length) this.#drawNow(false);
    else this.#drawSoon();
  }

  /** What happened, for the lane above the charts. @param {import("../lib/timeline.js").Moment[]} moments */
  set moments(moments) {
    this.#moments = moments;
    this.#drawSoon();
  }

  /** @param {CustomEvent<"png" | "csv" | "table">} event */
  async #take({ target, detail: way }) {
    const row = this.#rows.find((candidate) => candidate.contains(/** @type {Node} */ (target)));
    const figure = row && this.model?.figures.get(row.name);
    const run = this.model?.detail;
    if (!row || !figure || !run || !this.#plotly) return;
    const title = titleOf(row.name);
    if (way === "table") {
      this.dispatchEvent(new CustomEvent("table", { detail: { title, table: tableOf(figure, this.#steps) }, bubbles: true }));
      return;
    }
    const file = fileName(run.project, run.name, title);
    const words = { title: `${run.project} / ${run.name}: ${title}`, below: t("charts.step"), stepLabels: this.#axis.labels };
    try {
      if (way === "csv") saveCsv(csvOf(tableOf(figure, this.#steps)), file);
      else savePng(await row.picture(this.#plotly, figure, words), file);
    } catch (error) {
      setText(this.#message, t("take.failed", { reason: String(error) }));
      this.#message.hidden = false;
    }
  }

  #drawSoon() {
    if (this.#isAtIt) this.#isStale = true;
    if (this.#timer || this.#isAtIt || document.hidden) return;
    const wait_ms = Math.max(0, this.#drawnAt_ms + DRAW_MS - Date.now());
    this.#timer = window.setTimeout(() => this.#drawNow(false), wait_ms);
  }

  /** @param {boolean} [withMap] also where the map was drawn a moment ago */
  #drawNow(withMap = true) {
    clearTimeout(this.#timer);
    this.#timer = 0;
    if (withMap) this.#mapDrawnAt_ms = 0;
    cancelAnimationFrame(this.#frame);
    this.#isAtIt = false;
    if (wearsPaper()) this.#draw(); // the next frame is on screen again
    else this.#frame = requestAnimationFrame(() => this.#draw());
  }

  #draw() {
    const { model } = this;
    const drawable = Boolean(model?.hasSteps);
    this.#stack.hidden = !drawable;
    if (!drawable) setText(this.#message, model?.detail ? t("charts.no.steps") : t("charts.loading"));
    if (this.#plotly || !drawable) this.#message.hidden = drawable;
    this.#showNothing(model);
    if (!model || !drawable || document.hidden || !this.#axis.clientWidth) return;
    this.#drawnAt_ms = Date.now();
    this.#steps = model.shown;
    const stepTicks = this.#axis.draw(this.#steps);
    this.#lane.show(this.#moments, this.#axis.scale);
    this.#place(model);
    this.#drawFrom(0, model, stepTicks);
  }

  /** As many charts as a frame has time for, the norms first; the others in the next. @param {number} from @param {import("../lib/run-model.js").RunModel} model @param {number[]} stepTicks */
  #drawFrom(from, model, stepTicks) {
    const start_ms = performance.now();
    let next = from;
    do this.#drawRow(this.#rows[next++], model, stepTicks);
    while (next < this.#rows.length && (wearsPaper() || performance.now() - start_ms < FRAME_MS));
    this.#stack.style.setProperty("--charts-height", `${Math.max(...this.#rows.map((row) => row.offsetTop + row.offsetHeight))}px`);
    if (from === 0) {
      const [norm] = this.#rows;
      this.dispatchEvent(new CustomEvent("drawn", { detail: { Plotly: this.#plotly, scale: norm.scale, box: norm.plotBox }, bubbles: true }));
    }
    this.#isAtIt = next < this.#rows.length;
    if (this.#isAtIt) {
      this.#frame = requestAnimationFrame(() => this.#drawFrom(next, model, stepTicks));
      return;
    }
    this.#drawnAt_ms = Date.now();
    this.#overlay.mark(this.#asked, this.#axis.scale);
    this.#showReading();
    if (this.#isStale) this.#drawSoon();
    this.#isStale = false;
  }

  /** A range that somebody typed or was sent may lie beside all steps: the way back is offered. @param {import("../lib/run-model.js").RunModel | null} model */
  #showNothing(model) {
    const isRead = model && FIGURES.every((name) => model.figures.has(name));
    this.#nothing.hidden = !isRead || !isZoomed(model.view) || FIGURES.some((name) => model.draws(name));
    if (this.#nothing.hidden || !model) return;
    const [first, last] = model.shown;
    setText(this.#nowhere, t("charts.nothing", { first: integer(first), last: integer(last) }));
  }

  /** A row for each metric of the user's, under the loss, and for each layer that is shown by itself, under the map. @param {import("../lib/run-model.js").RunModel} model */
  #place(model) {
    const names = rowNames(model.metrics.slice(0, MOST_METRICS), model.layers);
    if (names.join("\n") === this.#rows.map((row) => row.name).join("\n")) return;
    const known = new Map(this.#rows.map((row) => [row.name, row]));
    for (const row of this.#rows) if (!names.includes(row.name)) row.remove();
    this.#rows = names.map((name) => known.get(name) ?? newRow(name));
    this.#rows.forEach((row, i) => row.isConnected || (i ? this.#rows[i - 1].after(row) : this.#lane.after(row)));
  }

  /** @param {import("./chart-row.js").ChartRow} row @param {import("../lib/run-model.js").RunModel} model @param {number[]} stepTicks */
  #drawRow(row, model, stepTicks) {
    const figure = model.figures.get(row.name);
    const problem = model.figureProblems.get(row.name);
    row.hidden = OPTIONAL.test(row.name) && !problem && !model.draws(row.name);
    if (row.hidden || !row.clientWidth) return;
    if (!figure) row.showWords(problem ? t("chart.error", { reason: problem }) : t("charts.loading"), !problem);
    else if (!model.draws(row.name)) row.showWords(emptyWords(row.name, model), false);
    else if (!this.#plotly) row.showWords(t("charts.loading"), true);
    else {
      if (row.name === "layers" && !this.#isMapDue(figure)) {
        row.shift(this.#steps, this.#axis.scale);
        return;
      }
      const start_ms = performance.now();
      row.draw(this.#plotly, figure, this.#steps, stepTicks, this.#axis.margin, model.drawing);
      const cost_ms = performance.now() - start_ms;
      if (row.name === "layers" && cost_ms > 1) this.#mapCost_ms = cost_ms; // less is one that was there already
    }
  }

  /** A map that was just read is drawn at once, one that grows as often as it is cheap, once a second at least. @param {Figure} figure */
  #isMapDue(figure) {
    clearTimeout(this.#mapTimer);
    const wait_ms = this.#mapDrawn === figure ? this.#mapDrawnAt_ms + Math.min(DRAW_MAP_MS, MAP_SHARE * this.#mapCost_ms) - Date.now() : 0;
    if (wait_ms > 0) {
      this.#mapTimer = window.setTimeout(() => this.#drawNow(false), wait_ms);
      return false;
    }
    this.#mapDrawn = figure;
    this.#mapDrawnAt_ms = Date.now();
    return true;
  }

  /** The figure whose steps the cross-hair stops at. */
  get #guide() {
    return FIGURES.map((name) => this.model?.figures.get(name)).find((figure) => figure && !figure.heat && figure.traces.some((trace) => trace.x.length)) ?? null;
  }

  /** @param {number} x @param {number} y */
  #point(x, y) {
    const scale = this.#axis.scale;
    const inside = x >= scale.left - 4 && x <= scale.right + 4;
    this.#pointAtStep(inside ? scale.stepAt(x) : null, inside ? y : null);
  }

  /** @param {number | null} step @param {number | null} y */
  #pointAtStep(step, y) {
    this.#step = step;
    this.#y = y;
    this.#showReading();
  }

  /** A layer of the map, or a step of another chart. @param {number} x @param {number} y in pixels of the stack */
  #pick(x, y) {
    const map = this.#rows.find((row) => row.name === "layers");
    const figure = this.model?.figures.get("layers");
    const layer = map && figure ? map.layerAt(figure, y - map.offsetTop) : null;
    const { scale } = this.#axis;
    if (layer !== null && x >= scale.left) this.dispatchEvent(new CustomEvent("layer", { detail: layer, bubbles: true }));
    else if (x >= scale.left && x <= scale.right) this.#openStep(scale.stepAt(x));
  }

  /** @param {number} step */
  #openStep(step) {
    const reading = this.#guide && readAt(this.#guide, step);
    if (reading) this.dispatchEvent(new CustomEvent("step", { detail: [reading.first, reading.last], bubbles: true }));
  }

  #showReading() {
    const reading = this.#step === null || !this.#guide ? null : readAt(this.#guide, this.#step);
    this.#overlay.point(reading, this.#axis.scale, this.#y);
    const top = this.#stack.getBoundingClientRect().top;
    const words = this.#rows.flatMap((row) => {
      const figure = this.model?.figures.get(row.name);
      if (!figure || !this.model?.draws(row.name)) return [];
      const y = this.#y === null ? null : this.#y - (row.getBoundingClientRect().top - top);
      return [row.read(figure, reading ? this.#step : null, y)];
    });
    return reading ? `${t("charts.step")} ${this.#overlay.step(reading)}. ${words.join(". ")}` : "";
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.target !== this.#stack || event.metaKey || event.ctrlKey || event.altKey) return;
    const [first, last] = this.#steps;
    const page = Math.max(1, Math.round((last - first) / 10));
    const here = this.#step ?? last;
    /** @type {Record<string, () => void>} */
    const actions = {
      ArrowLeft: () => this.#walk(event.shiftKey ? here - page : this.#neighbour(here, -1)),
      ArrowRight: () => this.#walk(event.shiftKey ? here + page : this.#neighbour(here, 1)),
      Home: () => this.#walk(first),
      End: () => this.#walk(last),
      "+": () => this.#look(zoomTo(here - (here - first) / 2, here + (last - here) / 2)),
      "-": () => this.#look(zoomTo(first - (last - first) / 2, last + (last - first) / 2)),
      0: () => this.#look(ALL),
      Enter: () => this.#openStep(here),
      Escape: () => this.#pointAtStep(null, null),
    };
    actions["="] = actions["+"];
    const action = actions[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }

  /** The next recorded step to one side. @param {number} step @param {-1 | 1} direction */
  #neighbour(step, direction) {
    const reading = this.#guide && readAt(this.#guide, step);
    if (!reading) return step + direction;
    return direction < 0 ? reading.first - 1 : reading.last + 1;
  }

  /** @param {number} step */
  #walk(step) {
    this.#step = Math.min(this.#steps[1], Math.max(this.#steps[0], step));
    this.#y = null;
    setText(this.#spoken, this.#showReading());
  }

  /** @param {View} view */
  #look(view) {
    this.#pointAtStep(null, null);
    this.dispatchEvent(new CustomEvent("look", { detail: view, bubbles: true }));
  }
}

/** The columns of the charts, where all that was recorded may be NaN. @type {Partial<Record<FigureName, import("../lib/newest.js").Newest>>} */
const COLUMNS = { norm: "grad_norm_before_clip", clip_coef: "clip_coef", loss: "loss", loss_scale: "loss_scale" };

/** Why there is nothing to draw: nothing was recorded, or nothing finite. @param {FigureName} name @param {import("../lib/run-model.js").RunModel} model */
function emptyWords(name, { facts, figures }) {
  const column = COLUMNS[name];
  const odd = column && facts && nonfiniteWord(facts.last, column);
  if (odd) return t("chart.empty.nonfinite", { value: odd });
  const hasThreshold = figures.get("norm")?.traces.some(({ role, y }) => role === "threshold" && y.some(Number.isFinite)) || (facts && nonfiniteWord(facts.last, "max_norm"));
  if (name === "clip_fraction" && hasThreshold) return t("chart.empty.clip_fraction.norms");
  return t(`chart.empty.${layerOf(name) === null ? /** @type {Exclude<ChartName, "update_ratio">} */ (name) : "layers"}`);
}

/** @param {FigureName} name */
function newRow(name) {
  const row = h("chart-row");
  row.name = name;
  return row;
}

export const registerChartStack = () => customElements.define("chart-stack", ChartStack);
