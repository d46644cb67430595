/** <language-picker>: the language of the page; another one loads the page anew. */

import { h } from "../lib/dom.js";
import { chosenLanguage, LANGUAGES } from "../lib/language.js";
import { remember } from "../lib/memory.js";
import { t } from "../lib/texts.js";

export class LanguagePicker extends HTMLElement {
  #select = h("select", { "aria-label": t("language.label") },
    h("option", { value: "" }, t("language.system")), ...Object.entries(LANGUAGES).map(([code, name]) => h("option", { value: code, lang: code }, name)));

  connectedCallback() {
    if (this.firstChild) return;
    this.append(this.#select);
    this.#select.value = chosenLanguage() ?? "";
    this.#select.addEventListener("change", () => {
      remember("language", this.#select.value || null);
      const url = new URL(location.href);
      url.searchParams.delete("lang");
      location.replace(url);
    });
  }
}

export const registerLanguagePicker = () => customElements.define("language-picker", LanguagePicker);
