/** <norm-histogram>: how the norms are distributed, on the upright axis of the norm chart, with the threshold through both. */

import { drawHistogram, purge } from "../lib/charts.js";
import { h, setText } from "../lib/dom.js";
import { integer, maxNorm, percent } from "../lib/format.js";
import { heightOf } from "../lib/scales.js";
import { t } from "../lib/texts.js";

/** As in the norm chart, so that both are as high. */
const TOP_PX = 8;
const BOTTOM_PX = 7;
const LABEL_PX = 18;

export class NormHistogram extends HTMLElement {
  #plot = h("div", { class: "histogram-plot", "aria-hidden": "true" });
  #above = h("span", { class: "histogram-share above" });
  #below = h("span", { class: "histogram-share below" });
  #recommended = h("span", { class: "histogram-recommended" });

  connectedCallback() {
    if (this.firstChild) return;
    this.setAttribute("role", "img");
    this.append(this.#plot, this.#recommended, this.#above, this.#below);
  }

  disconnectedCallback() {
    purge(this.#plot);
  }

  /**
   * @param {PlotlyLike} Plotly
   * @param {import("../lib/scales.js").Scale} scale of the norm chart
   * @param {import("../lib/what-if-model.js").WhatIfModel} whatIf
   */
  draw(Plotly, scale, whatIf) {
    const { histogram, line, isTrial, inForce, isMoving, recommended } = whatIf;
    const share = isMoving ? null : whatIf.share;
    this.classList.toggle("is-empty", !histogram);
    if (!histogram || !this.#plot.clientWidth) return;
    const style = getComputedStyle(this);
    const margin = { left: parseFloat(style.getPropertyValue("--histogram-left")), right: 0, top: TOP_PX, bottom: BOTTOM_PX };
    const height = this.#plot.clientHeight;
    drawHistogram(Plotly, this.#plot, histogram, { width: this.#plot.clientWidth, height, margin }, scale, { line, trial: isTrial ? line : null, inForce });
    const inside = height - TOP_PX - BOTTOM_PX;
    const topOf = (/** @type {number} */ value) => TOP_PX + (1 - Math.min(1, Math.max(0, heightOf(scale, value)))) * inside;
    this.#showShares(line === null ? null : topOf(line), share, inside);
    this.#recommended.hidden = !recommended;
    if (recommended) {
      const [high, low] = [topOf(recommended.high), topOf(recommended.low)];
      this.#recommended.style.top = `${high}px`;
      this.#recommended.style.height = `${Math.max(3, low - high)}px`;
    }
    this.setAttribute("aria-label", line === null || share === null
      ? t("histogram.label", { count: integer(histogram.total) })
      : t("histogram.label.share", { count: integer(histogram.total), share: percent(share), threshold: maxNorm(line) }));
  }

  /** @param {number | null} top @param {number | null} share @param {number} inside */
  #showShares(top, share, inside) {
    this.#above.hidden = this.#below.hidden = top === null || share === null;
    if (top === null || share === null) return;
    setText(this.#above, t("histogram.above", { share: percent(share) }));
    setText(this.#below, t("histogram.below", { share: percent(1 - share) }));
    this.#above.style.top = `${Math.max(TOP_PX + LABEL_PX, top) - LABEL_PX}px`;
    this.#below.style.top = `${top + 1}px`;
    this.#below.hidden = top > TOP_PX + inside - LABEL_PX;
  }
}

export const registerNormHistogram = () => customElements.define("norm-histogram", NormHistogram);
