/** The runs of a comparison and their series, read again while they train. Event `change`. */

import { ApiError, getCompared, getRun } from "./api.js";
import { COLUMNS } from "./comparing.js";
import { stream as live } from "./stream.js";

const POINTS = 600;
/** Curves of several runs need not move with each step. */
const AGAIN_MS = 3_000;

export class CompareModel extends EventTarget {
  /** @type {RunDetail[]} those that were found, in order */
  runs = [];
  /** @type {RunSeries[]} one per run */
  series = [];
  /** @type {{runId: string, reason: string}[]} */
  missing = [];
  /** @type {string | null} */
  problem = null;
  isLoaded = false;
  #reading = new AbortController();
  #waiting = 0;

  /** @param {string[]} runIds @param {{stream: string, range: [number, number] | null}} view */
  constructor(runIds, { stream, range }) {
    super();
    this.runIds = runIds;
    this.stream = stream;
    this.range = range;
  }

  /** @param {AbortSignal} signal */
  start(signal) {
    live().watchRuns((message) => {
      if (message.kind === "hello") this.#later(0);
      if (message.kind === "event" && message.event === "run" && this.runIds.includes(message.run_id)) this.#later(AGAIN_MS);
    }, signal);
    signal.addEventListener("abort", () => {
      clearTimeout(this.#waiting);
      this.#reading.abort();
    });
    this.read();
  }

  /** @param {number} ms */
  #later(ms) {
    this.#waiting ||= setTimeout(() => {
      this.#waiting = 0;
      this.read();
    }, ms);
  }

  async read() {
    this.#reading.abort();
    this.#reading = new AbortController();
    const { signal } = this.#reading;
    try {
      const asked = await Promise.all(this.runIds.map((runId) => this.#run(runId, signal)));
      const runs = asked.filter((run) => "id" in run);
      const [first_step, last_step] = this.range ?? [null, null];
      const query = { columns: COLUMNS.join(","), stream: this.stream, first_step, last_step, points: POINTS };
      const series = runs.length ? (await getCompared(runs.map(({ id }) => id), query, signal)).items : [];
      this.runs = runs;
      this.missing = asked.filter((run) => "reason" in run);
      this.series = series;
      this.problem = null;
      this.isLoaded = true;
    } catch (error) {
      if (signal.aborted) return;
      this.problem = error instanceof ApiError ? error.message : String(error);
    }
    this.dispatchEvent(new Event("change"));
  }

  /** A run, or why there is none: the others are shown all the same. @param {string} runId @param {AbortSignal} signal */
  async #run(runId, signal) {
    try {
      return await getRun(runId, signal);
    } catch (error) {
      if (error instanceof ApiError && (error.status === 404 || error.status === 422)) return { runId, reason: error.message };
      throw error;
    }
  }
}
