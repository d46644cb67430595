/** <run-timeline>: what happened to the run, the newest first. Event `zoom`: the steps around one. */

import { h } from "../lib/dom.js";
import { integer } from "../lib/format.js";
import { t } from "../lib/texts.js";

/** More would not be read: zooming in shows them in the lane. */
const MOST = 60;

export class RunTimeline extends HTMLElement {
  #list = h("ol");
  #details = h("details", {}, h("summary", {}, t("timeline.title")), this.#list);
  #shown = "";

  connectedCallback() {
    if (this.firstChild) return;
    this.dataset.ownGestures = "";
    this.#details.open = matchMedia("(min-width: 1024px)").matches;
    this.append(this.#details);
    this.hidden = !this.#shown;
  }

  /** @param {import("../lib/timeline.js").Moment[]} moments */
  show(moments) {
    const shown = JSON.stringify(moments);
    if (shown === this.#shown) return;
    this.#shown = shown;
    this.hidden = !moments.length;
    this.#list.replaceChildren(...moments.slice(0, MOST).map((moment) => h("li", { "data-tone": moment.tone, "data-kind": moment.kind }, this.#step(moment), h("span", {}, moment.words))));
  }

  /** @param {import("../lib/timeline.js").Moment} moment */
  #step({ step, steps }) {
    if (step === null) return h("span", { class: "muted" }, "–");
    const button = h("button", { type: "button", class: "link", "aria-label": t("steps.show", { steps: t("steps.one", { step: integer(step) }) }) }, integer(step));
    button.addEventListener("click", () => this.dispatchEvent(new CustomEvent("zoom", { detail: steps ?? [step, step], bubbles: true })));
    return button;
  }
}

export const registerRunTimeline = () => customElements.define("run-timeline", RunTimeline);
