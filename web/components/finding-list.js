/** <finding-list>: what was found beside the verdicts, the worst first. Event `zoom`: the steps a finding is about. */

import { h } from "../lib/dom.js";
import { t } from "../lib/texts.js";

export class FindingList extends HTMLElement {
  #rows = h("ul", { class: "finding-rows" });
  #shown = "";

  connectedCallback() {
    if (this.firstChild) return;
    this.classList.add("card");
    this.append(h("h2", {}, t("findings.title")), this.#rows);
    this.hidden = !this.#shown;
  }

  /** Rows are kept by code: one that somebody has opened stays open while its numbers change. @param {Finding[]} findings */
  show(findings) {
    const shown = JSON.stringify(findings);
    if (shown === this.#shown) return;
    this.#shown = shown;
    this.hidden = !findings.length;
    const rows = new Map([...this.#rows.querySelectorAll("finding-row")].map((row) => [row.dataset.code, row]));
    this.#rows.replaceChildren(...findings.map((finding) => {
      const row = rows.get(finding.code) ?? h("finding-row");
      rows.delete(finding.code);
      row.finding = finding;
      return h("li", {}, row);
    }));
  }
}

export const registerFindingList = () => customElements.define("finding-list", FindingList);
