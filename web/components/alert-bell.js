/** <alert-bell>: how many alerts are open, here and in the tab's title; new ones are said aloud, wherever one is. */

import { alertKey, alertPath, alertTitle } from "../lib/alert-words.js";
import { h, setText } from "../lib/dom.js";
import { integer } from "../lib/format.js";
import { notifySystem } from "../lib/notifying.js";
import { isTold, openAlerts } from "../lib/open-alerts.js";
import { t } from "../lib/texts.js";
import { sayToast } from "../lib/toasts.js";

export class AlertBell extends HTMLElement {
  #life = new AbortController();
  #count = h("span", { class: "bell-count" });
  #title = new MutationObserver(() => this.#showInTitle());

  connectedCallback() {
    this.#life = new AbortController();
    const { signal } = this.#life;
    this.replaceChildren(this.#count);
    openAlerts.watch(() => this.#show(), signal);
    openAlerts.addEventListener("alert", (event) => this.#tell(/** @type {CustomEvent<RunAlert>} */ (event).detail), { signal });
    const title = document.querySelector("title");
    if (title) this.#title.observe(title, { childList: true });
    this.#show();
  }

  disconnectedCallback() {
    this.#life.abort();
    this.#title.disconnect();
  }

  #show() {
    const { count, hasMore } = openAlerts;
    this.hidden = !count;
    setText(this.#count, `${integer(count)}${hasMore ? "+" : ""}`);
    this.title = t("alerts.open", { count: integer(count) });
    this.#count.setAttribute("aria-label", this.title);
    this.#showInTitle();
  }

  /** Each page sets its own title: the count goes before whatever that is. */
  #showInTitle() {
    const words = document.title.replace(/^\(\d+\+?\) /, "");
    const { count, hasMore } = openAlerts;
    const wanted = count ? `(${count}${hasMore ? "+" : ""}) ${words}` : words;
    if (document.title !== wanted) document.title = wanted;
  }

  /** @param {RunAlert} alert */
  #tell(alert) {
    if (!isTold(alert)) return;
    const title = alertTitle(alert);
    const words = t("alerts.toast", { project: alert.project, name: alert.run_name });
    const tone = alert.severity === "info" ? "neutral" : alert.severity;
    sayToast({ tone, title, words, href: alertPath(alert), key: alertKey(alert) });
    notifySystem(title, words, alertKey(alert), alertPath(alert));
  }
}

export const registerAlertBell = () => customElements.define("alert-bell", AlertBell);
