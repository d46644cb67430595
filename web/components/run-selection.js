/** <run-selection>: what can be done with the runs that are picked. Method `show`; events `compare`, `archive` (whether), `tag`, `delete`, `unpick`. */

import { COMPARED } from "../lib/comparing.js";
import { h, setText } from "../lib/dom.js";
import { counted } from "../lib/format.js";
import { t } from "../lib/texts.js";

export class RunSelection extends HTMLElement {
  #count = h("strong", { role: "status" });
  #compare = this.#button("compare");
  #archive = this.#button("archive");
  #tag = this.#button("tag");
  #delete = this.#button("delete");
  #clear = this.#button("unpick");
  #archives = true;

  connectedCallback() {
    if (this.firstChild) return;
    this.setAttribute("role", "toolbar");
    this.setAttribute("aria-label", t("picked.label"));
    this.#delete.classList.add("danger");
    this.append(this.#count, this.#compare, this.#tag, this.#archive, this.#delete, this.#clear);
  }

  /** @param {RunSummary[]} runs */
  show(runs) {
    this.hidden = !runs.length;
    if (!runs.length) return;
    this.#archives = runs.some((run) => !run.archived);
    const [fewest, most] = COMPARED;
    setText(this.#count, t("picked.count", { runs: counted(runs.length, t("runs.run"), t("runs.runs")) }));
    setText(this.#archive, t(this.#archives ? "picked.archive" : "picked.unarchive"));
    this.#compare.disabled = runs.length < fewest || runs.length > most;
    this.#compare.title = this.#compare.disabled ? t("picked.compare.why") : "";
  }

  /** @param {"compare" | "archive" | "tag" | "delete" | "unpick"} event */
  #button(event) {
    const button = h("button", { type: "button", class: "button" }, t(`picked.${event}`));
    button.addEventListener("click", () => this.dispatchEvent(new CustomEvent(event, { detail: this.#archives, bubbles: true })));
    return button;
  }
}

export const registerRunSelection = () => customElements.define("run-selection", RunSelection);
