/** <tags-dialog>: the tags of one or more runs, ticked, or added by name. Method `ask`; event `tags`: {add, remove}. */

import { h, setText } from "../lib/dom.js";
import { counted } from "../lib/format.js";
import { t } from "../lib/texts.js";

export class TagsDialog extends HTMLElement {
  #title = h("h2", { id: "tags-title" });
  #known = h("div", { class: "tag-choices" });
  #typed = h("input", { type: "text", id: "tags-typed", autocomplete: "off", spellcheck: "false", maxlength: 256 });
  #cancel = h("button", { type: "button", class: "button" }, t("dialog.cancel"));
  #form = h("form", { method: "dialog" },
    this.#title, this.#known, h("label", { for: "tags-typed" }, t("tags.add")), this.#typed,
    h("div", { class: "dialog-buttons" }, this.#cancel, h("button", { type: "submit", class: "button primary" }, t("tags.do"))));
  #dialog = h("dialog", { class: "card dialog", "aria-labelledby": "tags-title" }, this.#form);

  connectedCallback() {
    if (this.firstChild) return;
    this.append(this.#dialog);
    this.#cancel.addEventListener("click", () => this.#dialog.close());
    this.#form.addEventListener("submit", () => this.#tell());
  }

  /** @param {RunSummary[]} runs @param {string[]} offered tags of other runs */
  ask(runs, offered) {
    setText(this.#title, t("tags.title", { runs: counted(runs.length, t("runs.run"), t("runs.runs")) }));
    const tags = new Set([...runs.flatMap((run) => run.tags), ...offered]);
    this.#known.replaceChildren(...[...tags].sort().map((tag) => choice(tag, runs.filter((run) => run.tags.includes(tag)).length, runs.length)));
    this.#typed.value = "";
    this.#dialog.showModal();
    this.#typed.focus();
  }

  #tell() {
    const boxes = [...this.#known.querySelectorAll("input")].filter(({ indeterminate }) => !indeterminate);
    const typed = this.#typed.value.split(",").map((word) => word.trim()).filter(Boolean);
    const detail = {
      add: [...boxes.filter(({ checked }) => checked).map(({ value }) => value), ...typed],
      remove: boxes.filter(({ checked }) => !checked).map(({ value }) => value),
    };
    this.dispatchEvent(new CustomEvent("tags", { detail, bubbles: true }));
  }
}

/** @param {string} tag @param {number} carried by how many of the runs @param {number} all */
function choice(tag, carried, all) {
  const box = h("input", { type: "checkbox", value: tag });
  box.checked = carried === all;
  box.indeterminate = carried > 0 && carried < all;
  return h("label", { class: "tag-choice" }, box, tag);
}

export const registerTagsDialog = () => customElements.define("tags-dialog", TagsDialog);
