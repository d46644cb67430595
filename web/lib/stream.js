/**
 * The live stream: one EventSource per browser, shared by its tabs through a SharedWorker, reconnecting by itself.
 *
 * `Hub` holds the connection; it runs in the worker, or in the page where there are no shared workers (Chrome on
 * Android). `Stream` is what a page talks to. A browser allows six connections per host, so a tab must not hold one.
 */

/** @typedef {{post: (message: FromHub) => void, runs: Set<string>, uncovered: Set<string>, heard_ms: number}} Subscriber */

const FIRST_RETRY_MS = 500;
const LONGEST_RETRY_MS = 5_000;
const PING_MS = 20_000;
/** A tab that is gone without a word (crashed, frozen) is forgotten; hidden tabs may ping once a minute only. */
const FORGOTTEN_AFTER_MS = 150_000;
/** A pause of all timers longer than this was a sleep of the machine: the connection is dead and nobody said so. */
const ASLEEP_MS = 90_000;

export class Hub {
  #next = 1;
  /** @type {Map<number, Subscriber>} */
  #subscribers = new Map();
  /** @type {EventSource | null} */
  #source = null;
  /** @type {Set<string>} runs the open connection was asked for */
  #runs = new Set();
  /** @type {number | null} */
  #position = null;
  #connected = false;
  #since_ms = Date.now();
  #retry_ms = FIRST_RETRY_MS;
  #retry = 0;
  #beat_ms = Date.now();

