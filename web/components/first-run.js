/** <first-run>: how to send the first run here, with this server's address filled in. */

import { copyButton } from "../lib/clipboard.js";
import { h } from "../lib/dom.js";
import { t } from "../lib/texts.js";

/** @param {string} server */
function pythonLines(server) {
  return [
    "import gradsight",
    `run = gradsight.Run(project="lm", name="first", server="${server}")`,
    'monitor = gradsight.Monitor(model, optimizer, run=run, clip=1.0)',
    "monitor.step(loss)  # in the loop, for each batch",
    "run.finish()",
  ].join("\n");
}

/** @param {string} server @param {string} runId */
function curlLines(server, runId) {
  const run = `${server}/api/v1/runs/${runId}`;
  return [
    `curl -X PUT ${run}`,
    `curl --json '{"step":[0,1],"grad_norm_before_clip":[1.5,"NaN"]}' \\\n  ${run}/streams/main/batches`,
  ].join("\n");
}

/** A run id, 32 hex digits; `crypto.randomUUID` is missing on plain http. */
function newRunId() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export class FirstRun extends HTMLElement {
  connectedCallback() {
    if (this.firstChild) return;
    const server = location.origin;
    this.append(
      h("h2", {}, t("first.title")),
      h("p", { class: "lead" }, t("first.words")),
      h("div", { class: "recipes" },
        recipe(t("first.python"), pythonLines(server), t("first.python.words")),
        h("section", { class: "recipe" }, h("header", {}, h("h3", {}, t("drop.title"))), h("log-drop")),
        recipe(t("first.curl"), curlLines(server, newRunId()), t("first.curl.words")),
      ),
    );
  }
}

/** @param {string} title @param {string} code @param {string} words */
function recipe(title, code, words) {
  const lines = h("code", {}, code);
  return h("section", { class: "recipe" },
    h("header", {}, h("h3", {}, title), copyButton(lines)),
    h("pre", { tabindex: 0 }, lines),
    h("p", { class: "muted" }, words),
  );
}

export const registerFirstRun = () => customElements.define("first-run", FirstRun);
