/** <drawing-picker>: log or linear, how smooth. Event `draw`: the new drawing. */

import { h } from "../lib/dom.js";
import { SCALE_CHOICES, SMOOTHINGS } from "../lib/drawing.js";
import { t } from "../lib/texts.js";

export class DrawingPicker extends HTMLElement {
  #scale = h("select", { "aria-label": t("drawing.scale") }, ...SCALE_CHOICES.map((name) => h("option", { value: name }, t(`drawing.scale.${name}`))));
  #smoothing = h("select", { "aria-label": t("drawing.smoothing"), title: t("drawing.smoothing.why") }, ...SMOOTHINGS.map((points) => h("option", { value: points }, points ? t("drawing.smoothing.points", { points }) : t("drawing.smoothing.none"))));

  connectedCallback() {
    if (this.firstChild) return;
    this.append(this.#scale, this.#smoothing);
    this.addEventListener("change", () => {
      const scale = this.#scale.value === "auto" ? null : this.#scale.value;
      this.dispatchEvent(new CustomEvent("draw", { detail: { scale, smoothing: Number(this.#smoothing.value) }, bubbles: true }));
    });
  }

  set drawing(/** @type {Drawing} */ { scale, smoothing }) {
    this.#scale.value = scale ?? "auto";
    this.#smoothing.value = String(smoothing);
  }
}

export const registerDrawingPicker = () => customElements.define("drawing-picker", DrawingPicker);
