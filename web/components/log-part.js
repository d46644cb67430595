/** <log-part>: what the diagnosis says of one run in a log. Method `show`. */

import { h } from "../lib/dom.js";
import { counted } from "../lib/format.js";
import { t } from "../lib/texts.js";
import { verdictsOf } from "../lib/verdicts.js";

export class LogPartView extends HTMLElement {
  /** @param {LogPart} part */
  show({ name, stream, num_steps, sparkline, diagnosis, url }) {
    const spark = h("spark-line");
    spark.points = sparkline;
    const steps = counted(num_steps, t("drop.step"), t("drop.steps"));
    const title = stream === "main" ? t("drop.part", { name, steps }) : t("drop.part.stream", { name, stream, steps });
    this.replaceChildren(
      h("header", {}, h("h3", {}, title), url && h("a", { class: "button", href: url }, t("drop.see", { name }))),
      spark,
      h("dl", {}, ...verdictsOf(diagnosis).flatMap(({ name: which, tone, word, lead, layer, rest }) => {
        const badge = h("verdict-badge");
        badge.badge = { tone, word };
        return [
          h("dt", {}, t(`verdict.${which}`)),
          h("dd", {}, badge, h("p", {}, lead, layer && h("code", {}, layer)), rest && h("p", { class: "muted" }, rest)),
        ];
      })),
    );
  }
}

export const registerLogPart = () => customElements.define("log-part", LogPartView);
