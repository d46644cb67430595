/** Counts and newest values of a stream, moved on by the steps of a live tick; pure. */

/** @param {StepCounts} facts @param {Tick["steps"]} steps */
export function countIn(facts, steps) {
  const count = (/** @type {string} */ name) => (steps[name] ?? []).filter(Boolean).length;
  const num_steps = steps.step.length;
  facts.num_steps += num_steps;
  facts.num_skipped += count("skipped");
  facts.num_applied += num_steps - count("skipped");
  facts.num_clipped += count("clipped");
  facts.num_nonfinite += count("nonfinite");
  facts.last_step = steps.step.at(-1) ?? facts.last_step;
  for (const name of /** @type {(keyof LastValues)[]} */ (Object.keys(facts.last))) {
    facts.last[name] = /** @type {number | null} */ (steps[name]?.at(-1) ?? null);
  }
}
