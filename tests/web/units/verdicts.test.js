/** What the third verdict says where there is little to say, or nothing. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { hasNorms } from "../../../web/lib/newest.js";
import { badgeOf, graveElsewhere, verdictsOf } from "../../../web/lib/verdicts.js";

const diagnosisOf = (more) => ({
  range: { first_step: 0, last_step: 99, num_steps: 100, num_finite: 100 },
  clipping: { verdict: "unknown", severity: "info", clip_fraction: null, median_clip_coef: null, norm: {}, recommended_max_norm: null, advice: "" },
  loss_scaling: { verdict: "unknown", severity: "ok", num_skipped: 0, skip_rate: null, last_scale: null, min_scale: null, advice: "" },
  nonfinite: { num_steps: 0, bursts: [] },
  findings: [],
  ...more,
});

test("a run that recorded no norm is not told that they were finite", () => {
  const [, , found] = verdictsOf(diagnosisOf({ range: { first_step: 0, last_step: 99, num_steps: 100, num_finite: 0 } }));
  assert.deepEqual([found.word, found.tone, found.lead], ["Not recorded", "quiet", "No gradient norm was recorded."]);
});

test("where every norm was finite, it says so", () => {
  const [, , found] = verdictsOf(diagnosisOf({}));
  assert.deepEqual([found.word, found.tone, found.lead], ["None", "healthy", "Every gradient norm was finite."]);
});

test("steps too old to be looked at are not told to be finite, nor to be the loss scaler's", () => {
  const [, , found] = verdictsOf(diagnosisOf({ nonfinite: { num_steps: 30, bursts: [] } }));
  assert.deepEqual([found.word, found.lead, found.rest], ["30\u00a0steps", "Earlier in the run, not among its newest steps.", ""]);
});

test("in a list, a run without norms is quiet", () => {
  const run = { last: {}, num_nonfinite: 0, num_clipped: 0, verdict: { clipping: { verdict: "unknown" } } };
  const points = { step: [0], max_norm: [null], num_nonfinite: [0] };
  assert.equal(hasNorms(run), false);
  assert.equal(hasNorms({ ...run, sparkline: { ...points, norm: [null] } }), false);
  assert.equal(hasNorms({ ...run, sparkline: { ...points, norm: [0.5] } }), true);
  const summary = { nonfinite: { num_steps: 0, severity: "ok" } };
  assert.equal(badgeOf(summary, "nonfinite", false).tone, "quiet");
  assert.equal(badgeOf(summary, "nonfinite", true).tone, "healthy");
});

test("what is grave in another stream than the one on screen is named with that stream, and only that", () => {
  const calm = { verdict: "healthy", severity: "ok", stream: "main" };
  const summary = { clipping: { verdict: "too_tight", severity: "warning", stream: "main/*" }, loss_scaling: calm, nonfinite: { num_steps: 0, severity: "ok" }, worst: null };
  assert.deepEqual(graveElsewhere(summary, "main"), [{ stream: "main/*", name: "clipping", tone: "warning", word: "Too tight" }]);
  assert.deepEqual(graveElsewhere(summary, "main/*"), []);
  const worst = { code: "run_dead", severity: "critical", stream: "other" };
  assert.deepEqual(graveElsewhere({ ...summary, clipping: calm, worst }, "main").map(({ stream, word }) => [stream, word]), [["other", "Run dead"]]);
});
