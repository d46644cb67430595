/** <control-offer>: sets the threshold that is tried on the live run, where its training allows that. */

import { putControl } from "../lib/api.js";
import { h, setText } from "../lib/dom.js";
import { maxNorm } from "../lib/format.js";
import { t } from "../lib/texts.js";

export class ControlOffer extends HTMLElement {
  #ask = h("button", { type: "button", class: "button" });
  #yes = h("button", { type: "button", class: "button primary" }, t("control.yes"));
  #no = h("button", { type: "button", class: "button" }, t("control.no"));
  #question = h("p");
  #sure = h("div", { class: "control-sure", hidden: true }, this.#question, this.#yes, this.#no);
  #said = h("p", { class: "control-said", role: "status" });
  /** @type {{runId: string, stream: string, threshold: number} | null} */
  #offer = null;

  connectedCallback() {
    if (this.firstChild) return;
    this.dataset.ownGestures = "";
    this.hidden = true;
    this.append(this.#ask, this.#sure, this.#said);
    this.#ask.addEventListener("click", () => this.#be(true));
    this.#no.addEventListener("click", () => this.#be(false));
    this.#yes.addEventListener("click", () => this.#put());
  }

  /** @param {{runId: string, stream: string, threshold: number} | null} offer null where nothing can be set */
  set offer(offer) {
    this.hidden = !offer;
    if (offer?.threshold !== this.#offer?.threshold) {
      this.#be(false);
      setText(this.#said, "");
    }
    this.#offer = offer;
    if (offer) setText(this.#ask, t("control.ask", { threshold: maxNorm(offer.threshold) }));
  }

  /** @param {boolean} sure whether it asks once more */
  #be(sure) {
    this.#sure.hidden = !sure;
    this.#ask.hidden = sure;
    if (sure && this.#offer) setText(this.#question, t("control.sure", { threshold: maxNorm(this.#offer.threshold), stream: this.#offer.stream }));
  }

  async #put() {
    if (!this.#offer) return;
    const { runId, stream, threshold } = this.#offer;
    this.#yes.disabled = true;
    try {
      await putControl(runId, { max_norm: threshold, stream, pattern: null });
      setText(this.#said, t("control.done", { threshold: maxNorm(threshold) }));
    } catch (error) {
      setText(this.#said, t("control.refused", { reason: error instanceof Error ? error.message : String(error) }));
    }
    this.#yes.disabled = false;
    this.#be(false);
  }
}

export const registerControlOffer = () => customElements.define("control-offer", ControlOffer);
