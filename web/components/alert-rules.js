/** <alert-rules>: the rules of all projects or of one: changed here, tried on recorded runs, saved together. */

import { ApiError, getAlertRules, getProjects, previewRule, putAlertRules } from "../lib/api.js";
import { h } from "../lib/dom.js";
import { changesOf, draftOf, drafted, isChanged } from "../lib/rule-draft.js";
import { t } from "../lib/texts.js";
import { sayToast } from "../lib/toasts.js";

const PREVIEW_DAYS = 7;

export class AlertRulesCard extends HTMLElement {
  #life = new AbortController();
  #scope = h("select", { id: "rules-scope" }, h("option", { value: "" }, t("rules.scope.all")));
  #list = h("div", { class: "rule-list" });
  #problem = h("p", { class: "problem", role: "alert", hidden: true });
  #save = h("button", { type: "button", class: "button primary" }, t("rules.save"));
  #revert = h("button", { type: "button", class: "button" }, t("rules.revert"));
  #bar = h("div", { class: "rules-save", hidden: true }, this.#revert, this.#save);
  /** @type {AlertRule[]} */
  #rules = [];
  /** @type {Map<AlertKind, import("../lib/rule-draft.js").Draft>} */
  #drafts = new Map();

  connectedCallback() {
    this.#life = new AbortController();
    const { signal } = this.#life;
    this.classList.add("card", "settings-card");
    this.replaceChildren(
      h("header", {}, h("h2", {}, t("rules.title")), h("label", { class: "choice" }, t("rules.scope"), " ", this.#scope)),
      this.#problem, this.#list, this.#bar,
    );
    this.#scope.addEventListener("change", () => this.#read(), { signal });
    this.#save.addEventListener("click", () => this.#put(), { signal });
    this.#revert.addEventListener("click", () => this.#take(this.#rules), { signal });
    this.addEventListener("draft", (event) => {
      const { kind, draft } = /** @type {CustomEvent} */ (event).detail;
      this.#drafts.set(kind, draft);
      this.#show();
    }, { signal });
    this.addEventListener("preview", (event) => this.#preview(/** @type {CustomEvent<AlertKind>} */ (event).detail), { signal });
    this.#read();
    getProjects(signal).then(({ items }) => this.#scope.append(...items.map(({ project }) => h("option", { value: `=${project}` }, t("rules.scope.project", { name: project })))), () => null);
  }

  disconnectedCallback() {
    this.#life.abort();
  }

  get #project() {
    return this.#scope.value ? this.#scope.value.slice(1) : null;
  }

  async #read() {
    const { signal } = this.#life;
    try {
      this.#take((await getAlertRules(this.#project, signal)).items);
      this.#problem.hidden = true;
    } catch (error) {
      if (signal.aborted) return;
      const retry = h("button", { type: "button", class: "button small" }, t("retry"));
      retry.addEventListener("click", () => this.#read());
      this.#problem.replaceChildren(`${t("rules.error")} ${words(error)} `, retry);
      this.#problem.hidden = false;
    }
  }

  /** @param {AlertRule[]} rules */
  #take(rules) {
    this.#rules = rules;
    this.#drafts = new Map(rules.map((rule) => [rule.kind, draftOf(rule)]));
    this.#show();
  }

  #show() {
    for (const rule of this.#rules) this.#row(rule.kind).show(rule, this.#drafts.get(rule.kind) ?? {});
    this.#bar.hidden = !isChanged(this.#rules, this.#drafts);
  }

  /** @param {AlertKind} kind */
  #row(kind) {
    const found = [...this.#list.querySelectorAll("alert-rule")].find((row) => row.dataset.kind === kind);
    return found ?? this.#list.appendChild(h("alert-rule"));
  }

  async #put() {
    this.#save.disabled = true;
    try {
      this.#take((await putAlertRules(this.#project, changesOf(this.#drafts))).items);
      sayToast({ tone: "healthy", title: t("rules.saved") });
    } catch (error) {
      sayToast({ tone: "critical", title: t("rules.save.failed"), words: words(error) });
    }
    this.#save.disabled = false;
  }

  /** @param {AlertKind} kind */
  async #preview(kind) {
    const rule = this.#rules.find((one) => one.kind === kind);
    if (!rule) return;
    const row = this.#row(kind);
    row.showPreview(null);
    const now = drafted(rule, this.#drafts.get(kind) ?? {});
    const given = Object.fromEntries(Object.entries({ ...now, enabled: true }).filter(([, value]) => value !== null));
    try {
      row.showPreview(await previewRule(this.#project, { kind, ...given }, PREVIEW_DAYS));
    } catch (error) {
      row.showPreview(words(error));
    }
  }
}

/** @param {unknown} error */
function words(error) {
  return error instanceof ApiError ? error.message : String(error);
}

export const registerAlertRules = () => customElements.define("alert-rules", AlertRulesCard);
