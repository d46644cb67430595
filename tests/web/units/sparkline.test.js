/** The norm the size of a word. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { clippedOf, extended, pathsOf } from "../../../web/lib/sparkline.js";

const points = (norm, max_norm = norm.map(() => null), num_nonfinite = norm.map(() => 0)) => ({ step: norm.map((_, i) => 16 * i), norm, max_norm, num_nonfinite });
const at = (last_step, value, nonfinite = {}) => ({ last_step, last: { grad_norm_before_clip: value, max_norm: 1, nonfinite } });

test("the norm breaks where none was recorded, and bad steps are marked", () => {
  const { norm, threshold, marks } = pathsOf(points([1, 2, null, 4], [1, 1, 1, 1], [0, 0, 3, 0]), 120, 28);
  assert.equal(norm.match(/M/g).length, 2);
  assert.match(threshold, /^M0 [\d.]+H40V/);
  assert.deepEqual(marks, [80]);
});

test("a threshold far from all norms stays at the edge and leaves the norm its shape", () => {
  const { norm, threshold } = pathsOf(points([1, 3], [1e6, 1e6]), 120, 28);
  assert.match(threshold, /^M0 2H/);
  assert.equal(norm, "M0 26L120 2");
});

test("live steps widen the newest point until it is full, then begin another", () => {
  const start = points([1, 2]);
  const wider = extended(start, at(20, 5));
  assert.deepEqual([wider.step, wider.norm], [[0, 16], [1, 5]]);
  const longer = extended(wider, at(32, 3));
  assert.deepEqual([longer.step, longer.norm, longer.max_norm], [[0, 16, 32], [1, 5, 3], [null, 1, 1]]);
  assert.deepEqual(start.norm, [1, 2]);
});

test("a live NaN is a mark, and what was not recorded is nothing", () => {
  assert.deepEqual(extended(points([1]), at(1, null, { grad_norm_before_clip: "NaN" })).num_nonfinite, [0, 1]);
  assert.equal(extended(null, at(1, null)), null);
  assert.deepEqual(extended(null, at(1, 2)).norm, [2]);
});

test("hours of live steps do not grow without end, and keep their spikes", () => {
  let line = points([1]);
  for (let step = 1; step < 5000; step++) line = extended(line, at(step, step === 999 ? 50 : 1));
  assert.ok(line.step.length <= 160);
  assert.equal(Math.max(...line.norm), 50);
  assert.equal(line.step[0], 0);
});

test("the clipped share leaves out what a later attempt did again, also once live steps have come in", () => {
  const sparkline = extended({ ...points([1, 2]), num_replaced: 10, num_replaced_clipped: 4 }, at(32, 3));
  assert.deepEqual(clippedOf({ of_stream: { num_steps: 40, num_clipped: 9 }, sparkline }), { clipped: 5, steps: 30 });
  assert.deepEqual(clippedOf({ of_stream: { num_steps: 40, num_clipped: 9 } }), { clipped: 9, steps: 40 });
});
