/** <chart-overlay>: what lies over all charts: the cross-hair with its step, the stretch that is dragged over, the steps a finding is about. */

import { h, setText } from "../lib/dom.js";
import { integer } from "../lib/format.js";

/** @typedef {import("../lib/step-scale.js").StepScale} StepScale */

export class ChartOverlay extends HTMLElement {
  #flag = h("span", { class: "step-flag", hidden: true });
  #hair = h("div", { class: "cross-hair", hidden: true });
  #selection = h("div", { class: "selection", hidden: true });
  #marked = h("div", { class: "marked", hidden: true });

  connectedCallback() {
    if (this.firstChild) return;
    this.append(this.#hair, this.#marked, this.#selection, this.#flag);
  }

  /** @param {{first: number, last: number} | null} reading the steps pointed at @param {StepScale} scale @param {number | null} y of the pointer */
  point(reading, scale, y) {
    this.#hair.hidden = this.#flag.hidden = !reading;
    if (!reading) return;
    const pixel = Math.round(scale.pixelAt(Math.max(reading.first, scale.first)));
    setText(this.#flag, this.step(reading));
    this.#hair.style.transform = `translateX(${pixel}px)`;
    // On the side where there is room, clear of the pointer.
    const onLeft = pixel > scale.left + scale.width / 2;
    this.#flag.style.transform = `translate(${pixel + (onLeft ? -8 : 8)}px, ${Math.max(2, (y ?? 0) - 26)}px) translateX(${onLeft ? "-100%" : "0"})`;
  }

  /** @param {{first: number, last: number}} reading */
  step({ first, last }) {
    return last > first ? `${integer(first)}–${integer(last)}` : integer(first);
  }

  /** @param {[number, number] | null} ends in pixels, of the stretch that is dragged over @param {StepScale} scale */
  select(ends, scale) {
    this.#selection.hidden = !ends;
    if (ends) stretch(this.#selection, .../** @type {[number, number]} */ (ends.map((x) => scale.clamp(x)).sort((a, b) => a - b)));
  }

  /** @param {[number, number] | null} steps @param {StepScale} scale */
  mark(steps, scale) {
    const [first, last] = steps ?? [0, -1];
    const [low, high] = [scale.clamp(scale.pixelAt(first - 0.5)), scale.clamp(scale.pixelAt(last + 0.5))];
    this.#marked.hidden = !steps || high <= low;
    stretch(this.#marked, low, Math.max(low + 2, high));
  }
}

/** @param {HTMLElement} element @param {number} low @param {number} high */
function stretch(element, low, high) {
  element.style.left = `${low}px`;
  element.style.width = `${high - low}px`;
}

export const registerChartOverlay = () => customElements.define("chart-overlay", ChartOverlay);
