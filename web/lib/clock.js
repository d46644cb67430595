/** The server's clock as this page knows it, and one beat a second for relative times. */

let offset_s = 0;

/**
 * Learns how far this machine's clock is from the server's. A `Date` header has whole seconds, so less than two are noise.
 * @param {string | null} date
 */
export function heardServerDate(date) {
  const server_s = date ? Date.parse(date) / 1000 : NaN;
  if (!Number.isFinite(server_s)) return;
  const measured_s = server_s + 0.5 - Date.now() / 1000;
  offset_s = Math.abs(measured_s) < 2 ? 0 : measured_s;
}

/** Now, in UTC seconds by the server's clock. */
export function serverNow() {
  return Date.now() / 1000 + offset_s;
}

/** @type {Set<() => void>} */
const listeners = new Set();
let timer = 0;

/**
 * Calls back once a second until the signal ends, not while the page is hidden.
 * @param {() => void} listener
 * @param {AbortSignal} signal
 */
export function everySecond(listener, signal) {
  if (signal.aborted) return;
  listeners.add(listener);
  timer ||= window.setInterval(beat, 1000);
  signal.addEventListener("abort", () => {
    listeners.delete(listener);
    if (listeners.size) return;
    window.clearInterval(timer);
    timer = 0;
  });
}

function beat() {
  if (document.hidden) return;
  for (const listener of listeners) listener();
}
