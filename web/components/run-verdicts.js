/** <run-verdicts>: the three verdicts, and under them why, for the one that is asked. */

import { h, setText } from "../lib/dom.js";
import { t } from "../lib/texts.js";
import { VERDICTS } from "../lib/verdicts.js";

export class RunVerdicts extends HTMLElement {
  #cards = VERDICTS.map(() => h("verdict-card"));
  #title = h("h2", { tabindex: -1 });
  #close = h("button", { type: "button", class: "button small" }, t("why.close"));
  #why = h("finding-why");
  #panel = h("section", { class: "card why", id: "why", hidden: true }, h("header", {}, this.#title, this.#close), this.#why);
  /** @type {import("../lib/verdicts.js").Verdict[]} */
  #verdicts = [];
  /** @type {import("../lib/verdicts.js").VerdictName | null} */
  #open = null;

  connectedCallback() {
    if (this.firstChild) return;
    this.append(h("div", { class: "verdicts", role: "group", "aria-label": t("verdict.label") }, ...this.#cards), this.#panel);
    this.addEventListener("why", (event) => this.#toggle(/** @type {CustomEvent} */ (event).detail));
    this.#close.addEventListener("click", () => this.#toggle(this.#open));
    this.#panel.addEventListener("keydown", (event) => event.key === "Escape" && this.#toggle(this.#open));
  }

  /** @param {import("../lib/verdicts.js").Verdict[]} verdicts */
  show(verdicts) {
    this.#verdicts = verdicts;
    verdicts.forEach((verdict, i) => (this.#cards[i].verdict = verdict));
    this.#showWhy();
  }

  /** Opens at a verdict's evidence, and stays so while the verdict is being read. @param {import("../lib/verdicts.js").VerdictName} name */
  openAt(name) {
    this.#open = name;
    this.#showWhy();
  }

  /** @param {import("../lib/verdicts.js").VerdictName | null} name */
  #toggle(name) {
    const closed = this.#open === name ? name : null;
    this.#open = closed ? null : name;
    this.#showWhy();
    if (closed) this.#cards[VERDICTS.indexOf(closed)].focusWhy();
    else this.#title.focus({ preventScroll: true });
  }

  #showWhy() {
    const verdict = this.#verdicts.find(({ name }) => name === this.#open);
    this.#cards.forEach((card, i) => (card.expanded = Boolean(verdict?.reason) && VERDICTS[i] === this.#open));
    this.#panel.hidden = !verdict?.reason;
    if (!verdict?.reason) return;
    this.#panel.dataset.verdict = verdict.name;
    setText(this.#title, t("why.title", { name: t(`verdict.${verdict.name}`), title: verdict.reason.title }));
    this.#why.reason = verdict.reason;
  }
}

export const registerRunVerdicts = () => customElements.define("run-verdicts", RunVerdicts);
