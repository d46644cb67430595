/** Filters of the list: in the address, and for live changes as the server would decide. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { addressOf, filterOf, matches, narrows } from "../../../web/lib/run-filter.js";
import { secondsLeft } from "../../../web/lib/run-order.js";
import { comparePath, routeOf } from "../../../web/lib/router.js";

const filter = (address) => filterOf(new URLSearchParams(address));
const run = { id: "ab".repeat(16), project: "LM", name: "Base-1", tags: ["Prod"], status: "running", archived: false };

test("a filter survives the address, and nonsense falls back", () => {
  const one = filter("q=a%26b&status=failed&project=&tag=x&sort=name");
  assert.deepEqual(filter(new URLSearchParams(Object.entries(addressOf(one)).filter(([, value]) => value !== null))), one);
  assert.equal(one.project, "");
  assert.equal(filter(`q=${"x".repeat(300)}`).q.length, 256); // the server takes no more
  assert.deepEqual(filter("status=odd&sort=odd"), { q: "", status: null, project: null, tag: null, sort: "severity" });
  assert.equal(narrows(filter("sort=name")), false);
});

for (const [address, expected] of [
  ["", true], ["q=BASE", true], ["q=lm", true], ["q=abab", true], ["q=zz", false], ["status=running", true], ["status=failed", false],
  ["status=archived", false], ["project=LM", true], ["project=lm", false], ["tag=prod", true], ["tag=pro", false],
]) {
  test(`a run ${expected ? "fits" : "does not fit"} “${address}”`, () => assert.equal(matches(filter(address), run), expected));
}

test("an archived run is listed by that word only", () => {
  assert.equal(matches(filter("status=archived"), { ...run, archived: true }), true);
  assert.equal(matches(filter(""), { ...run, archived: true }), false);
});

test("how long is left is known only of a run that moves towards an end", () => {
  const moving = { state: "running", last_step: 49, total_steps: 100, steps_per_s: 2 };
  assert.equal(secondsLeft(moving), 25);
  for (const change of [{ state: "silent" }, { last_step: null }, { total_steps: null }, { steps_per_s: 0 }, { last_step: 120 }]) {
    assert.equal(secondsLeft({ ...moving, ...change }), null);
  }
});

test("addresses lead to pages", () => {
  assert.deepEqual(["/", "/runs/a%20b", "/compare", "/settings/", "/alerts", "/nope", "/compare/x", "/runs/", "/runs/a/b", "/runs/a%2Fb", "/runs/%E0%A4%A"].map((path) => routeOf(path).page), ["runs", "run", "compare", "settings", "alerts", "nowhere", "nowhere", "nowhere", "nowhere", "nowhere", "nowhere"]);
  assert.equal(comparePath(["a", "b"]), "/compare?runs=a,b");
});
