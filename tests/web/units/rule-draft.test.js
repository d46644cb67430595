/** Alert rules while somebody changes them. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { changesOf, draftOf, drafted, fits, isChanged, withValue } from "../../../web/lib/rule-draft.js";

const none = { enabled: null, severity: null, threshold: null, window: null, sustain: null, least_s: null, cool_down_s: null };
const rule = (values, change = {}) => ({
  kind: "skip_rate", origin: "default", limits: {}, warnings: [],
  ...none, enabled: true, severity: "warning", threshold: 0.1, window: 200, ...values,
  change: { ...none, ...change }, default: { ...none, enabled: true, severity: "warning", threshold: 0.1, window: 200 },
});

test("a value that is set is a change, and set back it is none", () => {
  const one = rule({});
  const changed = withValue(one, draftOf(one), "threshold", 0.5);
  assert.deepEqual(changed, { threshold: 0.5 });
  assert.equal(drafted(one, changed).threshold, 0.5);
  assert.deepEqual(withValue(one, changed, "threshold", 0.1), {});
});

test("what the scope has changed already goes along, and back to default takes it out", () => {
  const one = rule({ threshold: 0.4 }, { threshold: 0.4 });
  const kept = new Map([["skip_rate", draftOf(one)]]);
  assert.equal(isChanged([one], kept), false);
  assert.deepEqual(changesOf(kept), [{ kind: "skip_rate", threshold: 0.4 }]);
  const reset = new Map([["skip_rate", {}]]);
  assert.equal(isChanged([one], reset), true);
  assert.deepEqual(changesOf(reset), []);
  assert.equal(drafted(one, {}).threshold, 0.1);
});

test("what a wider scope has set holds until it is set here", () => {
  const inherited = rule({ threshold: 0.7 });
  assert.equal(drafted(inherited, {}).threshold, 0.7);
  assert.deepEqual(withValue(inherited, {}, "threshold", 0.7), {});
  assert.deepEqual(withValue(inherited, {}, "enabled", false), { enabled: false });
});

test("numbers stand within their limits only", () => {
  const limits = { least: 1, most: 10, is_whole: true };
  assert.deepEqual([1, 10, 0, 11, 2.5, NaN].map((value) => fits(limits, value)), [true, true, false, false, false, false]);
  assert.equal(fits({ ...limits, is_whole: false }, 2.5), true);
});
