/** The page loads itself anew at most once a minute. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { mayReload } from "../../../web/lib/reloading.js";

for (const [before, expected] of [[null, true], ["oops", true], ["100000", false], ["40001", false], ["40000", true]]) {
  test(`after a reload at ${before} another at 100000 ${expected ? "may" : "may not"} be`, () => assert.equal(mayReload(before, 100_000), expected));
}
