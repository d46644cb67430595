/** <step-axis>: the step labels, once for all charts above it, and the scale that places them. */

import { linearValues } from "../lib/axes.js";
import { h } from "../lib/dom.js";
import { stepLabel } from "../lib/format.js";
import { StepScale } from "../lib/step-scale.js";
import { t } from "../lib/texts.js";

const TICK_PX = 96;

export class StepAxis extends HTMLElement {
  #labels = h("div", { class: "step-labels" });
  /** @type {[number, number]} */
  #steps = [0, 1];

  connectedCallback() {
    if (this.firstChild) return;
    this.setAttribute("aria-hidden", "true");
    this.append(h("span", { class: "axis-name" }, t("charts.step")), this.#labels);
  }

  /** @param {[number, number]} steps on screen @returns {number[]} those that are labelled */
  draw(steps) {
    this.#steps = steps;
    const { scale } = this;
    const [first, last] = steps;
    const { values, spacing } = linearValues(first, Math.max(last, first + 1), Math.max(2, Math.floor(scale.width / TICK_PX)), true);
    const shown = values.filter((step) => step <= last + 0.5);
    this.#labels.replaceChildren(
      ...shown.map((step) => {
        const label = h("span", {}, stepLabel(step, spacing));
        label.style.left = `${scale.pixelAt(step)}px`;
        return label;
      }),
    );
    return shown;
  }

  /** What is written under the charts, as `draw` gave the steps. */
  get labels() {
    return [...this.#labels.children].map((label) => label.textContent ?? "");
  }

  /** Space left and right of all plots. */
  get margin() {
    const style = getComputedStyle(this);
    return { left: parseFloat(style.getPropertyValue("--plot-left")), right: parseFloat(style.getPropertyValue("--plot-right")) };
  }

  get scale() {
    const { left, right } = this.margin;
    return new StepScale(this.#steps, left, Math.max(1, this.clientWidth - left - right));
  }
}

export const registerStepAxis = () => customElements.define("step-axis", StepAxis);