  constructor() {
    setInterval(() => this.#beat(), PING_MS);
    addEventListener("online", () => this.#source && !this.#connected && this.#open());
  }

  /** @param {(message: FromHub) => void} post */
  join(post) {
    const key = this.#next++;
    this.#subscribers.set(key, { post, runs: new Set(), uncovered: new Set(), heard_ms: Date.now() });
    post(this.#state());
    return key;
  }

  /** @param {number} key */
  leave(key) {
    this.#subscribers.delete(key);
    if (this.#subscribers.size) return;
    this.#close();
    this.#position = null;
    this.#connected = false;
    this.#since_ms = Date.now();
  }

  /**
   * @param {number} key
   * @param {Wish} wish
   * @returns {boolean} false where the subscriber was forgotten and must join anew
   */
  want(key, { runs }) {
    const subscriber = this.#subscribers.get(key);
    if (!subscriber) return false;
    subscriber.heard_ms = Date.now();
    const added = Object.keys(runs).filter((run) => !subscriber.runs.has(run));
    subscriber.runs = new Set(Object.keys(runs));
    subscriber.uncovered = new Set([...subscriber.uncovered, ...added].filter((run) => subscriber.runs.has(run)));
    if (this.#source && added.every((run) => this.#runs.has(run))) {
      if (this.#connected) this.#cover(subscriber, this.#position ?? 0);
      return true;
    }
    // Start early enough for the figures of the newcomer; who has seen those ticks passes over them.
    const known = added.map((run) => runs[run]).filter((position) => position !== null);
    if (known.length) this.#position = Math.min(this.#position ?? Infinity, ...known);
    this.#open();
    return true;
  }

  #open() {
    this.#close();
    this.#runs = new Set([...this.#subscribers.values()].flatMap((subscriber) => [...subscriber.runs]));
    const query = new URLSearchParams({ runs: [...this.#runs].join(",") });
    if (this.#position !== null) query.set("after", String(this.#position));
    const source = new EventSource(`/api/v1/live?${query}`);
    this.#source = source;
    source.addEventListener("hello", (event) => this.#hello(JSON.parse(event.data).position));
    for (const kind of /** @type {const} */ (["tick", "run", "deleted", "alert", "stale"])) {
      source.addEventListener(kind, (event) => this.#pass(kind, event));
    }
    // EventSource tries again by itself, but from the old position and not after an error status: do it here.
    source.addEventListener("error", () => source === this.#source && this.#lost());
  }

  #close() {
    clearTimeout(this.#retry);
    this.#source?.close();
    this.#source = null;
  }

  #lost() {
    this.#source?.close();
    clearTimeout(this.#retry);
    this.#retry = setTimeout(() => this.#open(), this.#retry_ms * (0.75 + Math.random() / 2));
    this.#retry_ms = Math.min(this.#retry_ms * 2, LONGEST_RETRY_MS);
    this.#setConnected(false);
  }

  /** @param {number} position the newest there is */
  #hello(position) {
    this.#retry_ms = FIRST_RETRY_MS;
    if (this.#position !== null && position < this.#position) {
      // Another database behind the same address: nothing read so far counts.
      this.#position = position;
      this.#tell({ kind: "event", event: "stale", position, run_id: null });
    }
    this.#position ??= position;
    this.#setConnected(true);
    for (const subscriber of this.#subscribers.values()) {
      subscriber.post({ kind: "hello" });
      this.#cover(subscriber, this.#position);
    }
  }

  /** @param {Subscriber} subscriber @param {number} position */
  #cover(subscriber, position) {
    const runs = [...subscriber.uncovered].filter((run) => this.#runs.has(run));
    if (!runs.length) return;
    for (const run of runs) subscriber.uncovered.delete(run);
    subscriber.post({ kind: "covered", runs, position });
  }

  /** @param {LiveEvent["event"]} kind @param {MessageEvent<string>} event */
  #pass(kind, event) {
    const payload = JSON.parse(event.data);
    const position = Number(event.lastEventId) || this.#position || 0;
    this.#position = Math.max(this.#position ?? 0, position);
    const run_id = kind === "run" ? payload.id : payload.run_id;
    this.#tell(/** @type {FromHub} */ ({ kind: "event", event: kind, position, run_id, payload }));
  }

  /** @param {FromHub} message ticks go to the tabs that show the run, the rest to all */
  #tell(message) {
    for (const subscriber of this.#subscribers.values()) {
      const foreign = message.kind === "event" && message.event === "tick" && !subscriber.runs.has(message.run_id);
      if (!foreign) subscriber.post(message);
    }
  }

  /** @param {boolean} connected */
  #setConnected(connected) {
    if (connected === this.#connected) return;
    this.#connected = connected;
    this.#since_ms = Date.now();
    this.#tell(this.#state());
  }

  /** @returns {FromHub} */
  #state() {
    return { kind: "state", connected: this.#connected, since_ms: this.#since_ms };
  }

  #beat() {
    const now_ms = Date.now();
    if (now_ms - this.#beat_ms > PING_MS + ASLEEP_MS && this.#source) {
      for (const subscriber of this.#subscribers.values()) subscriber.heard_ms = now_ms;
      this.#open();
    }
    this.#beat_ms = now_ms;
    for (const [key, subscriber] of this.#subscribers) {
      if (now_ms - subscriber.heard_ms > FORGOTTEN_AFTER_MS) this.leave(key);
    }
  }
}

/**
 * The page's end. Event `state`: `connected` or `since_ms` has changed.
 */
class Stream extends EventTarget {
  connected = false;
  since_ms = Date.now();
  /** @type {Map<string, Set<(message: FromHub) => void>>} */
  #watchers = new Map();
  /** @type {Record<string, number | null>} */
  #wish = {};
  /** @type {((message: ToHub) => void) | null} */
  #send = null;

  constructor() {
    super();
    setInterval(() => this.#say(), PING_MS);
    addEventListener("pagehide", () => this.#send?.({ kind: "bye" }));
    addEventListener("pageshow", (event) => event.persisted && this.#say());
  }

  /**
   * Hears of all runs' changes.
   * @param {(message: FromHub) => void} listener
   * @param {AbortSignal} signal
   */
  watchRuns(listener, signal) {
    this.#add("", listener, signal);
    this.#say();
  }

  /**
   * Hears a run's ticks. `covered` comes once it is sure that none is missing from that position on.
   * @param {string} runId
   * @param {number} after the position its figures will at least be read at
   * @param {(message: FromHub) => void} listener
   * @param {AbortSignal} signal
   */
  watchRun(runId, after, listener, signal) {
    this.#add(runId, listener, signal);
    this.#wish[runId] = after;
    signal.addEventListener("abort", () => {
      if (this.#watchers.get(runId)?.size) return;
      delete this.#wish[runId];
      this.#say();
    });
    this.#say();
  }

  /** @param {string} key @param {(message: FromHub) => void} listener @param {AbortSignal} signal */
  #add(key, listener, signal) {
    const listeners = this.#watchers.get(key) ?? new Set();
    this.#watchers.set(key, listeners);
    listeners.add(listener);
    signal.addEventListener("abort", () => listeners.delete(listener));
  }

  #say() {
    this.#send ??= typeof SharedWorker === "undefined" ? this.#direct() : this.#shared();
    this.#send({ kind: "want", runs: this.#wish });
  }

  #shared() {
    const worker = new SharedWorker(new URL("./stream-worker.js", import.meta.url), { type: "module", name: "gradsight" });
    worker.addEventListener("error", () => {
      this.#send = this.#direct();
      this.#say();
    });
    worker.port.addEventListener("message", (event) => this.#hear(event.data));
    worker.port.start();
    return (/** @type {ToHub} */ message) => worker.port.postMessage(message);
  }

  #direct() {
    const hub = new Hub();
    return listenTo(hub, (message) => queueMicrotask(() => this.#hear(message)));
  }

  /** @param {FromHub} message */
  #hear(message) {
    if (message.kind === "state") {
      this.connected = message.connected;
      this.since_ms = message.since_ms;
      this.dispatchEvent(new Event("state"));
      return;
    }
    if (message.kind === "event" && message.run_id && message.run_id in this.#wish) {
      this.#wish[message.run_id] = Math.max(this.#wish[message.run_id] ?? 0, message.position);
    }
    const keys = message.kind === "event" && message.run_id ? ["", message.run_id] : [...this.#watchers.keys()];
    for (const key of keys) for (const listener of this.#watchers.get(key) ?? []) listener(message);
  }
}

/**
 * Joins a hub and gives the function that sends it a tab's messages; a tab that was forgotten joins anew.
 * @param {Hub} hub
 * @param {(message: FromHub) => void} post
 * @returns {(message: ToHub) => void}
 */
export function listenTo(hub, post) {
  /** @type {number | null} */
  let key = null;
  return (message) => {
    if (message.kind === "bye") {
      if (key !== null) hub.leave(key);
      key = null;
      return;
    }
    if (key !== null && hub.want(key, message)) return;
    key = hub.join(post);
    hub.want(key, message);
  };
}

/** @type {Stream | null} */
let shared = null;

/** The page's stream; made at first use, so that the worker can import this file. */
export function stream() {
  shared ??= new Stream();
  return shared;
}
