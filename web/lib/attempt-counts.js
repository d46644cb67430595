/** A stream's counts where several attempts made the same steps: the run's own count what was done again twice. */

import { getSeries, getStep } from "./api.js";

/** Without newest values where they are the run's. @typedef {Omit<StepCounts, "last"> & {last: LastValues | null}} AttemptCounts */

/**
 * Of one attempt, or of the newest at each step.
 * @param {string} runId
 * @param {{stream: string, attempt: number | null}} query
 * @param {Diagnosis} diagnosis of the same
 * @param {AbortSignal} signal
 * @returns {Promise<AttemptCounts | null>} null without any step
 */
export async function readCounts(runId, query, { range, loss_scaling, nonfinite }, signal) {
  const { first_step, last_step, num_steps } = range;
  if (first_step === null || last_step === null) return null;
  const [series, last] = await Promise.all([
    getSeries(runId, { columns: "grad_norm_before_clip", ...query, first_step, last_step, points: 2 }, signal),
    query.attempt === null ? null : getStep(runId, last_step, query, signal),
  ]);
  const num_clipped = series.num_clipped.reduce((sum, count) => sum + count, 0);
  const { num_skipped } = loss_scaling;
  return { num_steps, num_skipped, num_clipped, num_applied: num_steps - num_skipped, num_nonfinite: nonfinite.num_steps, last_step, last: /** @type {LastValues | null} */ (last) };
}
