/** <theme-picker>: light, dark, or as the system has it. */

import { h } from "../lib/dom.js";
import { t } from "../lib/texts.js";
import { chooseTheme, chosenTheme, THEMES } from "../lib/theme.js";

export class ThemePicker extends HTMLElement {
  #buttons = THEMES.map((theme) => h("button", { type: "button", "data-theme": theme }, t(`theme.${theme}`)));

  connectedCallback() {
    if (this.firstChild) return;
    this.append(h("div", { class: "segments", role: "group", "aria-label": t("theme.label") }, ...this.#buttons));
    this.#buttons.forEach((button, i) => button.addEventListener("click", () => {
      chooseTheme(THEMES[i]);
      this.#show();
    }));
    this.#show();
  }

  #show() {
    this.#buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(THEMES[i] === chosenTheme())));
  }
}

export const registerThemePicker = () => customElements.define("theme-picker", ThemePicker);
