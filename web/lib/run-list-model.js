/** The runs of a list: read in pages, kept up to date by the live stream. Event `change`, at most once a frame. */

import { ApiError, getRuns } from "./api.js";
import { everySecond, serverNow } from "./clock.js";
import { matches } from "./run-filter.js";
import { compareRuns } from "./run-order.js";
import { extended } from "./sparkline.js";
import { stream } from "./stream.js";

/** @typedef {import("./run-filter.js").RunFilter} RunFilter */

const PAGE = 100;
const MOST_AT_ONCE = 500;
/** A run that has gone quiet says nothing of it: the list is read again. */
const QUIET_S = 20;
const ASK_AGAIN_S = 10;
/** Hundreds of runs may come and go beyond the pages that are here: they are counted at most so often. */
const COUNT_AGAIN_MS = 2_000;

export class RunListModel extends EventTarget {
  /** @type {string | null} why the newest reading failed */
  problem = null;
  isLoaded = false;
  #reading = new AbortController();
  /** @type {Map<string, ListedRun>} */
  #runs = new Map();
  /** @type {ListedRun[] | null} */
  #sorted = null;
  /** @type {LiveEvent[] | null} since the reading under way began */
  #heard = null;
  /** @type {string | null} */
  #cursor = null;
  #isReadingMore = false;
  /** Whether what is here was read with the filter of now. */
  #isSameFilter = true;
  #numRuns = 0;
  /** Runs heard of that are not here, and whether the filter lets them in. @type {Map<string, boolean>} */
  #beyond = new Map();
  #countTimer = 0;
  #asked_s = 0;
  #frame = 0;

  /** @param {RunFilter} filter */
  constructor(filter) {
    super();
    this.filter = filter;
  }

