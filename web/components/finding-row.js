/** <finding-row>: one finding: how grave, what, at which steps, what to do; opened, its numbers and rule. Property `finding`. */

import { blocksOf } from "../lib/advice.js";
import { h, setText } from "../lib/dom.js";
import { toneMark } from "../lib/marks.js";
import { t } from "../lib/texts.js";
import { reasonOf, stepWords } from "../lib/verdicts.js";

export class FindingRow extends HTMLElement {
  #mark = h("span", { class: "finding-mark" });
  #title = h("span", { class: "finding-title" });
  #toggle = h("button", { type: "button", class: "finding-toggle", "aria-expanded": "false" }, this.#mark, this.#title);
  #steps = h("button", { type: "button", class: "link finding-steps" });
  #advice = h("p", { class: "finding-advice" });
  #why = h("finding-why");
  #body = h("div", { class: "finding-body", hidden: true }, this.#why);
  /** @type {[number, number] | null} */
  #range = null;

  connectedCallback() {
    if (this.firstChild) return;
    this.append(h("div", { class: "finding-head" }, this.#toggle, this.#steps), this.#advice, this.#body);
    this.#toggle.addEventListener("click", () => {
      this.#body.hidden = !this.#body.hidden;
      this.#toggle.setAttribute("aria-expanded", String(!this.#body.hidden));
    });
    this.#steps.addEventListener("click", () => this.dispatchEvent(new CustomEvent("zoom", { detail: this.#range, bubbles: true })));
  }

  set finding(/** @type {Finding} */ finding) {
    const reason = reasonOf(finding);
    this.dataset.code = finding.code;
    if (this.dataset.severity !== finding.severity) {
      this.dataset.severity = finding.severity;
      const severe = finding.severity === "warning" || finding.severity === "critical";
      this.#mark.replaceChildren(toneMark(severe ? /** @type {"warning"} */ (finding.severity) : "neutral", 14), h("span", { class: "visually-hidden" }, `${t(`findings.severity.${finding.severity}`)}: `));
    }
    setText(this.#title, finding.title);
    this.#range = reason.steps;
    this.#steps.hidden = !reason.steps;
    if (reason.steps) {
      const steps = stepWords(...reason.steps);
      setText(this.#steps, steps);
      this.#steps.title = t("steps.show", { steps });
    }
    const [first] = blocksOf(finding.advice);
    setText(this.#advice, first?.text.replace(/:$/, ".") ?? "");
    this.#why.reason = reason;
  }
}

export const registerFindingRow = () => customElements.define("finding-row", FindingRow);
