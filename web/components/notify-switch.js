/** <notify-switch>: whether new alerts come as notifications of the operating system. */

import { h, setText } from "../lib/dom.js";
import { notifyState, wantNotifications } from "../lib/notifying.js";
import { t } from "../lib/texts.js";

export class NotifySwitch extends HTMLElement {
  #buttons = /** @type {const} */ (["on", "off"]).map((state) => h("button", { type: "button", "data-state": state }, t(`notify.${state}`)));
  #words = h("span", { class: "muted" });

  connectedCallback() {
    if (this.firstChild) return;
    this.append(h("div", { class: "segments", role: "group", "aria-label": t("notify.title") }, ...this.#buttons), this.#words);
    for (const button of this.#buttons) button.addEventListener("click", async () => {
      await wantNotifications(button.dataset.state === "on");
      this.#show();
    });
    this.#show();
  }

  #show() {
    const state = notifyState();
    for (const button of this.#buttons) {
      button.disabled = state === "missing" || state === "denied";
      button.setAttribute("aria-pressed", String(button.dataset.state === (state === "on" ? "on" : "off")));
    }
    setText(this.#words, t(state === "missing" || state === "denied" ? `notify.${state}` : "notify.words"));
  }
}

export const registerNotifySwitch = () => customElements.define("notify-switch", NotifySwitch);
