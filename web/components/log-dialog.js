/** <log-dialog>: the drop zone over the list of runs. Method `open`, with what was dropped on the page. */

import { h } from "../lib/dom.js";
import { t } from "../lib/texts.js";

export class LogDialog extends HTMLElement {
  #close = h("button", { type: "button", class: "button small" }, t("dialog.close"));
  #drop = h("log-drop");
  #dialog = h("dialog", { class: "card dialog wide", "aria-labelledby": "log-title" },
    h("header", {}, h("h2", { id: "log-title" }, t("drop.dialog")), this.#close), this.#drop);

  connectedCallback() {
    if (this.firstChild) return;
    this.append(this.#dialog);
    this.#close.addEventListener("click", () => this.#dialog.close());
    // A link to the run that was made leads away from here.
    this.#dialog.addEventListener("click", (event) => event.target instanceof Element && event.target.closest("a") && this.#dialog.close());
  }

  /** @param {DataTransfer | null} [dropped] */
  open(dropped = null) {
    if (!this.#dialog.open) this.#dialog.showModal();
    if (dropped) this.#drop.take(dropped);
  }
}

export const registerLogDialog = () => customElements.define("log-dialog", LogDialog);
