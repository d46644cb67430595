/** <run-page>: one run, its verdicts and facts first, then its charts. Property `runId`. */

import { fetchPlotlyEarly } from "../lib/charts.js";
import { h } from "../lib/dom.js";
import { drawingFromAddress, drawingToAddress } from "../lib/drawing.js";
import { hasNorms } from "../lib/newest.js";
import { addressValues, rememberInAddress, runPath } from "../lib/router.js";
import { RunModel } from "../lib/run-model.js";
import { StepModel } from "../lib/step-model.js";
import { t } from "../lib/texts.js";
import { momentsOf } from "../lib/timeline.js";
import { sayToast } from "../lib/toasts.js";
import { VerdictModel } from "../lib/verdict-model.js";
import { findingsBeside, graveElsewhere, noVerdicts, VERDICTS, verdictsInBrief, verdictsOf } from "../lib/verdicts.js";
import { around, fromAddress, toAddress } from "../lib/view.js";
import { WhatIfModel } from "../lib/what-if-model.js";

const REMEMBER_MS = 200;

export class RunPage extends HTMLElement {
  runId = "";
  #life = new AbortController();
  #head = h("run-head");
  #verdicts = h("run-verdicts");
  #problem = h("p", { class: "diagnosis-problem", role: "status", hidden: true });
  #elsewhere = h("p", { class: "elsewhere", hidden: true });
  #facts = h("run-facts");
  #findings = h("finding-list");
  #legend = h("mark-legend");
  #range = h("range-picker");
  #drawing = h("drawing-picker");
  #tools = h("div", { class: "charts-tools" }, this.#drawing, this.#range);
  #step = h("step-panel");
  #table = h("table-dialog");
  #control = h("control-offer");
  /** @type {import("../lib/timeline.js").Moment[]} */
  #moments = [];
  #charts = h("chart-stack");
  #histogram = h("norm-histogram");
  #whatIf = h("what-if-panel");
  #timeline = h("run-timeline");
  #beside = h("div", { class: "beside", "data-own-gestures": true }, this.#histogram, this.#whatIf, this.#control, this.#timeline);
  #line = h("threshold-line");
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
      drawing: drawingFromAddress(address),
      layers: address.getAll("layer"),
    });
    const verdicts = new VerdictModel(model);
    const whatIf = new WhatIfModel(model, verdicts);
    this.#charts.model = model;
    this.#charts.beside = [this.#beside, this.#line];
    this.#body.replaceChildren(
      this.#head,
      this.#problem,
      this.#elsewhere,
      this.#verdicts,
      this.#facts,
      this.#findings,
      h("section", { class: "card charts" }, h("header", { class: "charts-bar" }, this.#legend, this.#tools), this.#charts),
      this.#setup,
      this.#step,
      this.#table,
    );
    this.replaceChildren(this.#notice, this.#body);
    const why = VERDICTS.find((name) => name === address.get("why"));
    if (why) this.#verdicts.openAt(why);
    this.#listen(model, signal);
    this.#listenToVerdicts(model, verdicts, signal);
    this.#listenToSteps(model, new StepModel(model, signal), signal);
    this.#show(model);
    this.#listenToWhatIf(verdicts, whatIf, signal);
    verdicts.start(signal);
    whatIf.start(signal);
    model.start(signal);
  }

  disconnectedCallback() {
    this.#life.abort();
  }

  /** @param {RunModel} model @param {AbortSignal} signal */
  #listen(model, signal) {
    model.addEventListener("facts", () => this.#show(model), { signal });
    model.addEventListener("noattempt", () => {
      sayToast({ tone: "neutral", title: t("run.attempt.none", { attempt: addressValues().get("attempt") ?? "" }) });
      rememberInAddress({ attempt: null });
    }, { signal });
    model.addEventListener("gone", () => this.#show(model), { signal });
    model.addEventListener("view", () => this.#showView(model), { signal });
    model.addEventListener("figures", () => this.#show(model), { signal });
    this.addEventListener("choose", (event) => {
      const { stream, attempt } = /** @type {CustomEvent} */ (event).detail;
      model.select({ stream, attempt });
      rememberInAddress({ stream: model.chosenStream, attempt: model.attempt, layer: model.layers });
    }, { signal });
    const showLayer = (/** @type {string} */ layer, /** @type {boolean} */ shown) => {
      model.showLayer(layer, shown);
      rememberInAddress({ layer: model.layers });
    };
    this.addEventListener("layer", (event) => showLayer(/** @type {CustomEvent<string>} */ (event).detail, true), { signal });
    this.addEventListener("close", (event) => event instanceof CustomEvent && showLayer(event.detail, false), { signal });
    this.addEventListener("look", (event) => {
      this.#charts.mark(null);
      model.setView(/** @type {CustomEvent<View>} */ (event).detail);
      rememberInAddress(toAddress(model.view));
    }, { signal });
    this.addEventListener("draw", (event) => {
      model.setDrawing(/** @type {CustomEvent<Drawing>} */ (event).detail);
      rememberInAddress(drawingToAddress(model.drawing));
    }, { signal });
  }

  /** @param {RunModel} model @param {VerdictModel} verdicts @param {AbortSignal} signal */
  #listenToVerdicts(model, verdicts, signal) {
    model.addEventListener("facts", () => this.#showVerdicts(model, verdicts), { signal });
    verdicts.addEventListener("diagnosis", () => this.#showVerdicts(model, verdicts), { signal });
    for (const what of ["facts", "figures"]) model.addEventListener(what, () => this.#showFacts(model, verdicts), { signal });
    for (const what of ["diagnosis", "counts"]) verdicts.addEventListener(what, () => this.#showFacts(model, verdicts), { signal });
    for (const what of ["diagnosis", "events"]) verdicts.addEventListener(what, () => this.#tell(model, verdicts), { signal });
    for (const what of ["figures", "facts"]) model.addEventListener(what, () => this.#tell(model, verdicts), { signal });
    this.addEventListener("zoom", (event) => {
      const [first, last] = /** @type {CustomEvent<[number, number]>} */ (event).detail;
      model.setView(around(first, last, model.facts?.last_step ?? last));
      rememberInAddress(toAddress(model.view));
      this.#charts.mark([first, last]);
      this.#charts.scrollIntoView({ block: "nearest", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
    }, { signal });
  }

  /** Of the attempt on screen; of several the counts are read, as the run's count steps that were made again twice. @param {RunModel} model @param {VerdictModel} verdicts */
  #showFacts({ detail, facts, attempt, record, figures }, { counts, isCurrent }) {
    if (!detail || !facts) return;
    const known = isCurrent ? counts : null;
    const shown = known && { ...known, last: known.last ?? facts.last };
    this.#facts.show(attempt === null ? (shown ?? facts) : shown, detail, record, figures);
  }

  /** What happened, in the list, over the charts and at a step. @param {RunModel} model @param {VerdictModel} verdicts */
  #tell(model, { events, alerts, diagnosis }) {
    const { detail: run, stream, launches } = model;
    if (!run) return;
    const moments = momentsOf({ events, alerts, run, diagnosis, stream, launches, norm: model.figures.get("norm") });
    if (JSON.stringify(moments) === JSON.stringify(this.#moments)) return;
    this.#moments = moments;
    this.#timeline.show(this.#moments);
    this.#charts.moments = this.#moments;
  }

  /** @param {RunModel} model @param {StepModel} steps @param {AbortSignal} signal */
  #listenToSteps(model, steps, signal) {
    steps.addEventListener("step", () => {
      this.#step.show(steps, this.#moments);
      rememberInAddress({ step: steps.step });
    }, { signal });
    this.addEventListener("step", (event) => steps.open(.../** @type {CustomEvent<[number, number]>} */ (event).detail), { signal });
    this.addEventListener("neighbour", (event) => steps.neighbour(/** @type {CustomEvent<-1 | 1>} */ (event).detail), { signal });
    this.addEventListener("leave", () => steps.close(), { signal });
    this.addEventListener("table", (event) => {
      const { title, table } = /** @type {CustomEvent} */ (event).detail;
      this.#table.open(title, table);
    }, { signal });
    const asked = /^\d{1,16}$/.exec(addressValues().get("step") ?? "");
    if (asked) model.addEventListener("facts", () => steps.open(Number(asked[0])), { signal, once: true });
  }

  /** The line and the histogram are drawn on the scale of the norm chart, whenever that is drawn. @param {VerdictModel} verdicts @param {WhatIfModel} whatIf @param {AbortSignal} signal */
  #listenToWhatIf(verdicts, whatIf, signal) {
    /** @type {{Plotly: PlotlyLike | null, scale: import("../lib/scales.js").Scale | null, box: {top: number, height: number}} | null} */
    let drawn = null;
    let frame = 0;
    const show = () => {
      this.#histogram.hidden = this.#whatIf.hidden = this.#line.hidden = whatIf.isWithout;
      this.#whatIf.show(whatIf);
      this.#offer(whatIf);
      if (!drawn?.scale || !drawn.Plotly) this.#line.hidden = true;
      if (!drawn?.scale || !drawn.Plotly || whatIf.isWithout) return;
      this.#line.place(drawn.scale, drawn.box, whatIf);
      this.#histogram.draw(drawn.Plotly, drawn.scale, whatIf);
    };
    const showSoon = () => {
      cancelAnimationFrame(frame);
      frame = requestAnimationFrame(show);
    };
    this.addEventListener("drawn", (event) => {
      drawn = /** @type {CustomEvent} */ (event).detail;
      show();
    }, { signal });
    for (const what of ["histogram", "trial", "answers"]) whatIf.addEventListener(what, showSoon, { signal });
    verdicts.addEventListener("diagnosis", showSoon, { signal });
    const tried = Number(addressValues().get("try"));
    if (tried > 0 && Number.isFinite(tried)) whatIf.try(tried);
    let rest = 0;
    this.addEventListener("try", (event) => {
      whatIf.try(/** @type {CustomEvent<number | null>} */ (event).detail);
      // While the line is dragged the address would be written with each pixel, which browsers refuse.
      clearTimeout(rest);
      rest = window.setTimeout(() => rememberInAddress({ try: whatIf.trial }), REMEMBER_MS);
    }, { signal });
    signal.addEventListener("abort", () => clearTimeout(rest));
    show();
  }

  /** A threshold that is tried can be set where the training said that it listens. @param {WhatIfModel} whatIf */
  #offer({ trial, run }) {
    const isAlive = run.detail?.state === "running" || run.detail?.state === "stalled";
    const offered = trial !== null && isAlive && run.record.allow_control;
    this.#control.offer = offered ? { runId: run.runId, stream: run.stream, threshold: trial } : null;
  }

  /** @param {RunModel} model @param {VerdictModel} verdicts */
  #showVerdicts(model, verdicts) {
    const { detail, facts } = model;
    if (!detail || !facts) return;
    const { diagnosis, problem } = verdicts;
    const isKnown = verdicts.isCurrent && diagnosis;
    // The summary tells of the stream that is worst off.
    const inBrief = detail.verdict && detail.streams.length === 1 ? verdictsInBrief(detail.verdict, hasNorms(detail)) : null;
    if (!facts.num_steps) this.#verdicts.show(noVerdicts());
    else if (isKnown) this.#verdicts.show(verdictsOf(diagnosis));
    else this.#verdicts.show(inBrief ?? noVerdicts(problem ? t("verdict.clipping.unknown") : t("verdict.loading")));
    this.#findings.show(isKnown ? findingsBeside(diagnosis) : []);
    this.#showElsewhere(detail, model.stream);
    this.#problem.hidden = !problem;
    if (problem) this.#showDiagnosisProblem(problem, verdicts);
  }

  /** The list calls a run what its worst stream is: from another stream's page a link leads there. @param {RunDetail} run @param {string} shown */
  #showElsewhere({ id, streams, verdict }, shown) {
    const found = verdict && streams.length > 1 ? graveElsewhere(verdict, shown).filter(({ stream }) => streams.includes(stream)) : [];
    this.#elsewhere.hidden = !found.length;
    this.#elsewhere.replaceChildren(
      h("strong", {}, t("verdict.elsewhere")),
      ...found.flatMap(({ stream, name, word }) => {
        const why = name && t("verdict.elsewhere.one", { name: t(`verdict.${name}`), word });
        const href = `${runPath(id)}?${new URLSearchParams({ ...(name && { why: name }), stream })}`;
        return [" ", h("a", { href }, t("verdict.elsewhere.stream", { stream, words: why ?? word }))];
      }),
    );
  }

  /** @param {string} problem @param {VerdictModel} verdicts */
  #showDiagnosisProblem(problem, verdicts) {
    const retry = h("button", { type: "button", class: "button small" }, t("retry"));
    retry.addEventListener("click", () => verdicts.retry());
    this.#problem.replaceChildren(h("strong", {}, t("verdict.error")), ` ${problem} `, retry);
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
    this.#facts.hidden = !facts.num_steps;
    this.#setup.show(detail, model.record);
    this.#showView(model);
    this.#charts.startDrawing();
  }

  /** @param {RunModel} model */
  #showView(model) {
    const live = model.detail?.status === "running";
    this.#range.show(model.view, model.shown, live);
    this.#drawing.drawing = model.drawing;
    this.#tools.hidden = this.#legend.hidden = !model.hasSteps;
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
