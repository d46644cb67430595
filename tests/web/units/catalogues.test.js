/** Each language's catalogue has what the English one has, place for place. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { LANGUAGES, languageOf } from "../../../web/lib/language.js";
import english from "../../../web/texts/en.js";

const PARTS = ["page", "runs", "imports", "compare", "alerts", "settings", "run", "charts", "verdicts", "what-if", "evidence"];

/** @param {string} text */
const placesOf = (text) => [...text.matchAll(/\{(\w+)\}/g)].map(([place]) => place).sort();

for (const language of Object.keys(LANGUAGES)) {
  test(`${language} has the keys of the English catalogue, and their places`, async () => {
    const texts = (await import(`../../../web/texts/${language}.js`)).default;
    assert.deepEqual(Object.keys(texts).sort(), Object.keys(english).sort());
    for (const [key, text] of Object.entries(texts)) {
      assert.equal(typeof text, "string", key);
      assert.deepEqual(placesOf(text), placesOf(english[key]), key);
    }
  });

  test(`no two parts of ${language} say the same key`, async () => {
    const parts = await Promise.all(PARTS.map((part) => import(`../../../web/texts/${language}/${part}.js`)));
    const keys = parts.flatMap((part) => Object.keys(part.default));
    assert.equal(new Set(keys).size, keys.length);
    assert.equal(keys.length, Object.keys(english).length);
  });
}

test("the first language that is spoken here wins, else English", () => {
  assert.equal(languageOf([null, "fr-CA", "zh-TW", "en-GB"]), "zh");
  assert.equal(languageOf(["en-GB", "zh"]), "en");
  assert.equal(languageOf(["toString"]), "en");
  assert.equal(languageOf([]), "en");
});
