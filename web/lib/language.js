/** Which language the page speaks: that of the address, else the one chosen here before, else the browser's. */

import { remembered } from "./memory.js";

/** Code → what its readers call it. */
export const LANGUAGES = { en: "English", zh: "简体中文" };

/** @typedef {keyof typeof LANGUAGES} Language */

/** @param {(string | null | undefined)[]} wishes the dearest first, as in `zh-CN` @returns {Language} */
export function languageOf(wishes) {
  for (const wish of wishes) {
    const code = wish?.toLowerCase().split("-")[0];
    if (code && Object.hasOwn(LANGUAGES, code)) return /** @type {Language} */ (code);
  }
  return "en";
}

/** @type {Language} */
export const language = languageOf([new URLSearchParams(globalThis.location?.search).get("lang"), remembered("language"), ...(globalThis.navigator?.languages ?? [])]);

/** What the person chose here, null where the browser's languages decide. @returns {Language | null} */
export function chosenLanguage() {
  const code = remembered("language");
  return code && Object.hasOwn(LANGUAGES, code) ? /** @type {Language} */ (code) : null;
}

/** As the page's `lang` says it. */
export const LANGUAGE_TAG = { en: "en", zh: "zh-Hans" }[/** @type {"en" | "zh"} */ (language)];
