/** <verdict-badge>: a verdict as a mark and a word, for a list. Property `badge`: {tone, word}. */

import { h } from "../lib/dom.js";
import { toneMark } from "../lib/marks.js";

export class VerdictBadge extends HTMLElement {
  #shown = "";

  set badge(/** @type {{tone: import("../lib/verdicts.js").Tone, word: string}} */ { tone, word }) {
    const shown = `${tone} ${word}`;
    if (shown === this.#shown) return;
    this.#shown = shown;
    this.dataset.tone = tone;
    this.title = word;
    const isCalm = tone === "neutral" || tone === "quiet";
    this.replaceChildren(isCalm ? h("span", { class: "no-mark" }) : toneMark(tone), h("span", {}, word));
  }
}

export const registerVerdictBadge = () => customElements.define("verdict-badge", VerdictBadge);
