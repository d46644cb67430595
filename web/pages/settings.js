/** Everything of the settings; fetched once somebody goes there. */

import { registerAlertRule } from "../components/alert-rule.js";
import { registerAlertRules } from "../components/alert-rules.js";
import { registerLanguagePicker } from "../components/language-picker.js";
import { registerNotificationTargets } from "../components/notification-targets.js";
import { registerNotifySwitch } from "../components/notify-switch.js";
import { registerServerState } from "../components/server-state.js";
import { registerSettingsPage } from "../components/settings-page.js";
import { registerThemePicker } from "../components/theme-picker.js";

export function register() {
  registerThemePicker();
  registerLanguagePicker();
  registerNotifySwitch();
  registerAlertRule();
  registerAlertRules();
  registerNotificationTargets();
  registerServerState();
  registerSettingsPage();
}
