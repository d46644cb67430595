/** What a list of runs is narrowed to and how it is sorted; in the address, at the server, and for live changes; pure. */

import { orderOf, ORDERS } from "./run-order.js";

/**
 * @typedef {object} RunFilter
 * @property {string} q part of the name, project or id
 * @property {string | null} status
 * @property {string | null} project
 * @property {string | null} tag
 * @property {import("./run-order.js").RunOrder} sort
 */

/** What can be asked for by `status`; a run that is archived shows under that word only. */
export const STATUSES = /** @type {const} */ (["running", "finished", "failed", "archived"]);

/** As long as the server takes words. */
export const MOST_LETTERS = 256;

/** @param {URLSearchParams} address @returns {RunFilter} */
export function filterOf(address) {
  return {
    q: (address.get("q") ?? "").slice(0, MOST_LETTERS),
    status: STATUSES.find((status) => status === address.get("status")) ?? null,
    project: address.get("project"),
    tag: address.get("tag"),
    sort: orderOf(address.get("sort")),
  };
}

/** @param {RunFilter} filter @returns {Record<string, string | null>} */
export function addressOf({ q, status, project, tag, sort }) {
  return { q: q || null, status, project, tag, sort: sort === ORDERS[0] ? null : sort };
}

/** @param {RunFilter} filter whether it leaves any run out */
export function narrows({ q, status, project, tag }) {
  return Boolean(q || status || project !== null || tag !== null);
}

/** Whether the server would list the run. @param {RunFilter} filter @param {RunSummary} run */
export function matches({ q, status, project, tag }, run) {
  if (run.archived !== (status === "archived")) return false;
  if (status && status !== "archived" && run.status !== status) return false;
  if (project !== null && run.project !== project) return false;
  const words = q.toLowerCase();
  const within = (/** @type {string} */ text) => text.toLowerCase().includes(words);
  if (tag !== null && !run.tags.some((one) => one.toLowerCase() === tag.toLowerCase())) return false;
  return !words || within(run.name) || within(run.project) || run.id.includes(words);
}
