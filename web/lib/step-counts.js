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
  for (const name of /** @type {Exclude<keyof LastValues, "nonfinite">[]} */ (Object.keys(facts.last).filter((name) => name !== "nonfinite"))) {
    facts.last[name] = /** @type {number | null} */ (steps[name]?.at(-1) ?? null);
  }
  // A tick says of the norm only that it was not finite.
  facts.last.nonfinite = steps.nonfinite?.at(-1) ? { grad_norm_before_clip: "NaN" } : {};
}
