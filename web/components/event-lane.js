/**
 * <event-lane>: what happened to the run, on the axis of its charts: a mark at each step, a bar over several, and a
 * line through all charts where an attempt began or the threshold changed. Event `zoom`: the steps around one.
 */

import { glyph, h } from "../lib/dom.js";
import { integer } from "../lib/format.js";
import { t } from "../lib/texts.js";

/** Marks nearer than this are one, which says how many it is. */
const TOGETHER_PX = 14;
const MOST_WORDS = 6;

/** @type {Record<import("../lib/timeline.js").MomentKind, string>} shapes differ, so that colour is never alone */
export const MOMENT_GLYPHS = {
  event: "M2 1h1v10h-1zM3.500 1.500h7l-2 2.500 2 2.500h-7z",
  verdict: "M6 1a5 5 0 1 0 0 10a5 5 0 1 0 0-10z",
  alert: "M6 1.2L11.2 10.600H.8z",
  resume: "M2 1.5l8 4.500-8 4.500z",
  threshold: "M1 4.200h10v1.200h-10zM1 7h10v1.200h-10z",
  nonfinite: "M2 3.4L3.400 2 6 4.600 8.600 2 10 3.400 7.400 6 10 8.600 8.600 10 6 7.400 3.400 10 2 8.600 4.600 6z",
};

export class EventLane extends HTMLElement {
  #title = h("h2", { class: "chart-title" }, t("lane.title"));
  #marks = h("div", { class: "lane-marks", "data-own-gestures": true });
  #lines = h("div", { class: "lane-lines", "aria-hidden": "true" });
  #shown = "";

  connectedCallback() {
    if (this.firstChild) return;
    this.append(h("header", { class: "chart-head" }, this.#title), this.#marks, this.#lines);
    this.setAttribute("role", "group");
    this.setAttribute("aria-label", t("lane.title"));
  }

  /** @param {import("../lib/timeline.js").Moment[]} moments @param {import("../lib/step-scale.js").StepScale} scale */
  show(moments, scale) {
    const onScreen = moments.filter(({ step, steps }) => step !== null && (steps?.[1] ?? step) >= scale.first && step <= scale.last);
    const shown = JSON.stringify([onScreen, scale.first, scale.last, scale.left, scale.width]);
    this.classList.toggle("is-quiet", !onScreen.length);
    if (shown === this.#shown) return;
    this.#shown = shown;
    const groups = grouped(onScreen, scale);
    this.#marks.replaceChildren(...onScreen.filter(({ steps }) => steps && steps[1] > steps[0]).map((moment) => bar(moment, scale)), ...groups.map((group) => this.#mark(group)));
    this.#lines.replaceChildren(...onScreen.filter(({ kind }) => kind === "resume" || kind === "threshold").map((moment) => line(moment, scale)));
  }

  /** @param {{pixel: number, moments: import("../lib/timeline.js").Moment[]}} group */
  #mark({ pixel, moments }) {
    const worst = moments.find(({ tone }) => tone === "critical") ?? moments.find(({ tone }) => tone === "warning") ?? moments[0];
    const words = moments.slice(0, MOST_WORDS).map(({ step, words: said }) => `${integer(step)}: ${said}`);
    if (moments.length > MOST_WORDS) words.push(t("lane.more", { count: moments.length - MOST_WORDS }));
    const mark = h("button", { type: "button", class: "lane-mark", "data-kind": worst.kind, "data-tone": worst.tone, "aria-label": words.join(". ") },
      h("span", { class: "tip", "aria-hidden": "true" }, ...words.map((line) => h("span", {}, line))));
    mark.prepend(glyph(MOMENT_GLYPHS[worst.kind], { size: 11 }));
    if (moments.length > 1) mark.append(h("span", { class: "lane-count" }, String(moments.length)));
    mark.style.left = `${pixel}px`;
    mark.classList.toggle("is-right", pixel > this.clientWidth / 2);
    const first = Math.min(...moments.map(({ step }) => step ?? Infinity));
    const last = Math.max(...moments.map(({ step, steps }) => steps?.[1] ?? step ?? 0));
    mark.addEventListener("click", () => this.dispatchEvent(new CustomEvent("zoom", { detail: [first, last], bubbles: true })));
    return mark;
  }
}

/** Those that would stand on each other, as one. @param {import("../lib/timeline.js").Moment[]} moments @param {import("../lib/step-scale.js").StepScale} scale */
function grouped(moments, scale) {
  /** @type {{pixel: number, moments: import("../lib/timeline.js").Moment[]}[]} */
  const groups = [];
  for (const moment of [...moments].reverse()) {
    const pixel = scale.clamp(scale.pixelAt(Math.max(moment.step ?? 0, scale.first)));
    const before = groups.at(-1);
    if (before && pixel - before.pixel < TOGETHER_PX) before.moments.push(moment);
    else groups.push({ pixel, moments: [moment] });
  }
  return groups;
}

/** @param {import("../lib/timeline.js").Moment} moment @param {import("../lib/step-scale.js").StepScale} scale */
function bar({ steps, tone }, scale) {
  const [first, last] = /** @type {[number, number]} */ (steps);
  const [left, right] = [scale.clamp(scale.pixelAt(first - 0.5)), scale.clamp(scale.pixelAt(last + 0.5))];
  const element = h("span", { class: "lane-bar", "data-tone": tone, "aria-hidden": "true" });
  element.style.left = `${left}px`;
  element.style.width = `${Math.max(2, right - left)}px`;
  return element;
}

/** @param {import("../lib/timeline.js").Moment} moment @param {import("../lib/step-scale.js").StepScale} scale */
function line({ step, kind }, scale) {
  const element = h("span", { class: "lane-line", "data-kind": kind });
  element.style.left = `${scale.clamp(scale.pixelAt((step ?? 0) - 0.5))}px`;
  return element;
}

export const registerEventLane = () => customElements.define("event-lane", EventLane);
