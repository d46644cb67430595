/** Everything of the page of alerts; fetched once somebody goes there. */

import { registerAlertRow } from "../components/alert-row.js";
import { registerAlertsPage } from "../components/alerts-page.js";

export function register() {
  registerAlertRow();
  registerAlertsPage();
}
