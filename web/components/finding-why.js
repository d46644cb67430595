/** <finding-why>: what stands behind a verdict or a finding: its numbers, its rule, code to try. Property `reason`. Event `zoom`: [first, last]. */

import { blocksOf } from "../lib/advice.js";
import { h } from "../lib/dom.js";
import { RULES } from "../lib/rules.js";
import { t } from "../lib/texts.js";
import { stepWords } from "../lib/verdicts.js";

export class FindingWhy extends HTMLElement {
  #shown = "";

  set reason(/** @type {import("../lib/verdicts.js").Reason} */ reason) {
    const shown = JSON.stringify(reason);
    if (shown === this.#shown) return;
    this.#shown = shown;
    const rule = RULES[reason.code];
    this.replaceChildren(
      reason.facts.length ? h("section", {}, h("h3", {}, t("why.numbers")), numbers(reason.facts)) : "",
      h("section", {},
        rule && h("h3", {}, t("why.rule")),
        rule && h("p", { class: "why-rule" }, `${rule.charAt(0).toUpperCase()}${rule.slice(1)}. `, h("code", { class: "muted" }, reason.code)),
        ...codeOf(reason.advice),
        reason.steps && this.#stepsButton(reason.steps),
      ),
    );
  }

  /** @param {[number, number]} steps */
  #stepsButton(steps) {
    const button = h("button", { type: "button", class: "button small" }, t("steps.show", { steps: stepWords(...steps) }));
    button.addEventListener("click", () => this.dispatchEvent(new CustomEvent("zoom", { detail: steps, bubbles: true })));
    return button;
  }
}

/** @param {import("../lib/evidence.js").Fact[]} facts */
function numbers(facts) {
  return h("dl", { class: "why-numbers" }, ...facts.map(({ name, value, note }) =>
    h("div", {}, h("dt", {}, name, note && h("span", { class: "muted" }, ` ${note}`)), h("dd", {}, value))));
}

/** The code in an advice, each with the sentence that leads to it. @param {string} advice */
function codeOf(advice) {
  const blocks = blocksOf(advice);
  return blocks.flatMap((block, i) => {
    if (block.kind !== "code") return [];
    const snippet = h("code-snippet");
    snippet.code = block.text;
    const after = blocks[i + 1];
    return [h("p", {}, leadTo(blocks[i - 1]?.text ?? "")), snippet, after?.kind === "words" ? h("p", { class: "muted" }, after.text) : h("span")];
  });
}

/** @param {string} words */
function leadTo(words) {
  return words.split(/(?<=[.!?])\s+(?=[A-Z])/).at(-1) ?? "";
}

export const registerFindingWhy = () => customElements.define("finding-why", FindingWhy);
