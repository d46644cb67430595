/** <time-ago>: a moment as "12 s ago", ticking by itself. Property `at_s`: UTC seconds by the server's clock. */

import { everySecond, serverNow } from "../lib/clock.js";
import { h, setText } from "../lib/dom.js";
import { ago } from "../lib/format.js";

export class TimeAgo extends HTMLElement {
  #life = new AbortController();
  #time = h("time");
  #at_s = NaN;

  set at_s(/** @type {number} */ at_s) {
    if (at_s === this.#at_s) return;
    this.#at_s = at_s;
    const moment = new Date(at_s * 1000);
    this.#time.dateTime = moment.toISOString();
    this.#time.title = moment.toLocaleString();
    this.#show();
  }

  connectedCallback() {
    this.#life = new AbortController();
    this.replaceChildren(this.#time);
    everySecond(() => this.#show(), this.#life.signal);
    this.#show();
  }

  disconnectedCallback() {
    this.#life.abort();
  }

  #show() {
    if (Number.isFinite(this.#at_s)) setText(this.#time, ago(serverNow() - this.#at_s));
  }
}

export const registerTimeAgo = () => customElements.define("time-ago", TimeAgo);
