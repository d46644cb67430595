/** <verdict-card>: one verdict: a word, the sentence with the numbers, what to do. Property `verdict`. Event `why`: its name. */

import { h, setText } from "../lib/dom.js";
import { toneMark } from "../lib/marks.js";
import { t } from "../lib/texts.js";

export class VerdictCard extends HTMLElement {
  #name = h("h2", { class: "verdict-name" });
  #mark = h("span", { class: "verdict-mark" });
  #word = h("span");
  #tone = h("span", { class: "visually-hidden" });
  #lead = h("span");
  #layer = h("code");
  #rest = h("span");
  #facts = h("p", { class: "verdict-lead" }, this.#lead, this.#layer);
  #advice = h("p", { class: "verdict-rest" }, this.#rest);
  #why = h("button", { type: "button", class: "link", "aria-expanded": "false", "aria-controls": "why" }, t("verdict.why"));
  /** @type {import("../lib/verdicts.js").VerdictName} */
  #verdict = "clipping";

  connectedCallback() {
    if (this.firstChild) return;
    this.classList.add("card");
    this.setAttribute("role", "group");
    this.append(
      this.#name,
      h("p", { class: "verdict-word" }, this.#mark, this.#word, this.#tone),
      this.#facts,
      this.#advice,
    );
    this.#why.addEventListener("click", () => this.dispatchEvent(new CustomEvent("why", { detail: this.#verdict, bubbles: true })));
  }

  set verdict(/** @type {import("../lib/verdicts.js").Verdict} */ { name, tone, word, lead, layer, rest, reason }) {
    this.#verdict = name;
    setText(this.#name, t(`verdict.${name}`));
    this.setAttribute("aria-label", `${t(`verdict.${name}`)}: ${word}`);
    if (this.dataset.tone !== tone) {
      this.dataset.tone = tone;
      const isCalm = tone === "neutral" || tone === "quiet";
      this.#mark.replaceChildren(...(isCalm ? [] : [toneMark(tone, 18)]));
      setText(this.#tone, isCalm ? "" : `, ${t(`verdict.tone.${tone}`)}`);
    }
    setText(this.#word, word);
    setText(this.#lead, lead);
    setText(this.#layer, layer);
    this.#layer.hidden = !layer;
    setText(this.#rest, rest);
    this.#advice.hidden = !rest;
    const last = rest ? this.#advice : this.#facts;
    if (this.#why.parentNode !== last) last.append(" ", this.#why);
    this.#why.hidden = !reason;
    this.#why.setAttribute("aria-label", t("verdict.why.of", { word, name: t(`verdict.${name}`) }));
  }

  set expanded(/** @type {boolean} */ expanded) {
    this.#why.setAttribute("aria-expanded", String(expanded));
    this.classList.toggle("is-open", expanded);
  }

  focusWhy() {
    this.#why.focus();
  }
}

export const registerVerdictCard = () => customElements.define("verdict-card", VerdictCard);
