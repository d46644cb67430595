/** Short messages that need no page of their own: anyone says one, <toast-stack> shows it. */

/**
 * @typedef {object} Toast
 * @property {"neutral" | "healthy" | "warning" | "critical"} tone
 * @property {string} title
 * @property {string} [words]
 * @property {string} [href] where a click on it leads
 * @property {string} [key] a newer one of the same key takes its place
 */

const said = new EventTarget();

/** @param {Toast} toast */
export function sayToast(toast) {
  said.dispatchEvent(new CustomEvent("toast", { detail: toast }));
}

/** @param {(toast: Toast) => void} listener @param {AbortSignal} signal */
export function onToast(listener, signal) {
  said.addEventListener("toast", (event) => listener(/** @type {CustomEvent<Toast>} */ (event).detail), { signal });
}
