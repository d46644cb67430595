/** The texts of the page in the language that the person reads. */

import english from "../texts/en.js";
import { language } from "./language.js";

/** @typedef {keyof typeof english} TextKey */

/** @type {Record<string, string>} a text that a language lacks is English */
const texts = { ...english, ...(await import(`../texts/${language}.js`)).default };

/** The text of a key that may have none. @param {string} key @returns {string | null} */
export function knownText(key) {
  return texts[key] ?? null;
}

/**
 * The text of a key with its `{places}` filled in; an unknown key shows itself, so that it is noticed and mended.
 * @param {TextKey} key
 * @param {Record<string, string | number>} [values]
 */
export function t(key, values = {}) {
  const text = texts[key] ?? key;
  return text.replace(/\{(\w+)\}/g, (place, name) => (name in values ? String(values[name]) : place));
}
