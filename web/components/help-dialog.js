/** <help-dialog>: the keys, opened by `?`. Method `open`. */

import { h } from "../lib/dom.js";
import { onKey } from "../lib/keys.js";
import { t } from "../lib/texts.js";

/** @type {[group: "everywhere" | "runs" | "run", keys: string[], text: string][]} */
const KEYS = [
  ["everywhere", ["?"], "help"],
  ["everywhere", ["g", "r"], "go.runs"],
  ["everywhere", ["g", "a"], "go.alerts"],
  ["everywhere", ["g", "s"], "go.settings"],
  ["runs", ["/"], "search"],
  ["runs", ["j"], "next"],
  ["runs", ["k"], "previous"],
  ["runs", ["Enter"], "open"],
  ["runs", ["x"], "pick"],
  ["runs", ["Esc"], "unpick"],
  ["run", ["←", "→"], "cross"],
  ["run", ["+", "−"], "zoom"],
  ["run", ["0"], "all"],
  ["run", ["Esc"], "hide"],
];

export class HelpDialog extends HTMLElement {
  #life = new AbortController();
  #close = h("button", { type: "button", class: "button small" }, t("dialog.close"));
  #dialog = h("dialog", { class: "card dialog", "aria-labelledby": "help-title" });

  connectedCallback() {
    this.#life = new AbortController();
    const { signal } = this.#life;
    const groups = /** @type {const} */ (["everywhere", "runs", "run"]);
    this.#dialog.replaceChildren(
      h("header", {}, h("h2", { id: "help-title" }, t("help.title")), this.#close),
      h("div", { class: "help-groups" }, ...groups.map((group) => h("section", {}, h("h3", {}, t(`help.${group}`)), h("dl", {}, ...linesOf(group))))),
    );
    this.replaceChildren(this.#dialog);
    this.#close.addEventListener("click", () => this.#dialog.close(), { signal });
    onKey("?", () => this.open(), signal);
  }

  disconnectedCallback() {
    this.#life.abort();
  }

  open() {
    if (!this.#dialog.open) this.#dialog.showModal();
  }
}

/** @param {string} group */
function linesOf(group) {
  return KEYS.filter(([of]) => of === group).flatMap(([, keys, text]) => [
    h("dt", {}, ...keys.map((key) => h("kbd", {}, key))),
    h("dd", {}, t(/** @type {import("../lib/texts.js").TextKey} */ (`help.${text}`))),
  ]);
}

export const registerHelpDialog = () => customElements.define("help-dialog", HelpDialog);
