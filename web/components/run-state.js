/** <run-state>: how alive a run is, as a mark and a word. Property `state`. */

import { glyph, h } from "../lib/dom.js";
import { t } from "../lib/texts.js";

/** Shapes differ, so that colour is never alone. @type {Record<RunState, [path: string, filled: boolean]>} */
const MARKS = {
  running: ["M6 2a4 4 0 1 0 0 8a4 4 0 1 0 0-8z", true],
  stalled: ["M3.5 2.5v7M8.5 2.5v7", false],
  silent: ["M6 2.5a3.5 3.5 0 1 0 0 7a3.5 3.5 0 1 0 0-7z", false],
  finished: ["M2.5 6.5l2.5 2.5l4.5-6", false],
  failed: ["M3 3l6 6M9 3l-6 6", false],
};

export class RunStateMark extends HTMLElement {
  /** @type {RunState | null} */
  #state = null;

  set state(/** @type {RunState} */ state) {
    if (state === this.#state) return;
    this.#state = state;
    const [path, filled] = MARKS[state] ?? MARKS.silent;
    this.dataset.state = state;
    this.title = t(`state.${state}.why`);
    this.replaceChildren(glyph(path, { filled }), h("span", {}, t(`state.${state}`)));
  }
}

export const registerRunState = () => customElements.define("run-state", RunStateMark);
