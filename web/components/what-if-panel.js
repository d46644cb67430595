/** <what-if-panel>: what a threshold would have done to the norms on screen, in numbers. Event `try`: a threshold, null for the one in force. */

import { h, setText } from "../lib/dom.js";
import { integer, maxNorm, number, percent } from "../lib/format.js";
import { t } from "../lib/texts.js";

const STEP = 1.02;

export class WhatIfPanel extends HTMLElement {
  #field = h("input", { type: "number", id: "what-if-max-norm", min: "0", step: "any", inputmode: "decimal", autocomplete: "off", "aria-describedby": "what-if-wrong" });
  #reset = h("button", { type: "button", class: "link" });
  #recommended = h("button", { type: "button", class: "button small recommended" });
  #bar = h("span", { class: "bar", "aria-hidden": "true" }, h("span"));
  #clipped = h("p");
  #coef = h("p");
  #spikes = h("p");
  #wrong = h("p", { class: "what-if-notes what-if-wrong", id: "what-if-wrong", role: "status" });
  #notes = h("p", { class: "what-if-notes" });
  #results = h("div", { class: "what-if-results", role: "status" }, this.#clipped, this.#coef, this.#spikes);
  /** @type {import("../lib/what-if-model.js").WhatIfModel | null} */
  #model = null;

  connectedCallback() {
    if (this.firstChild) return;
    this.dataset.ownGestures = "";
    const label = h("label", { for: "what-if-max-norm" }, h("span", { class: "what-if-title" }, t("whatif.title")), h("span", { class: "muted" }, " max_norm"));
    this.append(
      h("div", { class: "what-if-head" }, label, this.#reset), h("div", { class: "what-if-controls" }, this.#field, this.#recommended), this.#wrong, this.#bar, this.#results, this.#notes,
    );
    this.#field.addEventListener("input", () => this.#typed());
    this.#field.addEventListener("blur", () => {
      if (this.#isWrong && this.#model) this.show(this.#model); // back to what the figures are of
    });
    this.#field.addEventListener("keydown", (event) => this.#key(event));
    this.#reset.addEventListener("click", () => this.#try(null));
    this.#recommended.addEventListener("click", () => {
      const range = this.#model?.recommended;
      if (range) this.#try(Math.sqrt(range.low * range.high));
    });
  }

  /** @param {import("../lib/what-if-model.js").WhatIfModel} model */
  show(model) {
    this.#model = model;
    const { trial, line, inForce, isTrial, recommended, answers, answer, share } = model;
    const isTyping = document.activeElement === this.#field;
    if (!isTyping || !(this.#isWrong || Number(this.#field.value) === trial)) this.#field.value = line === null ? "" : String(Number(line.toPrecision(3)));
    if (!isTyping || !this.#isWrong) this.#sayWrong(false);
    this.#reset.hidden = trial === null;
    setText(this.#reset, inForce === null ? t("whatif.reset") : t("whatif.reset.to", { threshold: maxNorm(inForce) }));
    this.#recommended.hidden = !recommended;
    if (recommended) {
      const range = `${maxNorm(Number(recommended.low.toPrecision(3)))}–${maxNorm(Number(recommended.high.toPrecision(3)))}`;
      setText(this.#recommended, t("whatif.recommended", { range }));
      this.#recommended.title = t("whatif.recommended.why");
    }
    this.dataset.trial = String(isTrial);
    /** @type {HTMLElement} */ (this.#bar.firstChild).style.width = `${100 * (share ?? 0)}%`;
    this.#showAnswer(answer, isTrial ? (answers.inForce?.value ?? null) : null);
  }

  /** @param {import("../lib/what-if-model.js").Answer | null} answer @param {WhatIf | null} now */
  #showAnswer(answer, now) {
    const value = answer?.value;
    this.#results.classList.toggle("is-waiting", !answer);
    if (answer?.problem) {
      this.#clipped.replaceChildren(t("whatif.error", { reason: answer.problem }));
      this.#coef.replaceChildren();
      this.#spikes.replaceChildren();
    }
    if (value) {
      say(this.#clipped, percent(value.clip_fraction ?? NaN), t("whatif.clipped"), now && percent(now.clip_fraction ?? NaN));
      say(this.#coef, number(value.mean_clip_coef, 2), t("whatif.coef"), now && number(now.mean_clip_coef, 2));
      const caught = (/** @type {WhatIf} */ { num_spikes, num_spikes_clipped }) => t("whatif.caught", { clipped: integer(num_spikes_clipped), all: integer(num_spikes) });
      if (value.num_spikes) say(this.#spikes, caught(value), t("whatif.spikes"), now && caught(now));
      else this.#spikes.replaceChildren(t("whatif.spikes.none"));
    }
    const replayed = value ? t("whatif.notes.of", { count: integer(value.num_finite) }) : t("whatif.notes");
    const whose = answer && /\(.*\(/.test(answer.clip) ? [t("whatif.notes.own")] : [];
    setText(this.#notes, [...whose, replayed, ...(value?.notes.slice(1) ?? [])].join(" "));
  }

  #typed() {
    const threshold = Number(this.#field.value);
    const isRight = Boolean(this.#field.value) && threshold > 0 && Number.isFinite(threshold);
    this.#sayWrong(!isRight);
    if (isRight) this.#try(threshold, false);
  }

  get #isWrong() {
    return this.#field.hasAttribute("aria-invalid");
  }

  /** What was typed is no threshold: the figures stay, and say whose they are. @param {boolean} isWrong */
  #sayWrong(isWrong) {
    if (isWrong) this.#field.setAttribute("aria-invalid", "true");
    else this.#field.removeAttribute("aria-invalid");
    this.#results.classList.toggle("is-before", isWrong);
    const line = this.#model?.line ?? null;
    const whose = line === null ? "" : t("whatif.before", { threshold: maxNorm(Number(line.toPrecision(3))) });
    setText(this.#wrong, isWrong ? `${t("whatif.wrong")} ${whose}` : "");
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.key === "Escape") {
      this.#sayWrong(false);
      this.#try(null);
    }
    const direction = event.key === "ArrowUp" ? 1 : event.key === "ArrowDown" ? -1 : 0;
    const from = Number(this.#field.value);
    if (!direction || !(from > 0)) return;
    event.preventDefault();
    this.#try(from * STEP ** direction);
  }

  /** @param {number | null} threshold @param {boolean} [rounded] what was typed is taken as it is */
  #try(threshold, rounded = true) {
    const detail = threshold !== null && rounded ? Number(threshold.toPrecision(3)) : threshold;
    this.dispatchEvent(new CustomEvent("try", { detail, bubbles: true }));
  }
}

/** @param {HTMLElement} line @param {string} value @param {string} words @param {string | null} now */
function say(line, value, words, now) {
  const then = now === null || now === value ? "" : t("whatif.now", { value: now });
  const text = `${value} ${words}${then}`;
  if (line.textContent === text) return;
  line.replaceChildren(h("strong", {}, value), ` ${words}`, then && h("span", { class: "muted" }, then));
}

export const registerWhatIfPanel = () => customElements.define("what-if-panel", WhatIfPanel);
