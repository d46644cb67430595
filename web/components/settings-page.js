/** <settings-page>: this browser's choices, alert rules, who is told of alerts, the server's state. */

import { h } from "../lib/dom.js";
import { t } from "../lib/texts.js";

export class SettingsPage extends HTMLElement {
  connectedCallback() {
    document.title = `${t("settings.title")} · ${t("app.name")}`;
    if (this.firstChild) return;
    this.append(
      h("header", { class: "page-head" }, h("h1", {}, t("settings.title"))),
      h("section", { class: "card settings-card" },
        h("h2", {}, t("settings.browser")),
        h("dl", { class: "facts-list" },
          h("dt", {}, t("settings.theme")), h("dd", {}, h("theme-picker")),
          h("dt", {}, t("settings.language")), h("dd", {}, h("language-picker")),
          h("dt", {}, t("notify.title")), h("dd", {}, h("notify-switch")),
        ),
      ),
      h("alert-rules"),
      h("notification-targets"),
      h("server-state"),
    );
  }
}

export const registerSettingsPage = () => customElements.define("settings-page", SettingsPage);
