/** Keys that do something wherever the focus is, but where somebody types; a pair like `g r` is pressed in turn. */

/** How long the first key of a pair waits for the second. */
const PAIR_MS = 1_200;

/** @type {Map<string, Set<(event: KeyboardEvent) => void>>} */
const listeners = new Map();
let first = "";
let pressed_ms = 0;

/**
 * @param {string} keys as `event.key` names them, `j` or `g r`
 * @param {(event: KeyboardEvent) => void} listener
 * @param {AbortSignal} signal
 */
export function onKey(keys, listener, signal) {
  if (!listeners.size) document.addEventListener("keydown", pressed);
  const known = listeners.get(keys) ?? new Set();
  listeners.set(keys, known);
  known.add(listener);
  signal.addEventListener("abort", () => known.delete(listener));
}

/** @param {KeyboardEvent} event */
function pressed(event) {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
  const now_ms = performance.now();
  const pair = first && now_ms - pressed_ms < PAIR_MS ? listeners.get(`${first} ${event.key}`) : undefined;
  first = pair ? "" : event.key;
  pressed_ms = now_ms;
  const found = pair?.size ? pair : listeners.get(event.key);
  if (!found?.size) return;
  event.preventDefault();
  for (const listener of [...found]) listener(event);
}

/** @param {EventTarget | null} target */
function isTyping(target) {
  if (document.querySelector("dialog[open]")) return true;
  return target instanceof HTMLElement && (target.isContentEditable || target.matches("input:not([type=checkbox], [type=radio], [type=range]), textarea, select"));
}
