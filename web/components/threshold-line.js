/** <threshold-line>: the threshold to try, a line through norm chart and histogram that can be dragged. Event `try`: a threshold, null for the one in force. */

import { h, setText } from "../lib/dom.js";
import { maxNorm, percent } from "../lib/format.js";
import { heightOf, valueAt } from "../lib/scales.js";
import { t } from "../lib/texts.js";

/** What one press of an arrow key moves the line by, alone and with Shift. */
const STEP = 1.02;
const BIG_STEP = 1.2;

export class ThresholdLine extends HTMLElement {
  #life = new AbortController();
  #value = h("span");
  #grip = h("span", { class: "threshold-grip", "aria-hidden": "true" }, this.#value);
  /** @type {import("../lib/scales.js").Scale | null} */
  #scale = null;
  #box = { top: 0, height: 1 };
  #line = 1;
  /** Between the pointer and the line when the drag began. */
  #offset = 0;
  #dragging = false;

  connectedCallback() {
    this.#life = new AbortController();
    const { signal } = this.#life;
    this.replaceChildren(this.#grip);
    this.dataset.ownGestures = "";
    this.tabIndex = 0;
    this.setAttribute("role", "slider");
    this.setAttribute("aria-orientation", "vertical");
    this.setAttribute("aria-label", t("whatif.line"));
    this.title = t("whatif.drag");
    this.addEventListener("pointerdown", (event) => this.#down(event), { signal });
    this.addEventListener("pointermove", (event) => this.#move(event), { signal });
    this.addEventListener("pointerup", () => this.#up(), { signal });
    this.addEventListener("pointercancel", () => this.#up(), { signal });
    this.addEventListener("dblclick", () => this.#try(null), { signal });
    this.addEventListener("keydown", (event) => this.#key(event), { signal });
  }

  disconnectedCallback() {
    this.#life.abort();
  }

  /**
   * @param {import("../lib/scales.js").Scale} scale of the norm chart
   * @param {{top: number, height: number}} box of its curves, in pixels of the parent
   * @param {import("../lib/what-if-model.js").WhatIfModel} whatIf
   */
  place(scale, box, { line, isTrial, isMoving, share }) {
    this.hidden = line === null;
    if (line === null) return;
    this.#scale = scale;
    this.#box = box;
    this.#line = line;
    const height = heightOf(scale, line);
    const top = box.top + (1 - Math.min(1, Math.max(0, height))) * box.height;
    this.style.transform = `translateY(${Math.round(top * 2) / 2}px)`;
    this.dataset.trial = String(isTrial);
    this.dataset.beyond = String(height > 1 || height < 0);
    setText(this.#value, maxNorm(line));
    const [low, high] = scale.range;
    this.setAttribute("aria-valuemin", String(low));
    this.setAttribute("aria-valuemax", String(high));
    this.setAttribute("aria-valuenow", String(line));
    this.setAttribute("aria-valuetext", share === null || isMoving ? maxNorm(line) : t("whatif.line.value", { threshold: maxNorm(line), share: percent(share) }));
  }

  /** @param {PointerEvent} event */
  #down(event) {
    if (event.button !== 0) return;
    this.#dragging = true;
    this.#offset = event.clientY - this.getBoundingClientRect().top - this.clientHeight / 2;
    this.setPointerCapture(event.pointerId);
    this.classList.add("is-dragging");
    event.preventDefault();
    this.focus({ preventScroll: true });
  }

  /** @param {PointerEvent} event */
  #move(event) {
    if (!this.#dragging || !this.#scale) return;
    event.stopPropagation();
    const parent = /** @type {HTMLElement} */ (this.offsetParent).getBoundingClientRect();
    const y = event.clientY - this.#offset - parent.top - this.#box.top;
    const height = Math.min(1, Math.max(0, 1 - y / this.#box.height));
    this.#try(valueAt(this.#scale, height));
  }

  #up() {
    this.#dragging = false;
    this.classList.remove("is-dragging");
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const factor = event.shiftKey ? BIG_STEP : STEP;
    /** @type {Record<string, number | null>} */
    const targets = {
      ArrowUp: this.#line * factor, ArrowRight: this.#line * factor, ArrowDown: this.#line / factor, ArrowLeft: this.#line / factor,
      PageUp: this.#line * BIG_STEP, PageDown: this.#line / BIG_STEP, Escape: null,
    };
    if (!(event.key in targets)) return;
    event.preventDefault();
    event.stopPropagation();
    this.#try(targets[event.key]);
  }

  /** @param {number | null} threshold */
  #try(threshold) {
    const detail = threshold === null ? null : Number(threshold.toPrecision(3));
    this.dispatchEvent(new CustomEvent("try", { detail, bubbles: true }));
  }
}

export const registerThresholdLine = () => customElements.define("threshold-line", ThresholdLine);
