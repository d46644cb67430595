/** The step somebody wants to see everything of: read from the server, and of a point of many steps the one that matters. */

import { ApiError, getSeries, getStep } from "./api.js";

/** Events: `step`. */
export class StepModel extends EventTarget {
  /** @type {number | null} null where none is looked at */
  step = null;
  /** @type {StepDetail | null} */
  detail = null;
  /** @type {string | null} why there is none */
  problem = null;
  /** The steps of the point it was chosen from. @type {[number, number] | null} */
  among = null;

  #run;
  #signal;
  #reading = new AbortController();

  /** @param {import("./run-model.js").RunModel} run @param {AbortSignal} signal */
  constructor(run, signal) {
    super();
    this.#run = run;
    this.#signal = signal;
    signal.addEventListener("abort", () => this.#reading.abort());
  }

  close() {
    this.#reading.abort();
    this.step = this.detail = this.problem = this.among = null;
    this.#say();
  }

  /** Looks at a step, or at the one that stands out among several. @param {number} first @param {number} [last] */
  async open(first, last = first) {
    this.#reading.abort();
    const reading = (this.#reading = new AbortController());
    this.among = last > first ? [first, last] : null;
    this.detail = this.problem = null;
    this.step = first;
    this.#say();
    try {
      const step = last > first ? await this.#outstanding(first, last, reading.signal) : first;
      this.step = step;
      const { stream, attempt } = this.#run;
      const detail = await getStep(this.#run.runId, step, { stream, attempt }, reading.signal);
      if (!reading.signal.aborted) this.detail = detail;
    } catch (error) {
      if (reading.signal.aborted || this.#signal.aborted) return;
      this.problem = error instanceof ApiError ? error.message : String(error);
    }
    if (!reading.signal.aborted) this.#say();
  }

  /** The recorded step next to the one shown. @param {-1 | 1} direction */
  async neighbour(direction) {
    if (this.step === null) return;
    const [first, last] = direction < 0 ? [Math.max(0, this.step - NEAR), this.step - 1] : [this.step + 1, this.step + NEAR];
    if (last < first) return;
    const near = await this.#read(first, last, this.#reading.signal).catch(() => null);
    const found = direction < 0 ? near?.step.at(-1) : near?.step[0];
    await this.open(found ?? this.step + direction);
  }

  /** Not finite before skipped before the largest norm. @param {number} first @param {number} last @param {AbortSignal} signal */
  async #outstanding(first, last, signal) {
    const found = await this.#read(first, last, signal);
    const { max, num_nonfinite } = found.columns.grad_norm_before_clip;
    const odd = num_nonfinite.findIndex(Boolean);
    if (odd >= 0) return found.step[odd];
    const skipped = found.num_skipped.findIndex(Boolean);
    if (skipped >= 0) return found.step[skipped];
    const norms = max.map((norm) => norm ?? -1);
    const largest = norms.indexOf(Math.max(...norms));
    return found.step[largest] ?? first;
  }

  /** @param {number} first @param {number} last @param {AbortSignal} signal */
  #read(first, last, signal) {
    const { stream, attempt } = this.#run;
    return getSeries(this.#run.runId, { columns: "grad_norm_before_clip", stream, attempt, first_step: first, last_step: last, points: POINTS }, signal);
  }

  #say() {
    if (!this.#signal.aborted) this.dispatchEvent(new Event("step"));
  }
}

const POINTS = 10_000;
/** Where no step is recorded within so many, the next number is as good. */
const NEAR = 2_000;
