/** What the diagnosis says of a run's stream, and the run's events and alerts: read once, then again as the run moves on. */

import { readCounts } from "./attempt-counts.js";
import { getDiagnosis, getEvents, getRunAlerts } from "./api.js";

/** While steps come in the diagnosis is read again at most so often; a verdict that changed is read at once. */
const READ_AGAIN_MS = 5_000;
const CHANGED_MS = 500;
const TROUBLE_MS = 5_000;

/** Events: `diagnosis`, `counts`, `events`. */
export class VerdictModel extends EventTarget {
  /** @type {Diagnosis | null} */
  diagnosis = null;
  /** Where there are several attempts, those of the diagnosis. @type {import("./attempt-counts.js").AttemptCounts | null} */
  counts = null;
  /** @type {string | null} why there is none */
  problem = null;
  /** @type {RunEvent[]} the newest first */
  events = [];
  /** @type {RunAlert[]} the newest first */
  alerts = [];

  #run;
  #signal = new AbortController().signal;
  #reading = new AbortController();
  /** What the diagnosis on hand was read for. */
  #shown = "";
  #verdict = "";
  #numSteps = -1;
  #story = "";
  #readAt_ms = 0;
  #timer = 0;

  /** @param {import("./run-model.js").RunModel} run */
  constructor(run) {
    super();
    this.#run = run;
  }

  /** @param {AbortSignal} signal ends everything this model does */
  start(signal) {
    this.#signal = signal;
    signal.addEventListener("abort", () => {
      this.#reading.abort();
      clearTimeout(this.#timer);
    });
    this.#run.addEventListener("facts", () => this.#consider(), { signal });
    this.#run.addEventListener("alert", (event) => this.#heardAlert(/** @type {CustomEvent<RunAlert>} */ (event).detail), { signal });
    document.addEventListener("visibilitychange", () => this.#consider(), { signal });
    this.#consider();
  }

  /** Whether the diagnosis on hand is of the stream and attempt on screen. */
  get isCurrent() {
    return this.diagnosis !== null && this.#shown === this.#wanted;
  }

  get #wanted() {
    return JSON.stringify([this.#run.stream, this.#run.attempt]);
  }

  retry() {
    this.#readAt_ms = 0;
    this.#numSteps = -1;
    this.#consider();
  }

  #consider() {
    const { detail, facts } = this.#run;
    if (!detail || !facts || document.hidden || this.#signal.aborted) return;
    this.#considerEvents(detail);
    if (!facts.num_steps) return;
    if (this.#wanted !== this.#shown) {
      this.diagnosis = this.counts = null;
      this.#read();
    } else if (JSON.stringify(detail.verdict) !== this.#verdict) this.#readIn(CHANGED_MS);
    else if (facts.num_steps !== this.#numSteps) this.#readIn(this.problem ? TROUBLE_MS : READ_AGAIN_MS);
  }

  /** @param {number} least_ms between two reads */
  #readIn(least_ms) {
    clearTimeout(this.#timer);
    const wait_ms = Math.max(0, this.#readAt_ms + least_ms - Date.now());
    this.#timer = window.setTimeout(() => !document.hidden && this.#read(), wait_ms);
  }

  async #read() {
    clearTimeout(this.#timer);
    this.#reading.abort();
    this.#reading = new AbortController();
    const { signal } = this.#reading;
    this.#shown = this.#wanted;
    this.#verdict = JSON.stringify(this.#run.detail?.verdict);
    this.#numSteps = this.#run.facts?.num_steps ?? 0;
    this.#readAt_ms = Date.now();
    try {
      const diagnosis = await getDiagnosis(this.#run.runId, { stream: this.#run.stream, attempt: this.#run.attempt }, signal);
      if (signal.aborted) return;
      this.diagnosis = diagnosis;
      this.problem = null;
      this.#readCounts(diagnosis, signal);
    } catch (error) {
      if (signal.aborted || this.#signal.aborted) return;
      this.problem = error instanceof Error ? error.message : String(error);
      this.#numSteps = -1;
      this.#readIn(TROUBLE_MS);
    }
    this.dispatchEvent(new Event("diagnosis"));
  }

  /** @param {Diagnosis} diagnosis @param {AbortSignal} signal */
  async #readCounts(diagnosis, signal) {
    const { runId, stream, attempt, detail } = this.#run;
    const numAttempts = detail?.attempts.length ?? 0;
    if (attempt === null && numAttempts < 2) return;
    // What an older attempt holds stays as it is.
    if (this.counts && attempt !== null && attempt < numAttempts) return;
    try {
      const counts = await readCounts(runId, { stream, attempt }, diagnosis, signal);
      if (signal.aborted) return;
      this.counts = counts;
      this.dispatchEvent(new Event("counts"));
    } catch {
      // They are read again with the next diagnosis.
    }
  }

  /** @param {RunAlert} alert as it is now */
  #heardAlert(alert) {
    this.alerts = [alert, ...this.alerts.filter(({ id }) => id !== alert.id)];
    this.dispatchEvent(new Event("events"));
  }

  /** Events are rare: they are read when a verdict, the run's status or its attempts have changed. @param {RunDetail} detail */
  #considerEvents(detail) {
    const story = JSON.stringify([detail.verdict, detail.status, detail.attempts.length]);
    if (story === this.#story) return;
    this.#story = story;
    this.#readEvents();
  }

  async #readEvents() {
    try {
      const [events, alerts] = await Promise.all([
        getEvents(this.#run.runId, this.#signal),
        getRunAlerts(this.#run.runId, this.#signal).catch(() => ({ items: this.alerts })),
      ]);
      this.events = events.items;
      this.alerts = alerts.items;
      this.dispatchEvent(new Event("events"));
    } catch {
      // The timeline is an extra: it stays as it was, and is read again with the next change.
      this.#story = "";
    }
  }
}
