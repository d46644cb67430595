/** <connection-status>: whether the page is live; when it is not, since when. */

import { checkAccess } from "../lib/api.js";
import { everySecond } from "../lib/clock.js";
import { h, setText } from "../lib/dom.js";
import { ago } from "../lib/format.js";
import { stream } from "../lib/stream.js";
import { t } from "../lib/texts.js";

/** A reconnect this quick is not worth a word. */
const GRACE_MS = 1_500;

export class ConnectionStatus extends HTMLElement {
  #life = new AbortController();
  #words = h("span");
  /** Ticks each second: not for a screen reader. */
  #age = h("span", { "aria-hidden": "true" });
  #everConnected = false;

  connectedCallback() {
    this.#life = new AbortController();
    const { signal } = this.#life;
    this.setAttribute("role", "status");
    this.replaceChildren(h("span", { class: "connection-dot", "aria-hidden": "true" }), h("span", {}, this.#words, this.#age));
    stream().watchRuns(() => null, signal); // connects, on pages too that themselves hear of nothing
    stream().addEventListener("state", () => this.#show(), { signal });
    everySecond(() => this.#show(), signal);
    this.#show();
  }

  disconnectedCallback() {
    this.#life.abort();
  }

  #show() {
    const { connected, since_ms } = stream();
    this.#everConnected ||= connected;
    const down_ms = Date.now() - since_ms;
    const state = connected ? "live" : down_ms < (this.#everConnected ? GRACE_MS : 2 * GRACE_MS) ? "connecting" : "lost";
    if (state === "lost" && this.dataset.state !== "lost") checkAccess();
    this.dataset.state = state;
    setText(this.#words, t(`connection.${state}`));
    setText(this.#age, state === "lost" ? ` ${t("connection.since", { ago: ago(down_ms / 1000) })}` : "");
  }
}

export const registerConnectionStatus = () => customElements.define("connection-status", ConnectionStatus);
