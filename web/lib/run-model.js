/** One run as its page shows it: facts and figures read once, then grown by the live stream. */

import { ApiError, getFigure, getRun } from "./api.js";
import { everySecond, serverNow } from "./clock.js";
import { NATURAL } from "./drawing.js";
import { extendFigure } from "./figure-growth.js";
import { decodeFigure, hasValues, lastStep, layerFigure, layerOf, metricFigures, metricOf, READ } from "./figures.js";
import { countIn } from "./step-counts.js";
import { stream } from "./stream.js";
import { rangeToRead, stepsOnScreen } from "./view.js";

/** Appended live steps after which a figure is read again: buckets draw faster than single steps. */
const MOST_APPENDED = 2_000;
const READ_AGAIN_MS = 1_000;
const MOST_LAYERS = 6;
const TROUBLE_MS = 5_000;
/** A tick brings the layers of its last step only: the map is completed now and then, not by each viewer each second. */
const COMPLETE_MAP_MS = 15_000;
/** Ticks bring no metrics of the user's own. */
const METRICS_AGAIN_MS = 15_000;
/** A quiet run is asked about again: silence comes without a message. */
const QUIET_S = 20;
const ASK_AGAIN_S = 10;

/**
 * Events: `facts` (state, counts, streams), `figures` (what the charts draw), `view` (which steps, and how), `tick` (steps that came
 * in on screen), `alert` (one that was opened, repeated or resolved), `gone` (deleted), `noattempt` (all are shown instead).
 */
export class RunModel extends EventTarget {
  /** @type {RunDetail | null} */
  detail = null;
  /** @type {ApiError | null} why there is no detail */
  problem = null;
  deleted = false;
  /** @type {Map<FigureName, Figure>} */
  figures = new Map();
  /** @type {Map<FigureName, string>} */
  figureProblems = new Map();
  /** Those shown one by one, the newest last. @type {string[]} */
  layers = [];
  /** @type {Drawing} */
  drawing = NATURAL;

  #signal = new AbortController().signal;
  #reading = new AbortController();
  #generation = 0;
  /** @type {{position: number, tick: Tick}[]} ticks since the read under way began: its figures may not hold them */
  #pending = [];
  #numReads = 0;
  #coveredFrom = 0;
  #isWatching = false;
  /** @type {{position: number, summary: RunSummary} | null} */
  #newest = null;
  #asked_s = 0;
  /** @type {Set<FigureName>} */
  #wanted = new Set();
  #timer = 0;
  #troubleTimer = 0;
  #readAt_ms = 0;
  #metricsAt_ms = 0;
  #metricsTimer = 0;

  /**
   * @param {string} runId
   * @param {{stream: string | null, attempt: number | null, view: View, drawing: Drawing, layers: string[]}} selection
   */
  constructor(runId, { stream, attempt, view, drawing, layers }) {
    super();
    this.runId = runId;
    this.chosenStream = stream;
    this.attempt = attempt;
    this.view = view;
    this.drawing = drawing;
    this.layers = [...new Set(layers)].slice(-MOST_LAYERS);
  }

