/** <compare-page>: two to eight runs over one axis, with their verdicts and what differs in their set-up. */

import { getRuns } from "../lib/api.js";
import { linearValues } from "../lib/axes.js";
import { CompareModel } from "../lib/compare-model.js";
import { CHARTS, COMPARED, curvesOf, marksOf, spanOf } from "../lib/comparing.js";
import { h, setText } from "../lib/dom.js";
import { drawingFromAddress, isLog, SCALE_CHOICES, SCALES } from "../lib/drawing.js";
import { counted, duration, stepLabel } from "../lib/format.js";
import { addressValues, rememberInAddress } from "../lib/router.js";
import { t } from "../lib/texts.js";
import { onThemeChange } from "../lib/theme.js";

/** @typedef {import("../lib/comparing.js").Align} Align */

const OFFERED = 200;
/** A drag shorter than this is a click. */
const DRAG_PX = 6;
/** As <compare-chart> has them. */
const LEFT = 60;
const RIGHT = 26;

export class ComparePage extends HTMLElement {
  #life = new AbortController();
  #reading = new AbortController();
  #runs = h("compare-runs", { class: "card" });
  #charts = CHARTS.map(() => h("compare-chart"));
  #selection = h("span", { class: "compare-selection", hidden: true });
  #stack = h("div", { class: "compare-stack card", tabindex: 0, role: "group", "aria-label": t("compare.keys") }, ...this.#charts, this.#selection);
  #settings = h("compare-settings", { class: "card" });
  #align = h("div", { class: "segments", role: "group", "aria-label": t("compare.align") }, ...["step", "time"].map((align) => h("button", { type: "button", "data-align": align }, t(/** @type {"compare.align.step"} */ (`compare.align.${align}`)))));
  #scale = h("select", { "aria-label": t("drawing.scale") }, ...SCALE_CHOICES.map((name) => h("option", { value: name }, t(`drawing.scale.${name}`))));
  #stream = h("select", { "aria-label": t("run.stream") });
  #all = h("button", { type: "button", class: "button" }, t("range.reset"));
  #count = h("span", { class: "muted" });
  #notice = h("div", { class: "notice", role: "status" });
  /** @type {string[]} */
  #ids = [];
  /** @type {Align} */
  #by = "step";
  /** @type {[number, number] | null} */
  #range = null;
  /** @type {[number, number]} */
  #span = [0, 1];
  /** @type {number | null} */
  #at = null;
  #model = new CompareModel([], { stream: "main", range: null });

