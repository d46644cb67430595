/** <layer-picker>: a list of the layers, to see one by itself. Event `layer`: its name. */

import { h } from "../lib/dom.js";
import { t } from "../lib/texts.js";

export class LayerPicker extends HTMLElement {
  #list = h("select", { "aria-label": t("layers.pick") });
  #shown = "";

  connectedCallback() {
    if (this.firstChild) return;
    this.dataset.ownGestures = "";
    this.append(this.#list);
    this.#list.addEventListener("change", () => {
      this.dispatchEvent(new CustomEvent("layer", { detail: this.#list.value, bubbles: true }));
      this.#list.selectedIndex = 0;
    });
  }

  set layers(/** @type {string[]} */ layers) {
    const shown = layers.join("\n");
    if (shown === this.#shown) return;
    this.#shown = shown;
    this.#list.replaceChildren(h("option", { value: "" }, t("layers.pick")), ...layers.map((name) => h("option", { value: name }, name)));
  }
}

export const registerLayerPicker = () => customElements.define("layer-picker", LayerPicker);
