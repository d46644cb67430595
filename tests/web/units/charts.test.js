/** What the charts are made from: smoothing, tables, growth, places of steps, the run's story. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { linearTicks, linearValues, logTicks } from "../../../web/lib/axes.js";
import { csvOf, fileName, tableOf } from "../../../web/lib/chart-table.js";
import { drawingFromAddress, drawingToAddress, NATURAL, smoothed } from "../../../web/lib/drawing.js";
import { extendFigure } from "../../../web/lib/figure-growth.js";
import { metricFigures, rowNames } from "../../../web/lib/figures.js";
import { cutInside, shortNames } from "../../../web/lib/layer-names.js";
import { StepScale } from "../../../web/lib/step-scale.js";
import { momentsOf } from "../../../web/lib/timeline.js";

const line = (role, x, y, more = {}) => ({ role, key: role, x, y, axis: "y", shape: "linear", live: null, attempt: null, ...more });
const figureOf = (name, traces, more = {}) => ({
  name, position: 0, bucket_steps: 1, first_step: 0, last_step: 9, log: true, range: null, traces, heat: null, launches: [], num_appended: 0, num_missed: 0, ...more,
});

test("a smoothed line keeps its ends, its gaps and its level", () => {
  const found = smoothed([1, 1, 4, 1, 1, NaN, 1], 3, false);
  assert.equal(found[0], 1);
  assert.equal(found[2], 2);
  assert.ok(Number.isNaN(found[5]));
  assert.deepEqual(smoothed([1, 2, 3], 0, false), [1, 2, 3]);
});

test("on a log axis a spike does not lift the whole line", () => {
  assert.ok(smoothed([1, 1, 1000, 1, 1], 3, true)[2] < 11);
});

test("how charts draw is in the address, and nonsense there is not taken", () => {
  const drawing = { scale: "linear", smoothing: 20 };
  const kept = new URLSearchParams(Object.entries(drawingToAddress(drawing)));
  assert.deepEqual(drawingFromAddress(kept), drawing);
  assert.deepEqual(drawingFromAddress(new URLSearchParams("y=cubic&smooth=-3")), NATURAL);
});

test("a table has a row for each step on screen, and a column for each line and mark", () => {
  const norm = figureOf("norm", [line("series", [0, 1, 2], [0.5, NaN, 2]), line("clipped", [2], [2])]);
  assert.deepEqual(tableOf(norm, [1, 2]), { columns: ["step", "mean", "clipped"], rows: [[1, "", ""], [2, 2, 1]] });
});

test("a map's table has a column for each layer", () => {
  const heat = { x: [0, 10], layers: ["a", "b"], z: [[0, 1], [NaN, 2]], bucket_steps: 10, floor: -3 };
  assert.deepEqual(tableOf(figureOf("layers", [], { heat }), [0, 19]), { columns: ["step", "a", "b"], rows: [[0, 1, ""], [10, 10, 100]] });
});

test("names in CSV stay names, whatever they hold", () => {
  const text = csvOf({ columns: ["step", 'a,"b"', "=cmd()"], rows: [[1, -2, ""]] });
  assert.equal(text, 'step,"a,""b""",\'=cmd()\r\n1,-2,\r\n');
  assert.equal(fileName("../../etc", "a b/c"), "etc_a-b-c");
});

test("two fingers keep the steps under them", () => {
  const scale = new StepScale([0, 99], 100, 1000);
  assert.deepEqual(scale.pinched([300, 700], [100, 1100]).map(Math.round), [20, 60]);
});

test("each metric is a figure of its own, under the loss", () => {
  const data = ["val_loss", "accuracy"].map((metric) => ({ role: "series", key: "metrics.mean", metric, bucket_steps: 4, x: [0], y: [1], live: null }));
  const found = metricFigures({ name: "metrics", stream: "main", attempt: null, position: 3, bucket_steps: 4, first_step: 0, last_step: 9, data, layout: {} });
  assert.deepEqual(found.map(({ name, position }) => [name, position]), [["metric:val_loss", 3], ["metric:accuracy", 3]]);
  const names = rowNames(found.map(({ name }) => name), ["w"]);
  assert.equal(names.indexOf("metric:val_loss"), names.indexOf("loss") + 1);
  assert.equal(names.at(-1), "layer:w");
});

test("a sampled column grows by the steps that have it", () => {
  const ratio = figureOf("update_ratio", [line("series", [0], [0.001], { live: { y: "update_ratio", sparse: true } })], { last_step: 0 });
  const tick = { steps: { step: [1, 2], update_ratio: [null, 0.002] }, layers: null };
  assert.equal(extendFigure(ratio, tick, Infinity), true);
  assert.deepEqual(ratio.traces[0].x, [0, 2]);
});

const RUN = { attempts: [{ number: 1, started_at_s: 0 }, { number: 2, started_at_s: 5 }] };
const known = { events: [], alerts: [], run: RUN, diagnosis: null, stream: "main", launches: [], norm: undefined };

test("a launch is told where it took over", () => {
  const launches = [{ attempt: 1, first_step: 0, last_step: 5, is_shown: true }, { attempt: 2, first_step: 6, last_step: 9, is_shown: true }];
  const [moment] = momentsOf({ ...known, launches });
  assert.deepEqual([moment.kind, moment.step], ["resume", 6]);
});

test("a threshold that was set anew is told, one that moves by itself is not", () => {
  const changes = (y) => momentsOf({ ...known, run: { attempts: [] }, norm: figureOf("norm", [line("threshold", y.map((_, i) => i), y)]) }).map(({ step }) => step);
  assert.deepEqual(changes([1, 1, NaN, 1, 0.5, 0.5]), [4]);
  assert.deepEqual(changes(Array.from({ length: 50 }, (_, i) => 1 + i / 100)), []);
});

test("an alert stands at its steps, and one that is over is quiet", () => {
  const alert = { id: 1, kind: "skip_streak", severity: "critical", first_step: 3, last_step: 7, title: "Five skips in a row", evidence: { num_steps: 5 } };
  const alerts = [{ ...alert, state: "open" }, { ...alert, state: "resolved" }];
  const moments = momentsOf({ ...known, run: { attempts: [] }, alerts });
  assert.deepEqual(moments.map(({ tone, steps }) => [tone, steps]), [["critical", [3, 7]], ["", [3, 7]]]);
});

test("ticks end, however large the steps are", () => {
  const largest = Number.MAX_SAFE_INTEGER;
  assert.ok(linearValues(largest, largest + 1, 8, true).values.length <= 3);
  assert.ok(linearValues(largest - 4, largest, 2, true).values.length <= 3);
  assert.deepEqual(linearValues(0, 40, 4, true).values, [0, 10, 20, 30, 40]);
  assert.ok(linearValues(1e300, 1.1e300, 5).values.length < 10);
});

test("a long name keeps both ends", () => {
  assert.equal(cutInside("head.weight", 22), "head.weight");
  const cut = cutInside("model.layers.12.mlp.experts.7.w1.weight", 22);
  assert.equal(cut, "model.laye…7.w1.weight");
  assert.equal([...cut].length, 22);
});

test("long names lose what they have in common first", () => {
  const names = [0, 99].map((i) => `model.layers.${i}.mlp.experts.${i}.w1.weight`);
  assert.deepEqual(shortNames(names, 22), ["…0.mlp.experts.0…", "…99.mlp.experts.99…"]);
  assert.deepEqual(shortNames(["wte", "head.weight"], 22), ["wte", "head.weight"]);
  assert.deepEqual(shortNames(["a".repeat(30)], 9), ["aaaa…aaaa"]);
});

test("the ticks of one axis are written alike", () => {
  assert.deepEqual(logTicks([2e-4, 5e-3], 5).labels, ["2e-4", "5e-4", "1e-3", "2e-3", "5e-3"]);
  assert.deepEqual(logTicks([1e-5, 1e-2], 5).labels, ["10⁻⁵", "10⁻⁴", "10⁻³", "10⁻²"]);
  assert.deepEqual(logTicks([0.1, 100], 7).labels, ["0.1", "0.3", "1", "3", "10", "30", "100"]);
  assert.deepEqual(linearTicks([7e-4, 1.3e-3], 3).labels, ["8e-4", "1e-3", "1.2e-3"]);
  assert.deepEqual(linearTicks([0, 3e-4], 3).labels, ["0", "1e-4", "2e-4", "3e-4"]);
  assert.deepEqual(linearTicks([0, 1], 2).labels, ["0", "0.5", "1"]);
});
