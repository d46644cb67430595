/** <spark-line>: the norm of a whole run and its threshold, the size of a word. Property `points`. */

import { number } from "../lib/format.js";
import { pathsOf } from "../lib/sparkline.js";
import { t } from "../lib/texts.js";

const SPACE = "http://www.w3.org/2000/svg";
const WIDTH = 120;
const HEIGHT = 28;

export class SparkLine extends HTMLElement {
  /** @type {Sparkline | null | undefined} */
  #points = undefined;

  set points(/** @type {Sparkline | null} */ points) {
    if (points === this.#points) return;
    this.#points = points;
    const paths = points?.step.length ? pathsOf(points, WIDTH, HEIGHT) : null;
    if (!points || !paths || !(paths.norm || paths.marks.length)) {
      this.replaceChildren();
      this.removeAttribute("role");
      this.removeAttribute("aria-label");
      return;
    }
    this.setAttribute("role", "img");
    this.setAttribute("aria-label", words(points));
    this.title = words(points);
    const svg = document.createElementNS(SPACE, "svg");
    svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("aria-hidden", "true");
    const marks = paths.marks.map((x) => `M${x.toFixed(1)} 0V6`).join("");
    for (const [name, d] of [["threshold", paths.threshold], ["norm", paths.norm], ["nonfinite", marks]]) {
      if (!d) continue;
      const path = document.createElementNS(SPACE, "path");
      path.setAttribute("class", `spark-${name}`);
      path.setAttribute("d", d);
      svg.append(path);
    }
    this.replaceChildren(svg);
  }
}

/** @param {Sparkline} points */
function words({ norm, max_norm, num_nonfinite }) {
  const finite = /** @type {number[]} */ (norm.filter((value) => value !== null));
  const threshold = max_norm.findLast((value) => value !== null) ?? null;
  const bad = num_nonfinite.reduce((sum, count) => sum + count, 0);
  return [
    finite.length ? t("spark.norm", { low: number(Math.min(...finite)), high: number(Math.max(...finite)) }) : "",
    threshold === null ? "" : t("spark.threshold", { value: number(threshold) }),
    bad ? t("spark.nonfinite", { count: bad }) : "",
  ].filter(Boolean).join(", ");
}

export const registerSparkLine = () => customElements.define("spark-line", SparkLine);
