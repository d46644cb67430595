/** <notification-targets>: who is told of alerts, how each fares, and a test. Where they are stays in the server's configuration. */

import { ApiError, getTargets, testTarget } from "../lib/api.js";
import { everySecond, serverNow } from "../lib/clock.js";
import { h, setText } from "../lib/dom.js";
import { ago, integer, number } from "../lib/format.js";
import { t } from "../lib/texts.js";

const AGAIN_S = 15;
const EXAMPLE = 'GRADSIGHT_NOTIFICATIONS="slack://… mailto://…" gradsight serve';

export class NotificationTargets extends HTMLElement {
  #life = new AbortController();
  #list = h("div", { class: "target-list" });
  #url = h("p", { class: "muted" });
  #problem = h("p", { class: "problem", role: "alert", hidden: true });
  #beats = 0;

  connectedCallback() {
    this.#life = new AbortController();
    this.classList.add("card", "settings-card");
    this.replaceChildren(h("h2", {}, t("targets.title")), this.#problem, this.#list, this.#url);
    everySecond(() => ++this.#beats % AGAIN_S || this.#read(), this.#life.signal);
    this.#read();
  }

  disconnectedCallback() {
    this.#life.abort();
  }

  async #read() {
    const { signal } = this.#life;
    try {
      const { items, public_url } = await getTargets(signal);
      this.#problem.hidden = true;
      this.#show(items);
      setText(this.#url, items.length ? (public_url ? t("targets.url", { url: public_url }) : t("targets.url.none")) : "");
    } catch (error) {
      if (signal.aborted) return;
      const retry = h("button", { type: "button", class: "button small" }, t("retry"));
      retry.addEventListener("click", () => this.#read());
      this.#problem.replaceChildren(`${t("targets.error")} ${error instanceof ApiError ? error.message : String(error)} `, retry);
      this.#problem.hidden = false;
    }
  }

  /** @param {NotificationTarget[]} targets */
  #show(targets) {
    if (!targets.length) {
      if (!this.#list.querySelector("pre")) this.#list.replaceChildren(h("p", { class: "muted" }, t("targets.none")), h("pre", { tabindex: 0 }, h("code", {}, EXAMPLE)));
      return;
    }
    const rows = new Map([...this.#list.querySelectorAll(".target")].map((row) => [/** @type {HTMLElement} */ (row).dataset.name ?? "", row]));
    this.#list.replaceChildren(...targets.map((target) => {
      const row = rows.get(target.name) ?? this.#row(target.name);
      row.querySelector(".target-words")?.replaceChildren(...lines(target));
      return row;
    }));
  }

  /** @param {string} name */
  #row(name) {
    const button = h("button", { type: "button", class: "button small", "aria-label": t("targets.test.of", { name }) }, t("targets.test"));
    const answer = h("p", { role: "status", class: "target-answer" });
    button.addEventListener("click", async () => {
      button.disabled = true;
      setText(answer, t("targets.test.running"));
      try {
        const [{ ok, error, duration_s }] = (await testTarget(name)).items;
        setText(answer, ok ? t("targets.test.ok", { duration: `${number(duration_s, 2)} s` }) : t("targets.test.failed", { error: error ?? "" }));
        answer.classList.toggle("problem", !ok);
      } catch (error) {
        setText(answer, t("targets.test.failed", { error: error instanceof ApiError ? error.message : String(error) }));
        answer.classList.add("problem");
      }
      button.disabled = false;
    });
    return h("div", { class: "target", "data-name": name }, h("div", {}, h("div", { class: "target-words" }), answer), button);
  }
}

/** @param {NotificationTarget} target */
function lines(target) {
  const { name, service, project, severity, state, num_sent, num_waiting, num_given_up, last_sent_at_s, failing_since_s, last_error } = target;
  const since = (/** @type {number} */ at_s) => ago(serverNow() - at_s);
  const counts = [
    t("targets.sent", { count: integer(num_sent) }),
    num_waiting ? t("targets.waiting", { count: integer(num_waiting) }) : "",
    num_given_up ? t("targets.given.up", { count: integer(num_given_up) }) : "",
    last_sent_at_s === null ? "" : t("targets.last", { ago: since(last_sent_at_s) }),
  ].filter(Boolean).join(" · ");
  const trouble = failing_since_s === null ? "" : t("targets.failing", { ago: since(failing_since_s), error: last_error ?? "" });
  return [
    h("p", {}, h("strong", {}, name), " ", h("span", { class: "target-state", "data-state": state }, t(`targets.state.${state}`))),
    h("p", { class: "muted" }, t("targets.wants", { service, project, severity: t(`alert.severity.${severity}`) })),
    h("p", { class: "muted" }, counts),
    ...(trouble ? [h("p", { class: "problem" }, trouble)] : []),
  ];
}

export const registerNotificationTargets = () => customElements.define("notification-targets", NotificationTargets);
