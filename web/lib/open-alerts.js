/** The alerts that are open now, of all runs: read once, kept up to date by the stream. Events `change`, `alert`. */

import { getAlerts } from "./api.js";
import { alertKey } from "./alert-words.js";
import { stream } from "./stream.js";

const MOST = 200;
/** Changes that somebody should hear of. */
const TOLD = ["opened", "reminded"];

export class OpenAlerts extends EventTarget {
  /** @type {Map<string, RunAlert>} */
  #alerts = new Map();
  #started = false;
  /** There are more than were read. */
  hasMore = false;

  /** @param {() => void} listener @param {AbortSignal} signal */
  watch(listener, signal) {
    this.addEventListener("change", listener, { signal });
    if (this.#started) return;
    this.#started = true;
    stream().watchRuns((message) => this.#hear(message), new AbortController().signal);
    this.read();
  }

  get count() {
    return this.#alerts.size;
  }

  /** How many of a run are open, and how grave the worst is. @param {string} runId */
  of(runId) {
    let [count, isCritical] = [0, false];
    for (const { run_id, severity } of this.#alerts.values()) {
      if (run_id !== runId) continue;
      count++;
      isCritical ||= severity === "critical";
    }
    return { count, isCritical };
  }

  async read() {
    try {
      const { items, next_cursor } = await getAlerts({ state: "open", limit: MOST });
      this.#alerts = new Map(items.map((alert) => [alertKey(alert), alert]));
      this.hasMore = next_cursor !== null;
      this.dispatchEvent(new Event("change"));
    } catch {
      // The page of alerts says what is wrong; a count that is not known says nothing.
    }
  }

  /** What a request or the stream said of an alert. @param {RunAlert} alert */
  put(alert) {
    if (alert.state === "open") this.#alerts.set(alertKey(alert), alert);
    else this.#alerts.delete(alertKey(alert));
    this.dispatchEvent(new Event("change"));
  }

  /** @param {FromHub} message */
  #hear(message) {
    if (message.kind === "hello" || (message.kind === "event" && message.event === "stale" && !message.run_id)) this.read();
    if (message.kind !== "event") return;
    if (message.event === "deleted") {
      for (const [key, { run_id }] of this.#alerts) if (run_id === message.run_id) this.#alerts.delete(key);
      this.dispatchEvent(new Event("change"));
    }
    if (message.event !== "alert") return;
    this.put(message.payload);
    this.dispatchEvent(new CustomEvent("alert", { detail: message.payload }));
  }
}

/** Whether it is news that a person should hear of at once, also where it is over already. @param {RunAlert} alert */
export function isTold({ change, state }) {
  return state !== "acknowledged" && change !== undefined && TOLD.includes(change);
}

/** The page's own. */
export const openAlerts = new OpenAlerts();