  /** @param {AbortSignal} signal */
  start(signal) {
    stream().watchRuns((message) => this.#hear(message), signal);
    everySecond(() => this.#askIfQuiet(), signal);
    signal.addEventListener("abort", () => {
      this.#reading.abort();
      clearTimeout(this.#countTimer);
    });
    this.read();
  }

  /** Those that are here, in order; the rest comes with `readMore`. */
  get runs() {
    return (this.#sorted ??= [...this.#runs.values()].sort((a, b) => compareRuns(this.filter.sort, a, b)));
  }

  /** How many there are, here or not. */
  get numRuns() {
    return Math.max(this.#numRuns, this.#runs.size);
  }

  get hasMore() {
    return this.#cursor !== null;
  }

  /** @param {string} runId */
  get(runId) {
    return this.#runs.get(runId) ?? null;
  }

  /** @param {RunFilter} filter */
  narrow(filter) {
    const isSameSet = !this.hasMore && JSON.stringify({ ...filter, sort: "" }) === JSON.stringify({ ...this.filter, sort: "" });
    this.filter = filter;
    this.#sorted = null;
    if (isSameSet && this.isLoaded) this.#changed();
    else {
      this.#isSameFilter = false;
      this.read();
    }
  }

  /** From the top. */
  read() {
    return this.#read(null);
  }

  readMore() {
    if (this.hasMore && !this.#isReadingMore && !this.problem) this.#read(this.#cursor);
  }

  /** What a request has answered, before the stream says it too. @param {RunSummary} run */
  put(run) {
    this.#apply({ event: "run", position: 0, run_id: run.id, payload: run });
    this.#changed();
  }

  /** @param {string} runId */
  remove(runId) {
    this.#drop(runId);
    this.#changed();
  }

  /** @param {string | null} cursor */
  async #read(cursor) {
    this.#reading.abort();
    this.#reading = new AbortController();
    const { signal } = this.#reading;
    this.#asked_s = serverNow();
    this.#isReadingMore = cursor !== null;
    /** @type {LiveEvent[]} */
    const heard = (this.#heard = []);
    try {
      const { runs, next_cursor, num_runs } = await this.#pages(cursor, signal);
      if (cursor === null) {
        this.#runs = runs;
        this.#beyond.clear();
      }
      else for (const [id, run] of runs) this.#runs.set(id, run);
      this.#cursor = next_cursor;
      if (num_runs !== null) this.#numRuns = num_runs;
      this.isLoaded = true;
      this.#isSameFilter = true;
      this.problem = null;
      this.#sorted = null;
      // The answer may be older than what was heard while it was on its way.
      for (const message of heard) this.#apply(message);
      this.#heard = null;
    } catch (error) {
      if (signal.aborted) return;
      this.problem = error instanceof ApiError ? error.message : String(error);
    }
    this.#isReadingMore = false;
    this.#changed();
  }

  /**
   * The next page; from the top, as many as were here before, so that nobody loses their place.
   * @param {string | null} from
   * @param {AbortSignal} signal
   */
  async #pages(from, signal) {
    const wanted = from === null && this.#isSameFilter ? Math.max(PAGE, this.#runs.size) : PAGE;
    /** @type {Map<string, ListedRun>} */
    const runs = new Map();
    /** @type {number | null} */
    let num_runs = null;
    let cursor = from;
    do {
      const limit = Math.min(MOST_AT_ONCE, wanted - runs.size);
      const answer = await getRuns({ ...this.filter, limit, cursor }, signal);
      for (const run of answer.items) runs.set(run.id, run);
      num_runs ??= answer.num_runs;
      cursor = answer.next_cursor;
    } while (cursor !== null && runs.size < wanted);
    return { runs, next_cursor: cursor, num_runs };
  }

  /** @param {FromHub} message */
  #hear(message) {
    if (message.kind === "hello" || (message.kind === "event" && message.event === "stale" && !message.run_id)) this.read();
    if (message.kind !== "event" || (message.event !== "run" && message.event !== "deleted")) return;
    this.#heard?.push(message);
    if (this.isLoaded && this.#apply(message)) this.#changed();
  }

  /** @param {LiveEvent} message @returns {boolean} whether the list has changed */
  #apply(message) {
    if (message.event === "deleted") return this.#drop(message.run_id);
    if (message.event !== "run") return false;
    const run = message.payload;
    const known = this.#runs.get(run.id);
    if (!matches(this.filter, run)) return this.#drop(run.id);
    if (!known) {
      const last = this.hasMore ? this.runs.at(-1) : undefined;
      this.#countBeyond(run.id, true);
      if (last && compareRuns(this.filter.sort, run, last) > 0) return false;
      if (!this.hasMore) this.#numRuns++;
    }
    this.#runs.set(run.id, { ...run, sparkline: extended(known?.sparkline ?? null, run) });
    this.#sorted = null;
    return true;
  }

  /** @param {string} runId */
  #drop(runId) {
    if (!this.#runs.delete(runId)) {
      this.#countBeyond(runId, false);
      return false;
    }
    this.#numRuns--;
    this.#sorted = null;
    return true;
  }

  /** While there are more pages, a run that is not here may have been counted or not: only the server knows. @param {string} runId @param {boolean} isIn */
  #countBeyond(runId, isIn) {
    if (!this.hasMore || this.#beyond.get(runId) === isIn) return;
    this.#beyond.set(runId, isIn);
    this.#countTimer ||= window.setTimeout(() => this.#countAgain(), COUNT_AGAIN_MS);
  }

  async #countAgain() {
    this.#countTimer = 0;
    const { filter } = this;
    try {
      const { num_runs } = await getRuns({ ...filter, limit: 1, cursor: null });
      if (filter !== this.filter || num_runs === null) return;
      this.#numRuns = num_runs;
      this.#changed();
    } catch {
      // The next reading counts too.
    }
  }

  #askIfQuiet() {
    const now_s = serverNow();
    if (!this.isLoaded || now_s - this.#asked_s < ASK_AGAIN_S || !stream().connected || this.#runs.size > PAGE) return;
    const isQuiet = (/** @type {RunSummary} */ run) => (run.state === "running" || run.state === "stalled") && now_s - run.last_seen_s > QUIET_S;
    if ([...this.#runs.values()].some(isQuiet)) this.read();
  }

  /** Hundreds of runs may change in a second: one event for all of a frame. */
  #changed() {
    this.#frame ||= setTimeout(() => {
      this.#frame = 0;
      this.dispatchEvent(new Event("change"));
    }, 16);
  }
}
