/** The orders a list of runs can have, as the server sorts them and as live changes are sorted in; pure. */

/** @typedef {"severity" | "-started_at_s" | "-last_seen_s" | "name"} RunOrder */

/** @type {RunOrder[]} the one shown first is the default */
export const ORDERS = ["severity", "-started_at_s", "-last_seen_s", "name"];

/** @type {(Severity | null)[]} a run that was not judged comes last */
const SEVERITIES = [null, "ok", "info", "warning", "critical"];

/** @type {Record<RunOrder, (a: RunSummary, b: RunSummary) => number>} */
const COMPARE = {
  severity: (a, b) => SEVERITIES.indexOf(b.severity ?? null) - SEVERITIES.indexOf(a.severity ?? null) || b.started_at_s - a.started_at_s,
  "-started_at_s": (a, b) => b.started_at_s - a.started_at_s,
  "-last_seen_s": (a, b) => b.last_seen_s - a.last_seen_s,
  name: (a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0),
};

/** Below zero where `a` comes before `b`. @param {RunOrder} order @param {RunSummary} a @param {RunSummary} b */
export function compareRuns(order, a, b) {
  const byId = a.id < b.id ? -1 : 1;
  return COMPARE[order](a, b) || (order === "name" ? byId : -byId);
}

/** @param {string | null} text @returns {RunOrder} */
export function orderOf(text) {
  return ORDERS.find((order) => order === text) ?? ORDERS[0];
}

/** How long a run in training will go on, where it said how far; null where nobody knows. @param {RunSummary} run */
export function secondsLeft({ state, last_step, total_steps, steps_per_s }) {
  if (state !== "running" || last_step === null || !total_steps || !steps_per_s) return null;
  const left = total_steps - 1 - last_step;
  return left > 0 ? left / steps_per_s : null;
}
