/** REST as promises; the only file that calls `fetch`. */

import { heardServerDate } from "./clock.js";
import { language } from "./language.js";
import { t } from "./texts.js";

/** An answer other than 2xx, or none at all (`status` 0). */
export class ApiError extends Error {
  /** @param {string} message @param {number} status */
  constructor(message, status) {
    super(message);
    this.name = "ApiError";
    this.status = status;
  }
}

/**
 * @param {string} path below /api/v1/
 * @param {Record<string, string | number | null | undefined>} query absent values are left out
 * @param {AbortSignal} [signal]
 */
async function get(path, query = {}, signal) {
  const response = await ask("GET", path, query, undefined, signal);
  return response.json();
}

/**
 * @param {"PUT" | "PATCH" | "POST" | "DELETE"} method
 * @param {string} path below /api/v1/
 * @param {object} [body] sent as JSON
 * @returns {Promise<any>} null where the answer is empty
 */
async function send(method, path, body) {
  const response = await ask(method, path, {}, body === undefined ? undefined : JSON.stringify(body));
  return response.status === 204 ? null : response.json();
}

/**
 * @param {string} method
 * @param {string} path
 * @param {Record<string, string | number | null | undefined>} query
 * @param {BodyInit | undefined} body
 * @param {AbortSignal} [signal]
 */
async function ask(method, path, query, body, signal) {
  const known = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const search = new URLSearchParams(known.map(([name, value]) => [name, String(value)]));
  const url = `/api/v1/${path}${known.length ? `?${search}` : ""}`;
  /** @type {Record<string, string>} */
  const headers = { Accept: "application/json" };
  if (typeof body === "string") headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(url, { method, body, signal, headers });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(t("error.no.answer"), 0);
  }
  heardServerDate(response.headers.get("Date"));
  if (response.status === 401) location.assign(`/login?next=${encodeURIComponent(location.pathname + location.search)}`);
  if (!response.ok) throw new ApiError(await reason(response), response.status);
  return response;
}

/** @param {Response} response */
async function reason(response) {
  try {
    const body = await response.json();
    if (typeof body.detail === "string") return body.detail;
  } catch {
    // Not our own error, a proxy's page say: the status line must do.
  }
  return t("error.status", { status: `${response.status} ${response.statusText}`.trim() });
}

/** @param {{q?: string, project?: string | null, status?: string | null, tag?: string | null, sort?: string, limit?: number, cursor?: string | null}} query @param {AbortSignal} [signal] @returns {Promise<RunListing>} */
export function getRuns(query, signal) {
  return get("runs", query, signal);
}

/** An event stream cannot say that the login has run out: this asks, and leads to the login where it has. */
export async function checkAccess() {
  await getRuns({ limit: 1 }).catch(() => null);
}

/** Whether the server still has a file of this page: a newer version has others. @param {string} url @returns {Promise<boolean | null>} null where there is no answer */
export async function hasFile(url) {
  try {
    return (await fetch(url, { method: "HEAD", cache: "no-store" })).status !== 404;
  } catch {
    return null;
  }
}

/** @param {string} runId @param {{name?: string, tags?: string[], notes?: string, archived?: boolean}} changes @returns {Promise<RunSummary>} */
export function patchRun(runId, changes) {
  return send("PATCH", `runs/${encodeURIComponent(runId)}`, changes);
}

/** @param {string} runId @returns {Promise<null>} */
export function deleteRun(runId) {
  return send("DELETE", `runs/${encodeURIComponent(runId)}`);
}

/** @param {AbortSignal} [signal] @returns {Promise<{items: {project: string, num_runs: number, num_steps: number}[]}>} */
export function getProjects(signal) {
  return get("projects", {}, signal);
}

/** @param {AbortSignal} [signal] @returns {Promise<{items: {tag: string, num_runs: number}[]}>} */
export function getTags(signal) {
  return get("tags", {}, signal);
}

/** @param {string} runId @param {AbortSignal} [signal] @returns {Promise<RunDetail>} */
export function getRun(runId, signal) {
  return get(`runs/${encodeURIComponent(runId)}`, {}, signal);
}

/**
 * @param {string} runId
 * @param {string} name
 * @param {{stream?: string, attempt?: number | null, layer?: string | null, first_step?: number | null, last_step?: number | null}} query
 * @param {AbortSignal} [signal]
 * @returns {Promise<EncodedFigure>}
 */
export function getFigure(runId, name, query, signal) {
  return get(`runs/${encodeURIComponent(runId)}/figures/${name}`, query, signal);
}

/** @param {string} runId @param {{stream: string, attempt?: number | null}} query @param {AbortSignal} [signal] @returns {Promise<Diagnosis>} */
export function getDiagnosis(runId, query, signal) {
  return get(`runs/${encodeURIComponent(runId)}/diagnosis`, { ...query, lang: language === "en" ? null : language }, signal);
}

