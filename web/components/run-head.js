/** <run-head>: which run this is, how alive and how far; its streams and attempts. Event `choose`: {stream, attempt}. */

import { copyText } from "../lib/clipboard.js";
import { everySecond, serverNow } from "../lib/clock.js";
import { h, setText } from "../lib/dom.js";
import { ago, duration, integer, rate } from "../lib/format.js";
import { stream } from "../lib/stream.js";
import { t } from "../lib/texts.js";

const COPIED_MS = 2_000;

export class RunHead extends HTMLElement {
  #life = new AbortController();
  #project = h("bdi", { class: "project" });
  #name = h("bdi", { class: "name" });
  #state = h("run-state");
  #progress = h("span", { class: "progress-words" });
  #seen = h("time-ago");
  #bar = h("span", { class: "bar", "aria-hidden": "true" }, h("span"));
  #stream = h("select", { id: "choose-stream" });
  #copy = h("button", { type: "button", class: "button small" }, t("run.copy"));
  #print = h("button", { type: "button", class: "button small" }, t("run.print"));
  #attempt = h("select", { id: "choose-attempt" });
  #streamLabel = h("label", { class: "choice" }, t("run.stream"), this.#stream);
  #attemptLabel = h("label", { class: "choice" }, t("run.attempt"), this.#attempt);
  /** @type {RunDetail | null} */
  #run = null;
  #shown = "";

  connectedCallback() {
    this.#life = new AbortController();
    const { signal } = this.#life;
    this.replaceChildren(
      h("div", { class: "run-title" }, h("h1", {}, this.#project, h("span", { class: "separator" }, " / "), this.#name), h("p", { class: "run-line" }, this.#state, this.#progress, this.#seen), this.#bar),
      h("div", { class: "choices" }, this.#streamLabel, this.#attemptLabel, this.#copy, this.#print),
    );
    this.#copy.addEventListener("click", () => this.#copyLink(), { signal });
    this.#print.addEventListener("click", () => window.print(), { signal });
    this.#stream.addEventListener("change", () => this.#choose({ stream: this.#stream.value }), { signal });
    this.#attempt.addEventListener("change", () => this.#choose({ attempt: Number(this.#attempt.value) || null }), { signal });
    everySecond(() => this.#showProgress(), signal);
  }

  disconnectedCallback() {
    this.#life.abort();
  }

  /** @param {RunDetail} run @param {string} streamName @param {number | null} attempt */
  show(run, streamName, attempt) {
    this.#run = run;
    setText(this.#project, run.project);
    setText(this.#name, run.name);
    this.#state.state = run.state;
    this.#seen.at_s = run.last_seen_s;
    this.#showProgress();
    this.#showChoices(run, streamName, attempt);
  }

  #showProgress() {
    if (!this.#run) return;
    const { last_step, total_steps, steps_per_s, state } = this.#run;
    const words = [];
    if (last_step === null) words.push(t("run.no.steps"));
    else words.push(total_steps ? t("run.step.of", { step: integer(last_step), total: integer(total_steps) }) : t("run.step", { step: integer(last_step) }));
    // What was fast before the connection went may stand still by now.
    const isLive = state === "running" && stream().connected;
    if (isLive && steps_per_s) words.push(rate(steps_per_s));
    const left = total_steps && last_step !== null ? total_steps - last_step - 1 : 0;
    if (isLive && steps_per_s && left > 0) words.push(t("run.left", { duration: duration(left / steps_per_s) }));
    setText(this.#progress, words.join(" · "));
    this.#seen.hidden = state === "running" && serverNow() - this.#run.last_seen_s < 10;
    this.#bar.hidden = !total_steps;
    if (total_steps) /** @type {HTMLElement} */ (this.#bar.firstChild).style.width = `${Math.min(100, (100 * ((last_step ?? -1) + 1)) / total_steps)}%`;
  }

  /** @param {RunDetail} run @param {string} streamName @param {number | null} attempt */
  #showChoices(run, streamName, attempt) {
    const shown = JSON.stringify([run.streams, run.attempts, streamName, attempt]);
    if (shown === this.#shown) return;
    this.#shown = shown;
    this.#streamLabel.hidden = run.streams.length < 2;
    this.#attemptLabel.hidden = run.attempts.length < 2;
    this.#stream.replaceChildren(...run.streams.map((name) => h("option", { value: name }, name)));
    this.#stream.value = streamName;
    this.#attempt.replaceChildren(
      h("option", { value: "" }, t("run.attempt.joined")),
      ...run.attempts.map((one) => h("option", { value: one.number }, t("run.attempt.one", { number: one.number, ago: ago(serverNow() - one.started_at_s) }))),
    );
    this.#attempt.value = attempt === null ? "" : String(attempt);
  }

  async #copyLink() {
    await copyText(location.href);
    setText(this.#copy, t("run.copied"));
    setTimeout(() => setText(this.#copy, t("run.copy")), COPIED_MS);
  }

  /** @param {{stream?: string, attempt?: number | null}} detail */
  #choose(detail) {
    this.dispatchEvent(new CustomEvent("choose", { detail, bubbles: true }));
  }
}

export const registerRunHead = () => customElements.define("run-head", RunHead);
