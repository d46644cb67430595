/** <alert-rule>: one rule, to be changed and tried out. Method `show`; events `draft`: {kind, draft}, `preview`: kind. */

import { h, setText } from "../lib/dom.js";
import { counted, integer, percent, plain } from "../lib/format.js";
import { runPath } from "../lib/router.js";
import { drafted, FIELDS, fits, withValue } from "../lib/rule-draft.js";
import { t } from "../lib/texts.js";

/** @type {AlertSeverity[]} */
const SEVERITIES = ["info", "warning", "critical"];

/** @param {AlertRule} rule @param {RuleField} name @param {number} value */
function withUnit(rule, name, value) {
  const unit = /** @type {"steps"} */ (rule.limits[name]?.unit ?? "scale");
  return t(`rules.brief.${unit}`, { value: plain(value), percent: percent(value, 1) });
}

export class AlertRuleRow extends HTMLElement {
  #on = h("input", { type: "checkbox" });
  #brief = h("span", { class: "rule-brief muted" });
  #origin = h("span", { class: "rule-origin muted rule-brief" });
  #severity = h("select", {}, ...SEVERITIES.map((severity) => h("option", { value: severity }, t(`alert.severity.${severity}`))));
  /** @type {Map<RuleField, HTMLInputElement>} */
  #inputs = new Map();
  #warnings = h("div");
  #reset = h("button", { type: "button", class: "button small" }, t("rules.reset"));
  #try = h("button", { type: "button", class: "button small" }, t("rules.preview"));
  #preview = h("div", { class: "rule-preview", role: "status", hidden: true });
  #details = h("details");
  /** @type {AlertRule | null} */
  #rule = null;
  /** @type {import("../lib/rule-draft.js").Draft} */
  #draft = {};

  /** @param {AlertRule} rule @param {import("../lib/rule-draft.js").Draft} draft */
  show(rule, draft) {
    const isFirst = !this.#rule;
    this.#rule = rule;
    this.#draft = draft;
    if (isFirst) this.#build(rule);
    const now = drafted(rule, draft);
    this.#details.dataset.enabled = String(now.enabled);
    this.#on.checked = Boolean(now.enabled);
    this.#severity.value = now.severity ?? "warning";
    for (const [name, input] of this.#inputs) if (document.activeElement !== input) input.value = now[name] === null ? "" : String(now[name]);
    const brief = FIELDS.filter((name) => rule.limits[name] && name !== "cool_down_s" && now[name] !== null && (name !== "sustain" || now[name] !== 1));
    setText(this.#brief, brief.map((name) => `${t(`rules.field.${name}`).toLowerCase()} ${withUnit(rule, name, /** @type {number} */ (now[name]))}`).join(" · "));
    setText(this.#origin, t(`rules.origin.${rule.origin}`));
    this.#warnings.replaceChildren(...rule.warnings.map((words) => h("p", { class: "warning-line" }, words)));
    this.#reset.hidden = !Object.keys(draft).length;
  }

  /** @param {AlertRule} rule */
  #build(rule) {
    const name = t(`alert.kind.${rule.kind}`);
    this.dataset.kind = rule.kind;
    this.#on.setAttribute("aria-label", t("rules.on", { name }));
    this.#on.addEventListener("change", () => this.#set("enabled", this.#on.checked));
    this.#severity.addEventListener("change", () => this.#set("severity", /** @type {AlertSeverity} */ (this.#severity.value)));
    this.#reset.addEventListener("click", () => this.#tell({}));
    this.#try.addEventListener("click", () => this.dispatchEvent(new CustomEvent("preview", { detail: rule.kind, bubbles: true })));
    this.#details.append(
      h("summary", {}, h("span", {}, h("span", { class: "rule-name" }, name), " ", this.#brief), this.#origin),
      h("div", { class: "rule-body" },
        h("p", { class: "muted" }, t(`rules.about.${rule.kind}`)),
        h("div", { class: "rule-fields" },
          h("label", { class: "rule-field" }, t("rules.severity"), this.#severity),
          ...FIELDS.flatMap((field) => (rule.limits[field] ? [this.#field(rule, field)] : []))),
        this.#warnings, h("div", { class: "rule-buttons" }, this.#try, this.#reset), this.#preview),
    );
    this.append(this.#on, this.#details);
  }

  /** @param {AlertRule} rule @param {RuleField} name */
  #field(rule, name) {
    const limits = /** @type {NonNullable<AlertRule["limits"][RuleField]>} */ (rule.limits[name]);
    const input = h("input", { type: "number", min: limits.least, max: limits.most, step: limits.is_whole ? 1 : "any", required: true });
    this.#inputs.set(name, input);
    input.addEventListener("change", () => {
      const value = input.valueAsNumber;
      if (!fits(limits, value)) return input.reportValidity();
      this.#set(name, value);
      return true;
    });
    const standard = rule.default[name];
    const unit = t(/** @type {"rules.unit.steps"} */ (`rules.unit.${limits.unit}`));
    return h("label", { class: "rule-field" }, t(`rules.field.${name}`), input, h("small", {}, `${unit}${standard === null ? "" : ` · ${t("rules.default", { value: plain(standard) })}`}`));
  }

  /** @template {keyof RuleNumbers} K @param {K} name @param {RuleNumbers[K]} value */
  #set(name, value) {
    if (this.#rule) this.#tell(withValue(this.#rule, this.#draft, name, value));
  }

  /** @param {import("../lib/rule-draft.js").Draft} draft */
  #tell(draft) {
    if (this.#rule) this.dispatchEvent(new CustomEvent("draft", { detail: { kind: this.#rule.kind, draft }, bubbles: true }));
  }

  /** What a trial found, its problem, or null while it runs. @param {RulePreview | string | null} found */
  showPreview(found) {
    this.#preview.hidden = false;
    this.#try.disabled = found === null;
    if (found === null) return setText(this.#preview, t("rules.preview.running"));
    if (typeof found === "string") return setText(this.#preview, found);
    const { num_fired, runs, covered, warnings } = found;
    const looked = { runs: counted(covered.num_runs, t("runs.run"), t("runs.runs")), steps: counted(covered.num_steps, t("rules.step"), t("rules.steps")) };
    const times = counted(num_fired, t("rules.time"), t("rules.times"));
    this.#preview.replaceChildren(
      h("span", {}, num_fired ? t("rules.preview.fired", { ...looked, times, count: integer(runs.length) }) : t("rules.preview.none", looked), covered.is_complete ? "" : ` ${t("rules.preview.part")}`),
      h("ul", {}, ...runs.map((run) => h("li", {}, h("a", { href: runPath(run.run_id) }, `${run.project} / ${run.run_name}`), ` ${counted(run.num_fired, t("rules.time"), t("rules.times"))}${run.first_step === null ? "" : `, ${t("steps.one", { step: integer(run.first_step) })}`}`))),
      ...warnings.map((words) => h("p", { class: "warning-line" }, words)),
    );
  }
}

export const registerAlertRule = () => customElements.define("alert-rule", AlertRuleRow);
