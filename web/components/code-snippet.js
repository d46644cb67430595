/** <code-snippet>: lines of code with a button that copies them. Property `code`. */

import { copyButton } from "../lib/clipboard.js";
import { h, setText } from "../lib/dom.js";

export class CodeSnippet extends HTMLElement {
  #lines = h("code");

  set code(/** @type {string} */ code) {
    setText(this.#lines, code);
  }

  connectedCallback() {
    if (this.firstChild) return;
    this.append(h("pre", { tabindex: 0 }, this.#lines), copyButton(this.#lines));
  }
}

export const registerCodeSnippet = () => customElements.define("code-snippet", CodeSnippet);
