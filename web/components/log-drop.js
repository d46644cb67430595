/** <log-drop>: a log dropped, chosen or pasted is read and judged; it becomes a run if the person says so. Method `read`. */

import { ApiError, readLog } from "../lib/api.js";
import { h, setText } from "../lib/dom.js";
import { integer } from "../lib/format.js";
import { t } from "../lib/texts.js";

export class LogDrop extends HTMLElement {
  #reading = new AbortController();
  #file = h("input", { type: "file", class: "visually-hidden", id: "log-file" });
  #lines = h("textarea", { rows: 3, "aria-label": t("drop.paste"), placeholder: t("drop.here"), spellcheck: "false" });
  #readLines = h("button", { type: "button", class: "button", disabled: true }, t("drop.read"));
  #zone = h("div", { class: "drop-zone" },
    this.#lines,
    h("div", { class: "drop-buttons" }, this.#file, h("label", { for: "log-file", class: "button" }, t("drop.choose")), this.#readLines),
    h("p", { class: "muted" }, t("drop.words")));
  #answer = h("div", { class: "drop-answer", role: "status" });
  /** @type {{blob: Blob, name: string} | null} */
  #log = null;
  #maxNorm = h("input", { type: "number", min: 0, step: "any" });

  connectedCallback() {
    if (this.firstChild) return;
    this.append(this.#zone, this.#answer);
    this.#file.addEventListener("change", () => {
      const [file] = this.#file.files ?? [];
      if (file) this.read(file, file.name);
      this.#file.value = "";
    });
    this.#lines.addEventListener("input", () => (this.#readLines.disabled = !this.#lines.value.trim()));
    this.#readLines.addEventListener("click", () => this.read(new Blob([this.#lines.value]), t("drop.pasted")));
    // Pasted lines are read at once; so is a file that was copied in the system's own file browser.
    this.#lines.addEventListener("paste", (event) => {
      const [file] = event.clipboardData?.files ?? [];
      if (file) {
        event.preventDefault();
        this.read(file, file.name);
      } else setTimeout(() => this.#lines.value.trim() && this.read(new Blob([this.#lines.value]), t("drop.pasted")));
    });
    this.#zone.addEventListener("dragover", (event) => {
      event.preventDefault();
      this.#zone.classList.add("is-over");
    });
    this.#zone.addEventListener("dragleave", () => this.#zone.classList.remove("is-over"));
    this.#zone.addEventListener("drop", (event) => {
      event.preventDefault();
      event.stopPropagation();
      this.#zone.classList.remove("is-over");
      this.take(event.dataTransfer);
    });
  }

  disconnectedCallback() {
    this.#reading.abort();
  }

  /** What was dropped: a file, or text. @param {DataTransfer | null} dropped */
  take(dropped) {
    const [file] = dropped?.files ?? [];
    const text = dropped?.getData("text/plain") ?? "";
    if (file) this.read(file, file.name);
    else if (text.trim()) this.read(new Blob([text]), t("drop.pasted"));
  }

  /** @param {Blob} blob @param {string} name */
  read(blob, name) {
    this.#log = { blob, name: name.slice(0, 256) };
    this.#maxNorm.value = "";
    return this.#ask(false);
  }

  /** @param {boolean} keep */
  async #ask(keep) {
    if (!this.#log) return;
    const { blob, name } = this.#log;
    this.#reading.abort();
    this.#reading = new AbortController();
    const { signal } = this.#reading;
    if (!keep) setText(this.#answer, t("drop.reading", { name }));
    try {
      const max_norm = this.#maxNorm.valueAsNumber > 0 ? this.#maxNorm.valueAsNumber : null;
      this.#show(await readLog(blob, { name, keep, max_norm }, signal));
    } catch (error) {
      if (signal.aborted) return;
      this.#answer.replaceChildren(h("p", { class: "problem" }, h("strong", {}, t("drop.failed", { name })), ` ${error instanceof ApiError ? error.message : String(error)}`));
    }
  }

  /** @param {ImportAnswer} answer */
  #show({ format, notes, kept, runs }) {
    const parts = runs.map((run) => {
      const part = h("log-part");
      part.show(run);
      return part;
    });
    const count = new Set(runs.map(({ run }) => run)).size;
    const keep = h("button", { type: "button", class: "button primary" }, kept ? t("drop.kept") : count > 1 ? t("drop.keep.many", { count: integer(count) }) : t("drop.keep"));
    keep.disabled = kept;
    keep.addEventListener("click", () => {
      keep.disabled = true;
      setText(keep, t("drop.keeping"));
      this.#ask(true);
    });
    const again = h("button", { type: "button", class: "button" }, t("drop.max_norm.do"));
    again.addEventListener("click", () => this.#ask(false));
    const knowsThreshold = runs.some(({ sparkline }) => sparkline.max_norm.some((value) => value !== null));
    this.#answer.replaceChildren(
      h("p", {}, h("strong", {}, t("drop.found", { name: this.#log?.name ?? "", format: format.title }))),
      ...parts,
      ...(notes.length ? [h("ul", { class: "muted drop-notes" }, ...notes.map((note) => h("li", {}, note)))] : []),
      h("div", { class: "drop-buttons" }, keep, ...(knowsThreshold && !this.#maxNorm.value ? [] : [h("label", { class: "drop-threshold" }, t("drop.max_norm"), " ", this.#maxNorm), again])),
    );
  }
}

export const registerLogDrop = () => customElements.define("log-drop", LogDrop);
