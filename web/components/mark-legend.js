/** <mark-legend>: what the lines and marks of the charts mean; only those that occur. */

import { glyph, h } from "../lib/dom.js";
import { explained } from "../lib/explained.js";
import { integer } from "../lib/format.js";
import { CHART_GLYPHS } from "../lib/marks.js";
import { areDense } from "../lib/scales.js";
import { t } from "../lib/texts.js";

export class MarkLegend extends HTMLElement {
  #shown = "";

  /** @param {Map<FigureName, Figure>} figures @param {[number, number]} steps on screen */
  show(figures, steps) {
    const norm = figures.get("norm");
    const hasRate = isDrawn(figures.get("loss"), "lr");
    const has = (/** @type {Role} */ role) => norm?.traces.some((trace) => trace.role === role && trace.x.length > 0) ?? false;
    const bucket = norm && norm.bucket_steps > 1 ? norm.bucket_steps : 0;
    const hasThreshold = isDrawn(norm, "threshold");
    const hasHeadroom = isDrawn(figures.get("loss_scale"), "headroom");
    const hasDominant = isDrawn(figures.get("layers"), "dominant");
    const marks = /** @type {const} */ (["clipped", "spike", "skipped", "nonfinite"]).filter(has);
    const clipped = norm?.traces.find((trace) => trace.role === "clipped");
    const dense = clipped !== undefined && areDense(clipped, steps);
    const shown = JSON.stringify([bucket, hasThreshold, marks, dense, hasRate, hasHeadroom, hasDominant, isDrawn(norm, "ghost")]);
    if (shown === this.#shown) return;
    this.#shown = shown;
    this.setAttribute("role", "list");
    this.setAttribute("aria-label", t("legend"));
    this.replaceChildren(
      item("line series", bucket ? t("norm.mean") : t("norm.exact")),
      ...(bucket ? [item("band", t("norm.range", { bucket: integer(bucket) }))] : []),
      ...(hasThreshold ? [item("line threshold", t("norm.threshold"), t("why.norm.threshold"))] : []),
      ...(hasRate ? [item("line lr", t("loss.lr"))] : []),
      ...(hasHeadroom ? [item("line lr", t("loss_scale.headroom"), t("why.loss_scale.headroom"))] : []),
      ...(isDrawn(norm, "ghost") ? [item("line ghost", t("norm.ghost"), t("why.norm.ghost"))] : []),
      ...(hasDominant ? [item("line dominant", t("layers.dominant"))] : []),
      ...marks.map((role) => markItem(role, dense)),
    );
  }
}

/** @param {Figure | undefined} figure @param {Role} role */
function isDrawn(figure, role) {
  return figure?.traces.some((trace) => trace.role === role && trace.y.some(Number.isFinite)) ?? false;
}

/** @param {string} swatch @param {string} words @param {string | null} [why] */
function item(swatch, words, why = null) {
  return h("span", { class: "legend-item", role: "listitem" }, h("span", { class: `swatch ${swatch}`, "aria-hidden": "true" }), explained(words, why));
}

/** @param {"clipped" | "spike" | "skipped" | "nonfinite"} role @param {boolean} dense */
function markItem(role, dense) {
  const asLines = dense && role === "clipped";
  const mark = h("span", { class: `mark ${role}` });
  mark.append(glyph(CHART_GLYPHS[asLines ? "clippedDense" : role], { size: 11, filled: !asLines && role !== "spike" }));
  return h("span", { class: "legend-item", role: "listitem" }, mark, explained(t(`norm.${role}`), t(`why.norm.${role}`)));
}

export const registerMarkLegend = () => customElements.define("mark-legend", MarkLegend);