  /** @param {AbortSignal} signal ends everything this model does */
  async start(signal) {
    this.#signal = signal;
    signal.addEventListener("abort", () => {
      this.#reading.abort();
      clearTimeout(this.#timer);
      clearTimeout(this.#troubleTimer);
      clearTimeout(this.#metricsTimer);
    });
    everySecond(() => this.#askIfQuiet(), signal);
    await this.retry();
    if (!this.detail && !signal.aborted) stream().watchRuns((message) => this.#hearWithoutDetail(message), signal);
  }

  /** Until the run is there: the server may come back, the run may be made. @param {FromHub} message */
  #hearWithoutDetail(message) {
    if (this.detail || !this.problem) return;
    const isMade = message.kind === "event" && message.event === "run" && message.run_id === this.runId;
    if (isMade || (message.kind === "hello" && this.problem.status !== 422)) this.retry();
  }

  /** The stream on screen. */
  get stream() {
    const names = this.detail?.streams ?? [];
    if (this.chosenStream && names.includes(this.chosenStream)) return this.chosenStream;
    return names.includes("main") ? "main" : (names[0] ?? "main");
  }

  /** Counts and newest values of the stream on screen. */
  get facts() {
    if (!this.detail) return null;
    return this.detail.streams.length > 1 ? (this.detail.streams_detail[this.stream] ?? this.detail) : this.detail;
  }

  /** What the hook said of the stream on screen. @returns {StreamRecord} */
  get record() {
    return this.detail?.streams_detail[this.stream]?.record ?? {};
  }

  get hasSteps() {
    return this.figures.size > 0 || (this.facts?.num_steps ?? 0) > 0;
  }

  /** First and last step on screen. */
  get shown() {
    const known = [...this.figures.values()];
    const oldest = Math.min(...known.map((figure) => figure.first_step ?? Infinity));
    const newest = Math.max(...known.map(lastStep), 0);
    return stepsOnScreen(this.view, Number.isFinite(oldest) ? oldest : 0, newest);
  }

  async readDetail() {
    this.#asked_s = serverNow();
    try {
      this.detail = await getRun(this.runId, this.#signal);
      this.problem = null;
      // The answer may be older than what was heard while it was on its way.
      if (this.#newest && this.#newest.position > this.detail.position) this.detail = { ...this.detail, ...this.#newest.summary };
      this.#watch(this.detail);
      const known = this.detail.attempts.map(({ number }) => number);
      if (this.attempt !== null && !known.includes(this.attempt)) {
        this.attempt = null;
        this.#say("noattempt");
      }
    } catch (error) {
      if (this.#signal.aborted) return;
      this.problem = error instanceof ApiError ? error : new ApiError(String(error), 0);
    }
    this.#say("facts");
  }

  /** Only a run that is there: one bad id would spoil the connection of all tabs. @param {RunDetail} detail */
  #watch({ id, position }) {
    if (this.#isWatching) return;
    this.#isWatching = true;
    this.runId = id;
    stream().watchRun(id, position, (message) => this.#hear(message), this.#signal);
  }

  /** Shows a layer by itself, or no longer. @param {string} layer @param {boolean} shown */
  showLayer(layer, shown) {
    this.layers = this.layers.filter((name) => name !== layer);
    if (shown) this.layers = [...this.layers, layer].slice(-MOST_LAYERS);
    else this.figureProblems.delete(layerFigure(layer));
    for (const name of this.figures.keys()) {
      const of = layerOf(name);
      if (of !== null && !this.layers.includes(of)) this.figures.delete(name);
    }
    this.#say("figures");
    if (shown) this.#readFigures([layerFigure(layer)]);
  }

  get #names() {
    return [...READ, ...this.layers.map(layerFigure)];
  }

  /** Those the user sent, as charts. @returns {FigureName[]} */
  get metrics() {
    return [...this.figures.keys()].filter((name) => metricOf(name) !== null);
  }

  /** The attempts on screen, by step. */
  get launches() {
    return this.figures.get("norm")?.launches ?? this.figures.get("loss")?.launches ?? [];
  }

  /** @param {Drawing} drawing */
  setDrawing(drawing) {
    this.drawing = drawing;
    this.#say("view");
  }

  /** @param {View} view */
  setView(view) {
    this.view = view;
    this.#say("view");
    this.#readFigures(this.#names);
  }

  /** @param {{stream?: string, attempt?: number | null}} selection */
  select({ stream, attempt }) {
    if (stream !== undefined) this.chosenStream = stream;
    if (attempt !== undefined) this.attempt = attempt;
    this.figures.clear();
    this.layers = [];
    this.#say("facts");
    this.#say("figures");
    this.#readFigures(this.#names);
  }

  /** Reads all, at first and after an error. */
  async retry() {
    await this.readDetail();
    this.#readFigures(this.#names);
  }

  /** @param {readonly FigureName[]} names */
  async #readFigures(names) {
    clearTimeout(this.#timer);
    this.#wanted.clear();
    if (!this.detail || !this.hasSteps || this.#signal.aborted) return;
    this.#readAt_ms = Date.now();
    if (READ.every((name) => names.includes(name))) {
      // A whole read makes those under way idle; a read of one chart must not end theirs.
      this.#reading.abort();
      this.#reading = new AbortController();
      this.#generation++;
      this.#numReads = 0;
      this.#pending = [];
    }
    const generation = this.#generation;
    this.#numReads++;
    await Promise.all(names.map((name) => this.#readFigure(name, generation)));
    if (generation === this.#generation && --this.#numReads === 0) this.#pending = [];
  }

  /** @param {FigureName} name @param {number} generation */
  async #readFigure(name, generation) {
    const query = {
      stream: this.stream,
      attempt: this.attempt,
      ...rangeToRead(this.view, this.facts?.last_step ?? null),
    };
    try {
      const layer = layerOf(name);
      const encoded = await getFigure(this.runId, layer === null ? name : "layer", { ...query, layer }, this.#reading.signal);
      if (generation !== this.#generation || this.#signal.aborted || (layer !== null && !this.layers.includes(layer))) return;
      this.figureProblems.delete(name);
      if (name === "metrics") {
        this.#keepMetrics(encoded);
        return;
      }
      const figure = decodeFigure(name, encoded);
      this.figures.set(name, figure);
      if (figure.position < this.#coveredFrom) this.#readSoon([name]);
      for (const { position, tick } of this.#pending) this.#extend(figure, position, tick);
    } catch (error) {
      if (generation !== this.#generation || this.#signal.aborted) return;
      this.figureProblems.set(name, error instanceof Error ? error.message : String(error));
      // A layer that is not there, say of an old link, does not come by asking again.
      if (!(error instanceof ApiError && error.status === 422)) this.#readAfterTrouble();
    }
    this.#say("figures");
  }

  /** @param {EncodedFigure} encoded */
  #keepMetrics(encoded) {
    this.#metricsAt_ms = Date.now();
    for (const name of this.metrics) this.figures.delete(name);
    for (const figure of metricFigures(encoded)) this.figures.set(figure.name, figure);
    this.#say("figures");
  }

  /** Now and then once they have been read, however often the run changes. */
  #readMetricsAgain() {
    if (this.#metricsTimer || !this.#metricsAt_ms) return;
    const wait_ms = Math.max(0, this.#metricsAt_ms + METRICS_AGAIN_MS - Date.now());
    this.#metricsTimer = window.setTimeout(() => {
      this.#metricsTimer = 0;
      this.#metricsAt_ms = Date.now();
      this.#readSoon(["metrics"]);
    }, wait_ms);
  }

  #readAfterTrouble() {
    clearTimeout(this.#troubleTimer);
    this.#troubleTimer = window.setTimeout(() => this.#readSoon([...this.figureProblems.keys()]), TROUBLE_MS);
  }

  /** Reads again, at most once a second, all that was asked for until then. @param {readonly FigureName[]} names */
  #readSoon(names) {
    for (const name of names) this.#wanted.add(name);
    clearTimeout(this.#timer);
    const wait_ms = Math.max(0, this.#readAt_ms + READ_AGAIN_MS - Date.now());
    this.#timer = window.setTimeout(() => this.#readFigures([...this.#wanted]), wait_ms);
  }

  /** @param {FromHub} message */
  #hear(message) {
    if (message.kind === "hello") this.#heardHello();
    if (message.kind === "covered" && message.runs.includes(this.runId)) this.#heardCovered(message.position);
    if (message.kind !== "event") return;
    if (message.event === "tick") this.#heardTick(message.position, message.payload);
    if (message.event === "run") {
      this.#heardSummary(message.position, message.payload);
      this.#readMetricsAgain();
    }
    if (message.event === "alert") this.dispatchEvent(new CustomEvent("alert", { detail: message.payload }));
    if (message.event === "stale") this.#heardStale();
    if (message.event === "deleted") {
      this.deleted = true;
      this.#say("gone");
    }
  }

  #heardHello() {
    if (this.figureProblems.size) this.#readSoon([...this.figureProblems.keys()]);
  }

  /** @param {number} position */
  #heardCovered(position) {
    this.#coveredFrom = position;
    if ([...this.figures.values()].some((figure) => figure.position < position)) this.#heardStale();
  }

  async #heardStale() {
    await this.readDetail();
    this.#readSoon(this.#names);
  }

  /** @param {number} position @param {RunSummary} summary */
  #heardSummary(position, summary) {
    this.#newest = { position, summary };
    if (!this.detail) return;
    const before = this.detail;
    const firstSteps = !this.hasSteps && summary.num_steps > 0;
    this.detail = { ...before, ...summary };
    if (firstSteps || summary.streams.length !== before.streams.length || summary.status !== before.status) this.#heardStale();
    this.#say("facts");
  }

  /** @param {number} position @param {Tick} tick */
  #heardTick(position, tick) {
    if (!this.detail) return;
    this.#count(position, tick);
    this.#heardSummary(position, tick.summary);
    if (tick.attempt > Math.max(0, ...this.detail.attempts.map((attempt) => attempt.number))) this.#heardStale();
    if (tick.stream !== this.stream || (this.attempt !== null && tick.attempt !== this.attempt)) return;
    if (!this.view.follow && this.view.last === null) return;
    if (this.#numReads) this.#pending.push({ position, tick });
    for (const figure of this.figures.values()) this.#extend(figure, position, tick);
    this.#readMetricsAgain();
    this.dispatchEvent(new CustomEvent("tick", { detail: { position, tick } }));
    this.#say("figures");
  }

  /** @param {Figure} figure @param {number} position @param {Tick} tick */
  #extend(figure, position, tick) {
    if (position <= figure.position) return;
    figure.position = position;
    const grown = extendFigure(figure, tick, this.view.last ?? Infinity);
    const incomplete = figure.num_missed > 0 && Date.now() - this.#readAt_ms > COMPLETE_MAP_MS;
    if (!grown || figure.num_appended > MOST_APPENDED || incomplete) this.#readSoon([figure.name]);
  }

  /** Where there are several streams the summary's counts are sums: each stream is counted here. @param {number} position @param {Tick} tick */
  #count(position, tick) {
    const facts = this.detail?.streams_detail[tick.stream];
    if (!facts || !this.detail || position <= this.detail.position) return;
    this.detail.position = position;
    countIn(facts, tick.steps);
  }

  #askIfQuiet() {
    const { detail } = this;
    const now_s = serverNow();
    if (!detail || now_s - this.#asked_s < ASK_AGAIN_S || !stream().connected) return;
    const alive = detail.state === "running" || detail.state === "stalled";
    if (alive && now_s - detail.last_seen_s > QUIET_S) this.readDetail();
  }

  /** @param {"facts" | "figures" | "view" | "gone" | "noattempt"} what */
  #say(what) {
    if (!this.#signal.aborted) this.dispatchEvent(new Event(what));
  }

  /** Whether the figure of this name has something to draw. @param {FigureName} name */
  draws(name) {
    const figure = this.figures.get(name);
    return figure !== undefined && hasValues(figure);
  }
}
