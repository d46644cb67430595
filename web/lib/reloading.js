/** Loading the whole page anew: browsers remember an import that failed, so nothing less brings the missing files. */

const KEY = "gradsight.reloaded_ms";
const LEAST_MS = 60_000;

/**
 * Whether the page may load itself anew: not where it has just done so and that was no help.
 * @param {string | null} before when it did so last, as it was remembered
 * @param {number} now_ms
 */
export function mayReload(before, now_ms) {
  return !(Number(before) > now_ms - LEAST_MS);
}

/** @returns {boolean} false where it was done a moment ago, or where that cannot be remembered */
export function reloadOnce() {
  try {
    const now_ms = Date.now();
    if (!mayReload(sessionStorage.getItem(KEY), now_ms)) return false;
    sessionStorage.setItem(KEY, String(now_ms));
  } catch {
    return false; // storage is barred: there would be no end to it
  }
  location.reload();
  return true;
}