/**
 * What another policy, or a bare threshold, would have done to the recorded norms.
 * @param {string} runId
 * @param {{clip: string, stream: string, attempt?: number | null, first_step?: number | null, last_step?: number | null}} query
 * @param {AbortSignal} [signal]
 * @returns {Promise<WhatIf>}
 */
export function getWhatIf(runId, query, signal) {
  return get(`runs/${encodeURIComponent(runId)}/what-if`, query, signal);
}

/** The newest events first. @param {string} runId @param {AbortSignal} [signal] @returns {Promise<{items: RunEvent[]}>} */
export function getEvents(runId, signal) {
  return get(`runs/${encodeURIComponent(runId)}/events`, { limit: 50 }, signal);
}

/** @param {string} runId @param {number} step @param {{stream: string, attempt?: number | null}} query @param {AbortSignal} [signal] @returns {Promise<StepDetail>} */
export function getStep(runId, step, query, signal) {
  return get(`runs/${encodeURIComponent(runId)}/steps/${step}`, query, signal);
}

/**
 * @param {string} runId
 * @param {{columns: string, stream: string, attempt?: number | null, first_step: number, last_step: number, points: number}} query
 * @param {AbortSignal} [signal]
 * @returns {Promise<Series>}
 */
export function getSeries(runId, query, signal) {
  return get(`runs/${encodeURIComponent(runId)}/series`, query, signal);
}

/** @param {string} runId @param {AbortSignal} [signal] @returns {Promise<{items: RunAlert[]}>} */
export function getRunAlerts(runId, signal) {
  return get(`runs/${encodeURIComponent(runId)}/alerts`, { limit: 100 }, signal);
}

/** Another threshold for the live run; refused with the reason where it does not allow it. @param {string} runId @param {{max_norm: number, stream: string, pattern: string | null}} control */
export function putControl(runId, control) {
  return send("PUT", `runs/${encodeURIComponent(runId)}/control`, control);
}

/**
 * The same columns of several runs, in buckets of the same steps.
 * @param {string[]} runIds
 * @param {{columns: string, stream: string, first_step: number | null, last_step: number | null, points: number}} query
 * @param {AbortSignal} [signal]
 * @returns {Promise<{items: RunSeries[]}>}
 */
export function getCompared(runIds, query, signal) {
  return get("series", { runs: runIds.join(","), ...query }, signal);
}

/** @param {AbortSignal} [signal] @returns {Promise<ServerAnswer>} */
export function getServer(signal) {
  return get("server", {}, signal);
}

/** @param {{state?: string | null, severity?: string | null, project?: string | null, limit?: number, cursor?: string | null}} query @param {AbortSignal} [signal] @returns {Promise<{items: RunAlert[], next_cursor: string | null}>} */
export function getAlerts(query, signal) {
  return get("alerts", query, signal);
}

/** @param {RunAlert} alert @returns {Promise<RunAlert>} */
export function acknowledge({ run_id, id }) {
  return send("POST", `runs/${encodeURIComponent(run_id)}/alerts/${id}/acknowledge`);
}

/** @param {string | null} project null: everywhere @param {AbortSignal} [signal] @returns {Promise<AlertRules>} */
export function getAlertRules(project, signal) {
  return get("alert-rules", { project }, signal);
}

/** All that the scope changes. @param {string | null} project @param {RuleChange[]} rules @returns {Promise<AlertRules>} */
export function putAlertRules(project, rules) {
  return send("PUT", `alert-rules${scope(project)}`, { rules });
}

/** What a rule would have done. @param {string | null} project @param {RuleChange} rule @param {number} days @returns {Promise<RulePreview>} */
export function previewRule(project, rule, days) {
  return send("POST", `alert-rules/preview${scope(project)}`, { rule, days });
}

/** @param {AbortSignal} [signal] @returns {Promise<{items: NotificationTarget[], public_url: string | null}>} */
export function getTargets(signal) {
  return get("notification-targets", {}, signal);
}

/** @param {string} name @returns {Promise<{items: {name: string, ok: boolean, error: string | null, duration_s: number}[]}>} */
export function testTarget(name) {
  return send("POST", "notification-targets/test", { name });
}

/**
 * What a training log says; kept as runs only if asked to.
 * @param {Blob} log
 * @param {{name: string, keep?: boolean, max_norm?: number | null, project?: string | null}} query
 * @param {AbortSignal} [signal]
 * @returns {Promise<ImportAnswer>}
 */
export async function readLog(log, { keep, ...query }, signal) {
  const lang = language === "en" ? null : language;
  const response = await ask("POST", "imports", { ...query, lang, keep: keep ? "true" : null }, log, signal);
  return response.json();
}

/** @param {string | null} project */
function scope(project) {
  return project === null ? "" : `?${new URLSearchParams({ project })}`;
}
