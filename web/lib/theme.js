/** Light or dark: as the system has it, or as the person chose. The page wears it as `data-theme` on its root. */

import { remember, remembered } from "./memory.js";

/** @typedef {"system" | "light" | "dark"} ThemeChoice */

/** @type {ThemeChoice[]} */
export const THEMES = ["system", "light", "dark"];

const dark = matchMedia("(prefers-color-scheme: dark)");
const changes = new EventTarget();
dark.addEventListener("change", wear);
// Another tab chose.
addEventListener("storage", ({ key }) => key === "gradsight.theme" && wear());

/** @returns {ThemeChoice} */
export function chosenTheme() {
  return THEMES.find((theme) => theme === remembered("theme")) ?? "system";
}

/** @param {ThemeChoice} choice */
export function chooseTheme(choice) {
  remember("theme", choice === "system" ? null : choice);
  wear();
}

/** @param {() => void} listener called once the page wears another theme @param {AbortSignal} signal */
export function onThemeChange(listener, signal) {
  changes.addEventListener("change", listener, { signal });
}

function wear() {
  const root = document.documentElement;
  const choice = chosenTheme();
  const theme = choice === "system" ? (dark.matches ? "dark" : "light") : choice;
  if (root.dataset.theme === theme) return;
  root.dataset.theme = theme;
  changes.dispatchEvent(new Event("change"));
}
