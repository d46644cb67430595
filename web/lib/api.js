/** REST as promises; the only file that calls `fetch`. */

import { heardServerDate } from "./clock.js";

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
async function get(path, query, signal) {
  const known = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const search = new URLSearchParams(known.map(([name, value]) => [name, String(value)]));
  const url = `/api/v1/${path}${known.length ? `?${search}` : ""}`;
  let response;
  try {
    response = await fetch(url, { signal, headers: { Accept: "application/json" } });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError("The server does not answer.", 0);
  }
  heardServerDate(response.headers.get("Date"));
  if (response.status === 401) location.assign(`/login?next=${encodeURIComponent(location.pathname + location.search)}`);
  if (!response.ok) throw new ApiError(await reason(response), response.status);
  return response.json();
}

/** @param {Response} response */
async function reason(response) {
  try {
    const body = await response.json();
    if (typeof body.detail === "string") return body.detail;
  } catch {
    // Not our own error, a proxy's page say: the status line must do.
  }
  return `The server answered ${response.status} ${response.statusText}`.trim();
}

/** @param {{q?: string, sort?: string, limit?: number, cursor?: string | null}} query @param {AbortSignal} [signal] @returns {Promise<RunListing>} */
export function getRuns(query, signal) {
  return get("runs", query, signal);
}

/** An event stream cannot say that the login has run out: this asks, and leads to the login where it has. */
export async function checkAccess() {
  await getRuns({ limit: 1 }).catch(() => null);
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
  return get(`runs/${encodeURIComponent(runId)}/diagnosis`, query, signal);
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
