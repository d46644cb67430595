/** The what-if: a threshold somebody tries, and what the server says it would have done to the norms on screen. */

import { getFigure, getWhatIf } from "./api.js";
import { addNorm, decodeHistogram, quantile, shareAbove } from "./histogram.js";
import { thresholdOf } from "./scales.js";
import { isZoomed, rangeToRead } from "./view.js";

/** A line that is being dragged asks only once it rests. */
const REST_MS = 180;
/** While steps come in the answers are read again at most so often. */
const READ_AGAIN_MS = 10_000;

/** @typedef {{clip: string, value: WhatIf | null, problem: string | null}} Answer */

/** Events: `histogram`, `trial` (the line has moved), `answers` (the server has said something). */
export class WhatIfModel extends EventTarget {
  /** @type {import("./histogram.js").Histogram | null} */
  histogram = null;
  /** The threshold that is tried; null shows the one in force. @type {number | null} */
  trial = null;
  /** About the threshold in force and about the one that is tried. @type {{inForce: Answer | null, trial: Answer | null}} */
  answers = { inForce: null, trial: null };

  #run;
  #verdicts;
  #signal = new AbortController().signal;
  #reading = new AbortController();
  #asking = new AbortController();
  #restTimer = 0;
  #timer = 0;
  #readAt_ms = 0;
  /** What the histogram and the answers on hand were read for. */
  #shown = "";
  #numSteps = 0;
  /** The threshold in force that was asked about. @type {number | null} */
  #asked = null;
  #isRead = false;
  #isOutgrown = false;

  /** @param {import("./run-model.js").RunModel} run @param {import("./verdict-model.js").VerdictModel} verdicts */
  constructor(run, verdicts) {
    super();
    this.#run = run;
    this.#verdicts = verdicts;
  }

