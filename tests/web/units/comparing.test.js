/** What differs between runs, and their curves. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { absenceOf, curvesOf, extentOf, marksOf, nearest, pathOf, settingsOf, spanOf } from "../../../web/lib/comparing.js";

const run = (config, record = {}) => ({ config, streams_detail: { main: { record } }, total_steps: 10, world_size: null, frameworks: {}, tags: [] });

test("settings that differ come first, nested ones by their path, absent ones as null", () => {
  const rows = settingsOf([run({ lr: 1, model: { d: 4 } }, { policy: "value(1)" }), run({ lr: 1, model: { d: 8, heads: 2 } }, { policy: "value(1)" })]);
  assert.deepEqual(rows.filter(({ differs }) => differs).map(({ key, values }) => [key, values]), [
    ["config.model.d", ["4", "8"]],
    ["config.model.heads", [null, "2"]],
  ]);
  assert.deepEqual(rows.filter(({ differs }) => !differs).map(({ key }) => key), ["policy", "total_steps", "config.lr"]);
});

const series = (step, mean, wall_time_s = step) => {
  const column = { mean, min: mean, max: mean, num_nonfinite: [] };
  return { step, wall_time_s, bucket_steps: 1, columns: { loss: column } };
};

test("a run that lacks the column has no curve, and keeps its number", () => {
  const curves = curvesOf([series([0, 1], [null, null]), series([5, 6], [1, 2])], "loss", null, "step");
  assert.deepEqual(curves.map(({ run, x, y }) => [run, x, y]), [[1, [5, 6], [1, 2]]]);
});

test("by time each run begins at zero", () => {
  const [one, two] = curvesOf([series([0, 1], [1, 2], [100, 103]), series([7, 8], [1, 2], [null, 900])], "loss", null, "time");
  assert.deepEqual([one.x, two.x], [[0, 3], [NaN, 0]]);
  assert.deepEqual(spanOf([one, two]), [0, 3]);
});

test("the extent leaves out what lies outside, and on a log axis what has no logarithm", () => {
  const curves = curvesOf([series([0, 1, 2], [-1, 4, 900])], "loss", null, "step");
  assert.deepEqual(extentOf(curves, [0, 1], false), [-1, 4]);
  assert.deepEqual(extentOf(curves, [0, 1], true), [4, 4]);
  assert.equal(extentOf(curves, [50, 60], false), null);
});

test("a path breaks where nothing is, and a point alone still shows", () => {
  const same = (value) => value;
  assert.equal(pathOf([0, 1, 2, 3], [1, NaN, 2, 3], same, same), "M0.0 1.0h0.1M2.0 2.0L3.0 3.0");
});

test("the nearest point is found among gaps", () => {
  assert.equal(nearest([0, NaN, 10], 6), 2);
  assert.equal(nearest([NaN], 6), -1);
});

test("a run without a line says why", () => {
  const run = { streams: ["main"] };
  const series = (mean, num_nonfinite) => ({ stream: "main", columns: { grad_norm_before_clip: { mean, num_nonfinite } } });
  assert.equal(absenceOf(run, series([null, 1], [3, 0]), "main"), null);
  assert.equal(absenceOf(run, series([null, null], [3, 2]), "main"), "nonfinite");
  assert.equal(absenceOf(run, series([null], [0]), "main"), "norms");
  assert.equal(absenceOf({ streams: ["generator"] }, series([], []), "main"), "stream");
  assert.equal(absenceOf(run, series([], []), "generator"), null);
});

test("marks stand where norms were not finite or steps were skipped, by step or by time", () => {
  const series = (num_nonfinite, num_skipped) => ({ step: [0, 16, 32], wall_time_s: [50, 60, 75], columns: { grad_norm_before_clip: { num_nonfinite } }, num_skipped });
  const runs = [series([0, 0, 0], [0, 0, 0]), series([0, 3, 0], [0, 2, 1])];
  assert.deepEqual(marksOf(runs, "step"), [{ run: 1, nonfinite: [16], skipped: [16, 32] }]);
  assert.deepEqual(marksOf(runs, "time"), [{ run: 1, nonfinite: [10], skipped: [10, 25] }]);
});
