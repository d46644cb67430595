/**
 * <step-panel>: everything about one step: its numbers, what happened there, its layers from the largest norm down.
 * Events: `neighbour`, −1 or 1; `leave`; `layer`, one to see over all steps.
 */

import { h, setText } from "../lib/dom.js";
import { integer, lossScale, maxNorm, number, percent, plain } from "../lib/format.js";
import { t } from "../lib/texts.js";

/** Layers that are listed at first. */
const FEW_LAYERS = 12;

/** How a column is written; those without a text of their own show by their name. @type {Record<string, (value: number) => string>} */
const SHOW = {
  max_norm: maxNorm, loss_scale: lossScale, loss_scale_after: lossScale, lr: plain, loss: (value) => number(value, 5),
  grad_norm_before_clip: (value) => number(value, 5), clipped_layer_fraction: percent, underflow_fraction: percent,
  step_time_s: (value) => `${number(value)} s`, hook_time_s: (value) => `${number(1e6 * value)} µs`,
  headroom_log2: (value) => `2^${number(value, 2)}`,
};
const NOT_COLUMNS = new Set(["step", "attempt", "wall_time_s", "nonfinite", "layers"]);

export class StepPanel extends HTMLElement {
  #title = h("h2", { tabindex: -1 });
  #when = h("p", { class: "muted" });
  #previous = h("button", { type: "button", class: "button small", "aria-label": t("step.previous"), title: t("step.previous") }, "←");
  #next = h("button", { type: "button", class: "button small", "aria-label": t("step.next"), title: t("step.next") }, "→");
  #close = h("button", { type: "button", class: "button small" }, t("step.close"));
  #body = h("div", { class: "step-body" });
  #all = false;
  #wasOpen = false;
  /** @type {Element | null} */
  #cameFrom = null;

  connectedCallback() {
    if (this.firstChild) return;
    this.hidden = true;
    this.setAttribute("role", "region");
    this.append(h("header", {}, h("div", {}, this.#title, this.#when), h("div", { class: "step-buttons" }, this.#previous, this.#next, this.#close)), this.#body);
    this.#previous.addEventListener("click", () => this.#say("neighbour", -1));
    this.#next.addEventListener("click", () => this.#say("neighbour", 1));
    this.#close.addEventListener("click", () => this.#say("leave", null));
    this.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.#say("leave", null);
    });
  }

  /** @param {import("../lib/step-model.js").StepModel} model @param {import("../lib/timeline.js").Moment[]} moments */
  show({ step, detail, problem, among }, moments) {
    const opens = step !== null && !this.#wasOpen;
    if (opens) this.#cameFrom = document.activeElement;
    this.#wasOpen = step !== null;
    this.hidden = step === null;
    if (step === null) {
      if (this.#cameFrom instanceof HTMLElement) this.#cameFrom.focus({ preventScroll: true });
      this.#cameFrom = null;
      return;
    }
    const title = t("step.title", { step: integer(step) });
    setText(this.#title, title);
    this.setAttribute("aria-label", title);
    const words = [];
    if (detail) words.push(new Date(detail.wall_time_s * 1000).toLocaleString(), t("step.attempt", { number: detail.attempt }));
    if (among) words.push(t("step.among", { first: integer(among[0]), last: integer(among[1]) }));
    setText(this.#when, words.join(" · "));
    if (problem) this.#body.replaceChildren(h("p", { role: "status" }, problem));
    else if (!detail) this.#body.replaceChildren(h("p", { class: "muted", role: "status" }, t("step.loading")));
    else this.#showDetail(detail, moments.filter((moment) => isAt(moment, step)));
    if (opens) this.#title.focus({ preventScroll: true });
  }

  /** @param {StepDetail} detail @param {import("../lib/timeline.js").Moment[]} moments */
  #showDetail(detail, moments) {
    const rows = Object.keys(detail).filter((name) => !NOT_COLUMNS.has(name)).flatMap((name) => rowOf(name, detail));
    const layers = [...detail.layers].sort((a, b) => sizeOf(b) - sizeOf(a));
    this.#body.replaceChildren(
      ...(moments.length ? [h("ul", { class: "step-moments" }, ...moments.map(({ words, tone }) => h("li", { "data-tone": tone }, words)))] : []),
      h("dl", { class: "setup-list" }, ...rows),
      ...(layers.length ? [h("h3", {}, t("step.layers", { count: integer(layers.length) })), this.#layerList(layers)] : [h("p", { class: "muted" }, t("step.layers.none"))]),
    );
  }

  /** @param {StepDetail["layers"]} layers */
  #layerList(layers) {
    const largest = Math.max(...layers.map(({ norm }) => norm ?? 0), Number.MIN_VALUE);
    const list = h("ol", { class: "step-layers" });
    const fill = () => list.replaceChildren(...layers.slice(0, this.#all ? undefined : FEW_LAYERS).map((layer) => this.#layer(layer, largest)));
    fill();
    if (layers.length <= FEW_LAYERS || this.#all) return list;
    const more = h("button", { type: "button", class: "link" }, t("step.layers.all", { count: integer(layers.length) }));
    more.addEventListener("click", () => {
      this.#all = true;
      fill();
      more.remove();
    });
    return h("div", {}, list, more);
  }

  /** @param {StepDetail["layers"][number]} layer @param {number} largest */
  #layer({ names, norm, nonfinite }, largest) {
    const name = names.join(" = ");
    const open = h("button", { type: "button", class: "link", title: t("step.layer.open") }, name);
    open.addEventListener("click", () => this.#say("layer", name));
    const bar = h("span", { class: "layer-bar", "aria-hidden": "true" });
    bar.style.width = `${(100 * (norm ?? 0)) / largest}%`;
    return h("li", { "data-tone": nonfinite ? "critical" : "" }, bar, open, h("span", { class: "layer-norm" }, nonfinite ?? (norm === null ? t("step.no.gradient") : number(norm))));
  }

  /** @param {string} what @param {unknown} detail */
  #say(what, detail) {
    this.dispatchEvent(new CustomEvent(what, { detail, bubbles: true }));
  }
}

/** @param {import("../lib/timeline.js").Moment} moment @param {number} at */
function isAt({ step, steps }, at) {
  return steps ? steps[0] <= at && at <= steps[1] : step === at;
}

/** @param {StepDetail["layers"][number]} layer */
function sizeOf({ norm, nonfinite }) {
  return nonfinite ? Infinity : (norm ?? -1);
}

/** @param {string} name @param {StepDetail} detail @returns {HTMLElement[]} none where it was not recorded */
function rowOf(name, detail) {
  const odd = detail.nonfinite[name];
  const value = detail[name];
  if (!odd && (value === null || value === undefined)) return [];
  const words = odd ?? (typeof value === "number" ? (SHOW[name] ?? number)(value) : typeof value === "boolean" ? t(value ? "step.yes" : "step.no") : String(value));
  return [h("div", { "data-tone": odd ? "critical" : "" }, h("dt", {}, name), h("dd", {}, words))];
}

export const registerStepPanel = () => customElements.define("step-panel", StepPanel);
