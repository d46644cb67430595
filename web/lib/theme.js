/** Light or dark: as the system has it, or as the person chose; light on paper. The page wears it as `data-theme` on its root. */

import { remember, remembered } from "./memory.js";

/** @typedef {"system" | "light" | "dark"} ThemeChoice */

/** @type {ThemeChoice[]} */
export const THEMES = ["system", "light", "dark"];

const dark = matchMedia("(prefers-color-scheme: dark)");
const paper = matchMedia("print");
const changes = new EventTarget();
let isPrinting = false;
dark.addEventListener("change", wear);
paper.addEventListener("change", wear);
// Said before the page is laid out for paper: the charts are drawn again in time.
addEventListener("beforeprint", () => print(true));
addEventListener("afterprint", () => print(false));
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

/** Whether the page is laid out for paper: what is drawn must be there at once. */
export function wearsPaper() {
  return document.documentElement.hasAttribute("data-paper");
}

/** @param {() => void} listener called once the page wears another theme, or goes to paper or comes from there @param {AbortSignal} signal */
export function onThemeChange(listener, signal) {
  changes.addEventListener("change", listener, { signal });
}

/** @param {boolean} begins */
function print(begins) {
  isPrinting = begins;
  wear();
}

function wear() {
  const root = document.documentElement;
  const isOnPaper = isPrinting || paper.matches;
  const choice = isOnPaper ? "light" : chosenTheme();
  const theme = choice === "system" ? (dark.matches ? "dark" : "light") : choice;
  if (root.dataset.theme === theme && isOnPaper === wearsPaper()) return;
  root.dataset.theme = theme;
  root.toggleAttribute("data-paper", isOnPaper);
  changes.dispatchEvent(new Event("change"));
}
