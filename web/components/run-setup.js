/** <run-setup>: how the run was made, folded away under the charts. */

import { h } from "../lib/dom.js";
import { abbreviated, integer, plain } from "../lib/format.js";
import { t } from "../lib/texts.js";

export class RunSetup extends HTMLElement {
  #list = h("dl", { class: "setup-list" });
  #config = h("pre", { tabindex: 0 });
  #shown = "";

  connectedCallback() {
    if (this.firstChild) return;
    this.append(h("details", { class: "card setup" }, h("summary", {}, t("setup.title")), this.#list, this.#config));
  }

  /** @param {RunDetail} run @param {StreamRecord} record of the stream on screen */
  show(run, record) {
    const rows = setupRows(run, record);
    const config = Object.keys(run.config).length ? JSON.stringify(run.config, null, 2) : "";
    const shown = JSON.stringify([rows, config]);
    if (shown === this.#shown) return;
    this.#shown = shown;
    this.#list.replaceChildren(...rows.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
    this.#config.textContent = config;
    this.#config.hidden = !config;
  }
}

/** @param {RunDetail} run @param {StreamRecord} record @returns {[string, string][]} */
function setupRows(run, record) {
  /** @type {[string, string | null | undefined][]} */
  const rows = [
    [t("setup.policy"), record.policy === null ? t("setup.policy.off") : record.policy],
    [t("setup.precision"), record.precision],
    [t("setup.scaler"), record.scaler === null ? t("setup.scaler.off") : record.scaler],
    [t("setup.optimizer"), optimizerWords(record.optimizer)],
    [t("setup.parameters"), record.num_parameters === undefined ? undefined : abbreviated(record.num_parameters)],
    [t("setup.world"), run.world_size && run.world_size > 1 ? integer(run.world_size) : undefined],
    [t("setup.versions"), Object.entries(run.frameworks).map(([name, version]) => `${name} ${version}`).join(", ")],
    [t("setup.started"), new Date(run.started_at_s * 1000).toLocaleString()],
    [t("setup.tags"), run.tags.join(", ")],
    [t("setup.id"), run.id],
  ];
  return /** @type {[string, string][]} */ (rows.filter(([, value]) => value));
}

/** @param {StreamRecord["optimizer"]} optimizer */
function optimizerWords(optimizer) {
  if (!optimizer) return undefined;
  const words = [optimizer.class];
  if (optimizer.lr !== undefined && optimizer.lr !== null) words.push(`lr ${plain(optimizer.lr)}`);
  if (optimizer.betas) words.push(`betas ${optimizer.betas.map(plain).join(", ")}`);
  if (optimizer.momentum) words.push(`momentum ${plain(optimizer.momentum)}`);
  return words.join(" · ");
}

export const registerRunSetup = () => customElements.define("run-setup", RunSetup);
