/** <alerts-page>: the alerts of all runs, the newest first, to be looked into and acknowledged. */

import { alertKey } from "../lib/alert-words.js";
import { acknowledge, ApiError, getAlerts } from "../lib/api.js";
import { forEach } from "../lib/bulk.js";
import { h, setText } from "../lib/dom.js";
import { openAlerts } from "../lib/open-alerts.js";
import { addressValues, rememberInAddress } from "../lib/router.js";
import { stream } from "../lib/stream.js";
import { t } from "../lib/texts.js";
import { sayToast } from "../lib/toasts.js";

const PAGE = 50;
/** The choices of the first filter, and what the server is asked for. */
const STATES = /** @type {const} */ ({ open: "open", now: "open,acknowledged", all: null });
const SEVERITIES = /** @type {const} */ ({ all: null, grave: "critical" });

export class AlertsPage extends HTMLElement {
  #life = new AbortController();
  #reading = new AbortController();
  #state = h("select", { "aria-label": t("alerts.filter.state") }, ...Object.keys(STATES).map((state) => h("option", { value: state }, t(/** @type {"alerts.state.open"} */ (`alerts.state.${state}`)))));
  #severity = h("select", { "aria-label": t("alerts.filter.severity") }, ...Object.keys(SEVERITIES).map((severity) => h("option", { value: severity }, t(/** @type {"alerts.severity.all"} */ (`alerts.severity.${severity}`)))));
  #all = h("button", { type: "button", class: "button" }, t("alerts.acknowledge.all"));
  #list = h("div", { class: "card alert-list", role: "list", "aria-label": t("alerts.title") });
  #message = h("div", { class: "notice", role: "status" });
  #more = h("button", { type: "button", class: "button more" }, t("alerts.more"));
  /** @type {Map<string, RunAlert>} */
  #alerts = new Map();
  /** @type {string | null} */
  #cursor = null;
  #isLoaded = false;

  connectedCallback() {
    this.#life = new AbortController();
    const { signal } = this.#life;
    document.title = `${t("alerts.title")} · ${t("app.name")}`;
    const address = addressValues();
    this.#state.value = Object.hasOwn(STATES, address.get("state") ?? "") ? String(address.get("state")) : "open";
    this.#severity.value = Object.hasOwn(SEVERITIES, address.get("severity") ?? "") ? String(address.get("severity")) : "all";
    this.replaceChildren(
      h("header", { class: "page-head" }, h("h1", {}, t("alerts.title")), h("div", { class: "page-tools" }, this.#all, this.#severity, this.#state)),
      this.#message, this.#list, this.#more,
    );
    for (const select of [this.#state, this.#severity]) select.addEventListener("change", () => this.#narrow(), { signal });
    this.#more.addEventListener("click", () => this.#read(this.#cursor), { signal });
    this.#all.addEventListener("click", () => this.#acknowledge([...this.#alerts.values()].filter(({ state }) => state === "open")), { signal });
    this.addEventListener("acknowledge", (event) => this.#acknowledge([/** @type {CustomEvent<RunAlert>} */ (event).detail]), { signal });
    stream().watchRuns((message) => this.#hear(message), signal);
    this.#show(t("alerts.loading"));
    this.#read(null);
  }

  disconnectedCallback() {
    this.#life.abort();
    this.#reading.abort();
  }

  get #query() {
    return { state: STATES[/** @type {keyof typeof STATES} */ (this.#state.value)], severity: SEVERITIES[/** @type {keyof typeof SEVERITIES} */ (this.#severity.value)] };
  }

  #narrow() {
    rememberInAddress({ state: this.#state.value === "open" ? null : this.#state.value, severity: this.#severity.value === "all" ? null : this.#severity.value });
    this.#read(null);
  }

  /** @param {string | null} cursor */
  async #read(cursor) {
    this.#reading.abort();
    this.#reading = new AbortController();
    const { signal } = this.#reading;
    try {
      const { items, next_cursor } = await getAlerts({ ...this.#query, limit: PAGE, cursor }, signal);
      if (cursor === null) this.#alerts.clear();
      for (const alert of items) this.#alerts.set(alertKey(alert), alert);
      this.#cursor = next_cursor;
      this.#isLoaded = true;
      this.#show("");
    } catch (error) {
      if (signal.aborted) return;
      const retry = h("button", { type: "button", class: "button" }, t("retry"));
      retry.addEventListener("click", () => this.#read(cursor));
      this.#message.hidden = false;
      this.#message.replaceChildren(h("strong", {}, t("alerts.error")), ` ${error instanceof ApiError ? error.message : String(error)} `, retry);
    }
  }

  /** @param {FromHub} message */
  #hear(message) {
    if (message.kind === "hello" || (message.kind === "event" && message.event === "stale" && !message.run_id)) this.#read(null);
    if (!this.#isLoaded || message.kind !== "event") return;
    if (message.event === "alert") this.#put(message.payload);
    if (message.event === "deleted") {
      for (const [key, { run_id }] of this.#alerts) if (run_id === message.run_id) this.#alerts.delete(key);
      this.#show("");
    }
  }

  /** @param {RunAlert} alert */
  #put(alert) {
    const { state, severity } = this.#query;
    const fits = (state === null || state.split(",").includes(alert.state)) && (severity === null || severity === alert.severity);
    if (fits) this.#alerts.set(alertKey(alert), alert);
    else this.#alerts.delete(alertKey(alert));
    this.#show("");
  }

  /** @param {RunAlert[]} alerts */
  async #acknowledge(alerts) {
    const { problems } = await forEach(alerts, async (alert) => {
      const answer = await acknowledge(alert);
      openAlerts.put(answer);
      this.#put(answer);
    });
    if (!problems.length) return;
    sayToast({ tone: "critical", title: t("alerts.failed"), words: problems.join(" ") });
    this.#read(null);
  }

  /** @param {string} words in place of the list, where there is none */
  #show(words) {
    const alerts = [...this.#alerts.values()].sort((a, b) => b.opened_at_s - a.opened_at_s || (alertKey(a) < alertKey(b) ? 1 : -1));
    const rows = new Map([...this.#list.querySelectorAll("alert-row")].map((row) => [row.dataset.key ?? "", row]));
    alerts.forEach((alert, i) => {
      const key = alertKey(alert);
      const row = rows.get(key) ?? h("alert-row", { "data-key": key });
      rows.delete(key);
      row.alert = alert;
      if (this.#list.children[i] !== row) this.#list.insertBefore(row, this.#list.children[i] ?? null);
    });
    for (const row of rows.values()) row.remove();
    const open = alerts.filter(({ state }) => state === "open");
    this.#list.hidden = !alerts.length;
    this.#more.hidden = this.#cursor === null;
    this.#all.hidden = open.length < 2;
    this.#message.hidden = alerts.length > 0;
    const isPlain = this.#state.value !== "all" && this.#severity.value === "all";
    setText(this.#message, words || t(isPlain ? "alerts.none" : "alerts.none.filter"));
  }
}

export const registerAlertsPage = () => customElements.define("alerts-page", AlertsPage);