  /** @param {AbortSignal} signal */
  start(signal) {
    this.#signal = signal;
    signal.addEventListener("abort", () => {
      this.#reading.abort();
      this.#asking.abort();
      clearTimeout(this.#restTimer);
      clearTimeout(this.#timer);
    });
    for (const what of ["figures", "facts", "view"]) this.#run.addEventListener(what, () => this.#consider(), { signal });
    this.#run.addEventListener("tick", (event) => this.#heardTick(/** @type {CustomEvent<{position: number, tick: Tick}>} */ (event).detail), { signal });
    this.#verdicts.addEventListener("diagnosis", () => this.#askTrialSoon(), { signal });
    document.addEventListener("visibilitychange", () => this.#consider(), { signal });
    this.#consider();
  }

  /** Whose norms these are. */
  get run() {
    return this.#run;
  }

  /** Whether there are no norms to speak of, as far as is known. */
  get isWithout() {
    const { figures, figureProblems } = this.#run;
    return this.#isRead ? !this.histogram : !figures.has("norm") && figureProblems.has("norm");
  }

  /** The threshold in force at the newest step on screen. */
  get inForce() {
    if (!this.#isElsewhere) return this.#run.facts?.last.max_norm ?? null;
    const figure = this.#run.figures.get("norm");
    const threshold = figure ? thresholdOf(figure, this.#run.shown) : null;
    // A point's mean of one value said often is that value but for its last digits.
    return threshold && Number(threshold.toPrecision(9));
  }

  /** Whether the newest step on screen may not be the run's newest. */
  get #isElsewhere() {
    return isZoomed(this.#run.view) || this.#run.attempt !== null;
  }

  /** The policy, where the threshold in force moves by itself: what is said of it is not of one line. */
  get #movingPolicy() {
    const { policy } = this.#run.record;
    return policy && /^global_norm\(.*\(/.test(policy) ? policy : null;
  }

  /** Whether the answer is about a threshold that moves, not about where the line stands. */
  get isMoving() {
    return !this.isTrial && this.#movingPolicy !== null;
  }

  /** Of the newest steps on screen; where those are the run's, as its verdict says it. */
  get recommended() {
    const { view } = this.#run;
    const isWhole = view.first === null && view.width === null && this.#verdicts.isCurrent;
    return isWhole ? (this.#verdicts.diagnosis?.clipping.recommended_max_norm ?? null) : (this.histogram?.recommended ?? null);
  }

  /** Where the line stands: at the threshold that is tried or in force. */
  get line() {
    return this.trial ?? this.inForce ?? this.#suggested;
  }

  /** Where nothing is in force: in the recommended range, or where a tenth is above. */
  get #suggested() {
    const { recommended, histogram } = this;
    if (recommended) return short(Math.sqrt(recommended.low * recommended.high));
    return histogram && short(quantile(histogram, 0.9));
  }

  /** Whether the line stands elsewhere than the threshold in force. */
  get isTrial() {
    return this.trial !== null || this.inForce === null;
  }

  /** What the server says of the line, null until it has answered. */
  get answer() {
    const { trial, inForce } = this.answers;
    if (!this.isTrial) return inForce;
    return trial?.clip === String(this.line) ? trial : null;
  }

  /** The share of norms above the line: by the server, or until it has answered by the histogram. */
  get share() {
    const { line, histogram } = this;
    const told = this.answer?.value?.clip_fraction;
    if (told !== undefined && told !== null) return told;
    return line === null || !histogram ? null : shareAbove(histogram, line);
  }

  /** @param {number | null} threshold */
  try(threshold) {
    if (threshold === this.trial) return;
    this.trial = threshold;
    this.dispatchEvent(new Event("trial"));
    this.#asking.abort();
    this.#askTrialSoon();
  }

  #askTrialSoon() {
    clearTimeout(this.#restTimer);
    // Before the run is read nobody knows of which stream.
    if (this.#run.detail && this.isTrial && !this.answer) this.#restTimer = window.setTimeout(() => this.#askTrial(), REST_MS);
  }

  /** Another stream or range is read at once; while steps come in, the answers are asked for again now and then. */
  #consider() {
    const { view, facts, stream, attempt, figures } = this.#run;
    // A browser asks six things at once: the verdict and the norm chart come first.
    if (document.hidden || !facts || !figures.has("norm") || this.#signal.aborted) return;
    const shown = JSON.stringify([stream, attempt, view]);
    if (shown !== this.#shown) {
      this.#shown = shown;
      this.histogram = null;
      this.#isRead = false;
      this.answers = { inForce: null, trial: null };
      this.#read();
    } else if (this.#isElsewhere && this.inForce !== this.#asked) {
      // The chart of other steps has come, and with it the threshold at them.
      this.#askInForce();
    } else if (facts.num_steps !== this.#numSteps && !this.#timer) {
      const wait_ms = Math.max(0, this.#readAt_ms + READ_AGAIN_MS - Date.now());
      this.#timer = window.setTimeout(() => this.#readAgain(), wait_ms);
    }
  }

  #readAgain() {
    this.#timer = 0;
    if (!document.hidden && !this.#signal.aborted) this.#read();
  }

  #read() {
    clearTimeout(this.#timer);
    this.#timer = 0;
    this.#numSteps = this.#run.facts?.num_steps ?? 0;
    this.#readAt_ms = Date.now();
    this.#reading.abort();
    this.#reading = new AbortController();
    this.#askInForce();
    this.#askTrial();
    if (!this.histogram || this.#isOutgrown) this.#readHistogram(this.#reading.signal);
  }

  /** @param {AbortSignal} signal */
  async #readHistogram(signal) {
    const { stream, attempt } = this.#run;
    try {
      const figure = await getFigure(this.#run.runId, "histogram", { stream, attempt, ...this.#range }, signal);
      if (signal.aborted) return;
      this.histogram = decodeHistogram(figure);
      this.#isRead = true;
      this.#isOutgrown = false;
    } catch {
      if (signal.aborted) return;
      // The charts say that the server does not answer; the line can be used without.
      this.#timer ||= window.setTimeout(() => this.#readAgain(), READ_AGAIN_MS);
    }
    this.#askTrialSoon();
    this.dispatchEvent(new Event("histogram"));
  }

  /** @param {{position: number, tick: Tick}} heard */
  #heardTick({ position, tick }) {
    const { histogram } = this;
    if (!histogram || position <= histogram.position) return;
    histogram.position = position;
    for (const norm of tick.steps.grad_norm_before_clip ?? []) {
      if (typeof norm === "number" && !addNorm(histogram, norm)) this.#isOutgrown = true;
    }
    this.dispatchEvent(new Event("histogram"));
  }

  get #range() {
    return rangeToRead(this.#run.view, this.#run.facts?.last_step ?? null);
  }

  async #askInForce() {
    // A moving threshold is replayed as it moves; a fixed one may have been changed since it was written down.
    const clip = this.#movingPolicy ?? (this.inForce === null ? null : String(this.inForce));
    this.#asked = this.inForce;
    if (clip === null) return;
    const answer = await this.#ask(clip, this.#reading.signal);
    if (!answer) return;
    this.answers.inForce = answer;
    this.dispatchEvent(new Event("answers"));
  }

  async #askTrial() {
    const { line } = this;
    if (!this.isTrial || line === null) return;
    this.#asking.abort();
    this.#asking = new AbortController();
    const answer = await this.#ask(String(line), this.#asking.signal);
    if (!answer) return;
    this.answers.trial = answer;
    this.dispatchEvent(new Event("answers"));
  }

  /** @param {string} clip @param {AbortSignal} signal @returns {Promise<Answer | null>} null where it is no longer wanted */
  async #ask(clip, signal) {
    const { stream, attempt } = this.#run;
    try {
      const value = await getWhatIf(this.#run.runId, { clip, stream, attempt, ...this.#range }, signal);
      return signal.aborted ? null : { clip, value, problem: null };
    } catch (error) {
      if (signal.aborted || this.#signal.aborted) return null;
      return { clip, value: null, problem: error instanceof Error ? error.message : String(error) };
    }
  }
}

/** @param {number} value three digits are as many as a person will type */
function short(value) {
  return Number(value.toPrecision(3));
}
