/** <alert-row>: one alert of the list. Property `alert`; event `acknowledge` with it. */

import { alertPath, alertTitle } from "../lib/alert-words.js";
import { serverNow } from "../lib/clock.js";
import { h } from "../lib/dom.js";
import { ago, counted } from "../lib/format.js";
import { toneMark } from "../lib/marks.js";
import { runPath } from "../lib/router.js";
import { t } from "../lib/texts.js";
import { stepWords } from "../lib/verdicts.js";

export class AlertRow extends HTMLElement {
  #shown = "";

  connectedCallback() {
    this.setAttribute("role", "listitem");
  }

  set alert(/** @type {RunAlert} */ alert) {
    const shown = JSON.stringify(alert);
    if (shown === this.#shown) return;
    this.#shown = shown;
    const tone = alert.severity === "info" ? "neutral" : alert.severity;
    const title = alertTitle(alert);
    this.dataset.tone = alert.state === "resolved" ? "quiet" : tone;
    this.dataset.state = alert.state;
    const seen = h("time-ago");
    seen.at_s = alert.opened_at_s;
    const steps = alert.first_step === null ? "" : stepWords(alert.first_step, alert.last_step ?? alert.first_step);
    this.replaceChildren(
      h("span", { class: "alert-mark" }, toneMark(tone, 16), h("span", { class: "visually-hidden" }, t(`alert.severity.${alert.severity}`))),
      h("div", { class: "alert-words" },
        h("a", { class: "alert-title", href: alertPath(alert) }, title),
        h("p", { class: "muted" }, h("a", { href: runPath(alert.run_id) }, `${alert.project} / `, h("bdi", {}, alert.run_name)), steps && ` · ${steps}`, ...notes(alert).map((words) => ` · ${words}`)),
      ),
      h("span", { class: "muted alert-time" }, seen),
      this.#end(alert, title),
    );
  }

  /** @param {RunAlert} alert @param {string} title */
  #end(alert, title) {
    if (alert.state !== "open") return h("span", { class: "alert-state muted" }, t(`alert.state.${alert.state}`));
    const button = h("button", { type: "button", class: "button small", "aria-label": t("alerts.acknowledge.of", { title }) }, t("alerts.acknowledge"));
    button.addEventListener("click", () => {
      button.disabled = true;
      this.dispatchEvent(new CustomEvent("acknowledge", { detail: alert, bubbles: true }));
    });
    return button;
  }
}

/** @param {RunAlert} alert */
function notes({ num_repeats, folded, acknowledged_at_s, acknowledged_by, resolved_at_s }) {
  const since = (/** @type {number} */ at_s) => ago(serverNow() - at_s);
  const who = acknowledged_by && { who: acknowledged_by };
  return [
    num_repeats ? t("alerts.repeats", { times: counted(num_repeats, t("rules.time"), t("rules.times")) }) : "",
    folded.length ? t("alerts.folded", { kinds: folded.map((kind) => t(`alert.kind.${kind}`)).join(", ") }) : "",
    acknowledged_at_s === null ? "" : who ? t("alerts.acknowledged.by", { ...who, ago: since(acknowledged_at_s) }) : t("alerts.acknowledged.ago", { ago: since(acknowledged_at_s) }),
    resolved_at_s === null ? "" : t("alerts.resolved.ago", { ago: since(resolved_at_s) }),
  ].filter(Boolean);
}

export const registerAlertRow = () => customElements.define("alert-row", AlertRow);
