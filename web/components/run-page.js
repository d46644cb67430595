/** <run-page>: one run, its facts first, then its charts. Property `runId`. */

import { fetchPlotlyEarly } from "../lib/charts.js";
import { h } from "../lib/dom.js";
import { addressValues, rememberInAddress } from "../lib/router.js";
import { RunModel } from "../lib/run-model.js";
import { t } from "../lib/texts.js";
import { fromAddress, toAddress } from "../lib/view.js";

export class RunPage extends HTMLElement {
  runId = "";
  #life = new AbortController();
  #head = h("run-head");
  #facts = h("run-facts");
  #legend = h("mark-legend");
  #range = h("range-picker");
  #charts = h("chart-stack");
  #setup = h("run-setup");
  #notice = h("div", { class: "notice", role: "status" });
  #body = h("div", { class: "run-body" });

  connectedCallback() {
    this.#life = new AbortController();
    const { signal } = this.#life;
    fetchPlotlyEarly();
    const address = addressValues();
    const model = new RunModel(this.runId, {
      stream: address.get("stream"),
      attempt: Number(address.get("attempt")) || null,
      view: fromAddress(address),
    });
    this.#charts.model = model;
    this.#body.replaceChildren(
      this.#head,
      this.#facts,
      h("section", { class: "card charts" }, h("header", { class: "charts-bar" }, this.#legend, this.#range), this.#charts),
      this.#setup,
    );
    this.replaceChildren(this.#notice, this.#body);
    this.#listen(model, signal);
    this.#show(model);
    model.start(signal);
  }

  disconnectedCallback() {
    this.#life.abort();
  }

  /** @param {RunModel} model @param {AbortSignal} signal */
  #listen(model, signal) {
    model.addEventListener("facts", () => this.#show(model), { signal });
    model.addEventListener("gone", () => this.#show(model), { signal });
    model.addEventListener("view", () => this.#showView(model), { signal });
    model.addEventListener("figures", () => this.#show(model), { signal });
    this.addEventListener("choose", (event) => {
      const { stream, attempt } = /** @type {CustomEvent} */ (event).detail;
      model.select({ stream, attempt });
      rememberInAddress({ stream: model.chosenStream, attempt: model.attempt });
    }, { signal });
    this.addEventListener("look", (event) => {
      model.setView(/** @type {CustomEvent<View>} */ (event).detail);
      rememberInAddress(toAddress(model.view));
    }, { signal });
  }

  /** @param {RunModel} model */
  #show(model) {
    const { detail, facts } = model;
    this.#notice.hidden = Boolean(detail) && !model.deleted;
    this.#body.hidden = !detail;
    if (!this.#notice.hidden) this.#showNotice(model);
    if (!detail || !facts) return;
    document.title = `${detail.name} · ${detail.project} · ${t("app.name")}`;
    this.#head.show(detail, model.stream, model.attempt);
    this.#facts.show(facts, detail, model.figures);
    this.#setup.show(detail, model.record);
    this.#showView(model);
    this.#charts.startDrawing();
  }

  /** @param {RunModel} model */
  #showView(model) {
    const live = model.detail?.status === "running";
    this.#range.show(model.view, model.shown, live);
    this.#range.hidden = this.#legend.hidden = !model.hasSteps;
    this.#legend.show(model.figures, model.shown);
  }

  /** @param {RunModel} model */
  #showNotice(model) {
    const { problem } = model;
    if (model.deleted) this.#notice.replaceChildren(h("strong", {}, t("run.deleted")), " ", h("a", { href: "/" }, t("run.back")));
    else if (!problem) this.#notice.replaceChildren(t("run.loading"));
    else if (problem.status === 404 || problem.status === 422) {
      this.#notice.replaceChildren(h("strong", {}, t("run.missing", { id: model.runId })), " ", h("a", { href: "/" }, t("run.back")));
    } else {
      const retry = h("button", { type: "button", class: "button" }, t("retry"));
      retry.addEventListener("click", () => model.retry());
      this.#notice.replaceChildren(h("strong", {}, t("run.error")), " ", problem.message, " ", retry);
    }
  }
}

export const registerRunPage = () => customElements.define("run-page", RunPage);
