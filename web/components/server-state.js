/** <server-state>: how the server is and what its database takes, read again every few seconds. */

import { ApiError, getServer } from "../lib/api.js";
import { everySecond } from "../lib/clock.js";
import { h } from "../lib/dom.js";
import { bytes, duration, integer } from "../lib/format.js";
import { t } from "../lib/texts.js";

const AGAIN_S = 10;

export class ServerState extends HTMLElement {
  #life = new AbortController();
  #server = h("dl", { class: "facts-list" });
  #storage = h("dl", { class: "facts-list" });
  #problem = h("p", { class: "problem", role: "alert", hidden: true });
  #beats = 0;

  connectedCallback() {
    this.#life = new AbortController();
    this.replaceChildren(
      h("section", { class: "card settings-card" }, h("h2", {}, t("server.title")), this.#problem, this.#server),
      h("section", { class: "card settings-card" }, h("h2", {}, t("storage.title")), this.#storage),
    );
    everySecond(() => ++this.#beats % AGAIN_S || this.#read(), this.#life.signal);
    this.#read();
  }

  disconnectedCallback() {
    this.#life.abort();
  }

  async #read() {
    const { signal } = this.#life;
    try {
      this.#show(await getServer(signal));
      this.#problem.hidden = true;
    } catch (error) {
      if (signal.aborted) return;
      const retry = h("button", { type: "button", class: "button small" }, t("retry"));
      retry.addEventListener("click", () => this.#read());
      this.#problem.replaceChildren(t("server.error"), " ", error instanceof ApiError ? error.message : String(error), " ", retry);
      this.#problem.hidden = false;
    }
  }

  /** @param {ServerAnswer} answer */
  #show({ version, started_at_s, now_s, needs_token, is_leader, num_viewers, num_waiting, database, retention }) {
    this.#server.replaceChildren(
      ...fact(t("server.version"), version),
      ...fact(t("server.up"), duration(now_s - started_at_s)),
      ...fact(t("server.viewers"), integer(num_viewers)),
      ...fact(t("server.waiting"), integer(num_waiting)),
      ...fact(t("server.access"), t(needs_token ? "server.access.token" : "server.access.open")),
      ...fact(t("server.leader"), t(is_leader ? "server.leader.here" : "server.leader.elsewhere")),
    );
    const { num_bytes, num_runs, num_archived, num_steps, url } = database;
    this.#storage.replaceChildren(
      ...fact(t("storage.database"), h("code", {}, url)),
      ...fact(t("storage.size"), bytes(num_bytes)),
      ...fact(t("storage.runs"), integer(num_runs), num_archived ? t("storage.archived", { count: integer(num_archived) }) : ""),
      ...fact(t("storage.steps"), integer(num_steps), num_steps ? `${t("storage.per.step")} ${bytes(Math.round(num_bytes / num_steps))}` : ""),
      ...fact(t("storage.retention"), kept(retention), retention.keep_raw_days === null && retention.keep_raw_steps === null ? "" : t("storage.rollups")),
    );
  }
}

/** @param {ServerAnswer["retention"]} retention */
function kept({ keep_raw_days, keep_raw_steps }) {
  const words = [
    keep_raw_days === null ? "" : t("storage.keep.days", { days: integer(keep_raw_days) }),
    keep_raw_steps === null ? "" : t("storage.keep.steps", { steps: integer(keep_raw_steps) }),
  ].filter(Boolean);
  return words.join(", ") || t("storage.keep.all");
}

/** @param {string} name @param {string | HTMLElement} value @param {string} [more] */
function fact(name, value, more = "") {
  return [h("dt", {}, name), h("dd", {}, value, more && h("span", { class: "muted" }, ` ${more}`))];
}

export const registerServerState = () => customElements.define("server-state", ServerState);