  connectedCallback() {
    this.#life = new AbortController();
    const { signal } = this.#life;
    document.title = `${t("compare.title")} · ${t("app.name")}`;
    const address = addressValues();
    this.#ids = [...new Set((address.get("runs") ?? "").split(",").map((id) => id.trim()).filter(Boolean))].slice(0, COMPARED[1]);
    this.#by = address.get("align") === "time" ? "time" : "step";
    this.#range = rangeOf(address.get("range"));
    this.#scale.value = drawingFromAddress(address).scale ?? "auto";
    this.replaceChildren(
      h("header", { class: "page-head" }, h("h1", {}, t("compare.title")), this.#count, h("div", { class: "page-tools" }, this.#all, this.#scale, this.#stream, this.#align)),
      this.#runs, this.#notice, this.#stack, this.#settings,
    );
    this.#listen(signal);
    this.#start(address.get("stream") ?? "main");
    getRuns({ sort: "-last_seen_s", limit: OFFERED }, signal).then(({ items }) => this.#runs.offer(items), () => null);
  }

  disconnectedCallback() {
    this.#life.abort();
    this.#reading.abort();
  }

  /** @param {AbortSignal} signal */
  #listen(signal) {
    this.#runs.addEventListener("runs", (event) => {
      this.#ids = /** @type {CustomEvent<string[]>} */ (event).detail;
      rememberInAddress({ runs: this.#ids.join(",") });
      this.#start(this.#model.stream);
    }, { signal });
    this.#align.addEventListener("click", (event) => {
      const align = event.target instanceof HTMLElement ? event.target.dataset.align : undefined;
      if (align) this.#alignBy(align === "time" ? "time" : "step");
    }, { signal });
    this.#stream.addEventListener("change", () => this.#start(this.#stream.value), { signal });
    this.#scale.addEventListener("change", () => {
      rememberInAddress({ y: this.#chosenScale });
      this.#draw();
    }, { signal });
    this.#all.addEventListener("click", () => this.#look(null), { signal });
    new ResizeObserver(() => this.#draw()).observe(this.#stack);
    onThemeChange(() => this.#draw(), signal);
    this.#gestures(signal);
  }

  /** Reads anew: other runs, another stream, or other steps. @param {string} stream */
  #start(stream) {
    this.#reading.abort();
    this.#reading = new AbortController();
    rememberInAddress({ stream: stream === "main" ? null : stream });
    const range = this.#by === "step" ? this.#range : null;
    const before = this.#model;
    this.#model = new CompareModel(this.#ids, { stream, range });
    [this.#model.runs, this.#model.series] = [before.runs, before.series];
    this.#model.addEventListener("change", () => this.#show(), { signal: this.#reading.signal });
    if (this.#ids.length) this.#model.start(this.#reading.signal);
    else this.#model.isLoaded = true;
    this.#show();
  }

  /** @param {Align} by */
  #alignBy(by) {
    if (by === this.#by) return;
    this.#by = by;
    rememberInAddress({ align: by === "step" ? null : by });
    this.#look(null);
  }

  /** @param {[number, number] | null} range */
  #look(range) {
    this.#range = range;
    rememberInAddress({ range: range ? range.map(Math.round).join("-") : null });
    this.#start(this.#model.stream);
  }

  #show() {
    const { runs, missing, problem, isLoaded, stream } = this.#model;
    setText(this.#count, runs.length ? counted(runs.length, t("runs.run"), t("runs.runs")) : "");
    this.#runs.show(runs, this.#ids, this.#model);
    this.#stack.hidden = !runs.length;
    this.#settings.hidden = runs.length < 2;
    if (runs.length > 1) this.#settings.show(runs);
    this.#all.hidden = !this.#range;
    for (const button of this.#align.querySelectorAll("button")) button.setAttribute("aria-pressed", String(button.dataset.align === this.#by));
    const streams = [...new Set(["main", stream, ...runs.flatMap((run) => run.streams)])];
    this.#stream.hidden = streams.length < 2;
    this.#stream.replaceChildren(...streams.map((name) => h("option", { value: name }, name)));
    this.#stream.value = stream;
    this.#notify(missing, problem, isLoaded);
    this.#draw();
  }

  /** @param {{runId: string, reason: string}[]} missing @param {string | null} problem @param {boolean} isLoaded */
  #notify(missing, problem, isLoaded) {
    const lines = missing.map(({ reason }) => h("p", {}, reason));
    if (problem) {
      const retry = h("button", { type: "button", class: "button" }, t("retry"));
      retry.addEventListener("click", () => this.#model.read());
      lines.push(h("p", {}, h("strong", {}, t("compare.error")), ` ${problem} `, retry));
    } else if (!isLoaded) lines.push(h("p", {}, t("compare.loading")));
    else if (this.#ids.length - missing.length < COMPARED[0]) lines.push(h("p", {}, t("compare.few")));
    this.#notice.hidden = !lines.length;
    this.#notice.replaceChildren(...lines);
  }

  /** Null draws each chart on its natural one. */
  get #chosenScale() {
    return SCALES.find((name) => name === this.#scale.value) ?? null;
  }

  #draw() {
    const { runs, series } = this.#model;
    if (!this.isConnected || !series.length) return;
    const names = runs.map(({ name }) => name);
    const charts = CHARTS.map((chart) => ({
      ...chart,
      log: isLog(chart, this.#chosenScale),
      curves: curvesOf(series, chart.column, chart.limit, this.#by),
      marks: chart.name === "norm" ? marksOf(series, this.#by) : [],
    }));
    const drawn = charts.filter(({ curves, name }) => curves.length || name === "norm");
    const last = drawn.at(-1);
    this.#span = this.#range ?? spanOf(charts.flatMap(({ curves }) => curves)) ?? [0, 1];
    const ticks = this.#ticks();
    charts.forEach((chart, i) => {
      this.#charts[i].hidden = !drawn.includes(chart);
      this.#charts[i].classList.toggle("has-axis", chart === last);
      if (drawn.includes(chart)) this.#charts[i].show({ ...chart, span: this.#span, ticks, names, last: chart === last });
    });
    this.#cross(this.#at);
  }

  #ticks() {
    const count = Math.max(2, Math.floor(this.#stack.clientWidth / 110));
    const { values, spacing } = linearValues(this.#span[0], this.#span[1], count, this.#by === "step");
    return { values, labels: values.map((value) => (this.#by === "step" ? stepLabel(value, spacing) : duration(value))) };
  }

  /** @param {number | null} x */
  #cross(x) {
    this.#at = x;
    for (const chart of this.#charts) if (!chart.hidden) chart.cross(x);
  }

  /** Dragging zooms, a double click shows all, the arrows move the cross-hair. @param {AbortSignal} signal */
  #gestures(signal) {
    const stack = this.#stack;
    let from = NaN;
    const place = (/** @type {PointerEvent} */ event) => event.clientX - stack.getBoundingClientRect().left - stack.clientLeft;
    stack.addEventListener("pointerdown", (event) => {
      if (event.button || event.pointerType === "touch") return;
      from = place(event);
      stack.setPointerCapture(event.pointerId);
    }, { signal });
    stack.addEventListener("pointermove", (event) => {
      const at = place(event);
      this.#cross(this.#valueAt(at));
      this.#selection.hidden = !(Math.abs(at - from) > DRAG_PX);
      if (this.#selection.hidden) return;
      this.#selection.style.left = `${Math.min(at, from)}px`;
      this.#selection.style.width = `${Math.abs(at - from)}px`;
    }, { signal });
    stack.addEventListener("pointerup", (event) => {
      const [a, b] = [this.#valueAt(from), this.#valueAt(place(event))].sort((one, other) => one - other);
      if (!this.#selection.hidden && Math.round(b) > Math.round(a)) this.#look([Math.max(0, Math.round(a)), Math.round(b)]);
      this.#selection.hidden = true;
      from = NaN;
    }, { signal });
    stack.addEventListener("pointerleave", () => this.#cross(null), { signal });
    stack.addEventListener("dblclick", () => this.#look(null), { signal });
    stack.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (by) this.#cross(Math.min(this.#span[1], Math.max(this.#span[0], (this.#at ?? this.#span[0]) + (by * (this.#span[1] - this.#span[0])) / 100)));
      else if (event.key === "0") this.#look(null);
      else if (event.key === "Escape") this.#cross(null);
      else return;
      event.preventDefault();
    }, { signal });
  }

  /** @param {number} px from the stack's left edge */
  #valueAt(px) {
    const share = (px - LEFT) / (this.#stack.clientWidth - LEFT - RIGHT);
    return this.#span[0] + Math.min(1, Math.max(0, share)) * (this.#span[1] - this.#span[0]);
  }
}

/** @param {string | null} text `100-200` @returns {[number, number] | null} */
function rangeOf(text) {
  const match = /^(\d{1,15})-(\d{1,15})$/.exec(text ?? "");
  const range = match && [Number(match[1]), Number(match[2])];
  return range && range[1] > range[0] ? /** @type {[number, number]} */ (range) : null;
}

export const registerComparePage = () => customElements.define("compare-page", ComparePage);
