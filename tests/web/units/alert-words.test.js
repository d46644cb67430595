/** What an alert says, and where its steps are seen. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { alertPath, alertTitle } from "../../../web/lib/alert-words.js";

const alert = (more) => ({ kind: "norm_spike", evidence: {}, layer: null, title: "as the server says", run_id: "a", first_step: 100, last_step: null, stream: "main", ...more });

test("an alert is told from its numbers, with the layer where there is one", () => {
  const evidence = { norm: 43.21, median: 0.561, ratio: 77.03 };
  assert.equal(alertTitle(alert({ evidence })), "The gradient norm rose to 43.2, 77.0 times the usual 0.561");
  assert.equal(alertTitle(alert({ evidence, layer: "head" })), "The gradient norm rose to 43.2, 77.0 times the usual 0.561, first in head");
  const rate = { rate: 0.5, window: 1200 };
  assert.equal(alertTitle(alert({ kind: "skip_rate", evidence: rate })), "50\u00a0% of the newest 1,200 optimizer steps were skipped");
});

test("silence is told by whether the process is alive", () => {
  assert.match(alertTitle(alert({ kind: "silent_run", evidence: { silence: 45.4, is_crashed: 1 } })), /^Nothing was heard for 45 s/);
  assert.match(alertTitle(alert({ kind: "silent_run", evidence: { silence: 45, is_crashed: 0 } })), /^No step for 45 s, but/);
});

test("where a number is missing, or the kind is new, the server's words stand", () => {
  assert.equal(alertTitle(alert({ evidence: { norm: 1 } })), "as the server says");
  assert.equal(alertTitle(alert({ kind: "of_tomorrow" })), "as the server says");
});

test("an alert leads to its steps, with some before and after, and to its stream", () => {
  assert.equal(alertPath(alert({})), "/runs/a?steps=80-120");
  assert.equal(alertPath(alert({ first_step: 5, last_step: 105, stream: "critic" })), "/runs/a?stream=critic&steps=0-205");
  assert.equal(alertPath(alert({ first_step: null })), "/runs/a");
});
