/** <delete-dialog>: asks before runs are deleted for good. Method `ask`, event `confirm`. */

import { h, setText } from "../lib/dom.js";
import { counted, integer } from "../lib/format.js";
import { t } from "../lib/texts.js";

const NAMES_SHOWN = 5;

export class DeleteDialog extends HTMLElement {
  #title = h("h2", { id: "delete-title" });
  #names = h("ul", { class: "dialog-names" });
  #what = h("label", { for: "delete-typed" });
  #typed = h("input", { type: "text", id: "delete-typed", autocomplete: "off", spellcheck: "false" });
  #delete = h("button", { type: "submit", class: "button danger" }, t("delete.do"));
  #cancel = h("button", { type: "button", class: "button" }, t("dialog.cancel"));
  #form = h("form", { method: "dialog" },
    this.#title, h("p", {}, t("delete.words")), this.#names, this.#what, this.#typed,
    h("div", { class: "dialog-buttons" }, this.#cancel, this.#delete));
  #dialog = h("dialog", { class: "card dialog", "aria-labelledby": "delete-title" }, this.#form);
  /** What must be typed. */
  #word = "";

  connectedCallback() {
    if (this.firstChild) return;
    this.append(this.#dialog);
    this.#cancel.addEventListener("click", () => this.#dialog.close());
    this.#typed.addEventListener("input", () => this.#check());
    this.#form.addEventListener("submit", (event) => {
      if (this.#typed.value.trim() !== this.#word) return event.preventDefault();
      this.dispatchEvent(new CustomEvent("confirm", { bubbles: true }));
    });
  }

  /** @param {RunSummary[]} runs */
  ask(runs) {
    this.#word = runs.length === 1 ? runs[0].name.trim() : String(runs.length);
    setText(this.#title, t("delete.title", { runs: counted(runs.length, t("runs.run"), t("runs.runs")) }));
    setText(this.#what, t(runs.length === 1 ? "delete.type.name" : "delete.type.count", { word: this.#word }));
    const more = runs.length - NAMES_SHOWN;
    this.#names.replaceChildren(
      ...runs.slice(0, NAMES_SHOWN).map(({ project, name }) => h("li", {}, h("span", { class: "muted" }, `${project} / `), h("bdi", {}, name))),
      ...(more > 0 ? [h("li", { class: "muted" }, t("delete.more", { count: integer(more) }))] : []),
    );
    this.#typed.value = "";
    this.#check();
    this.#dialog.showModal();
    this.#typed.focus();
  }

  #check() {
    this.#delete.disabled = this.#typed.value.trim() !== this.#word;
  }
}

export const registerDeleteDialog = () => customElements.define("delete-dialog", DeleteDialog);
