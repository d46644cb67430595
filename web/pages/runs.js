/** Everything of the list of runs. */

import { registerDeleteDialog } from "../components/delete-dialog.js";
import { registerFirstRun } from "../components/first-run.js";
import { registerLogDialog } from "../components/log-dialog.js";
import { registerLogDrop } from "../components/log-drop.js";
import { registerLogPart } from "../components/log-part.js";
import { registerRunFilters } from "../components/run-filters.js";
import { registerRunList } from "../components/run-list.js";
import { registerRunRow } from "../components/run-row.js";
import { registerRunSelection } from "../components/run-selection.js";
import { registerRunTable } from "../components/run-table.js";
import { registerSparkLine } from "../components/spark-line.js";
import { registerTagsDialog } from "../components/tags-dialog.js";

/** Parts before the page made of them. */
export function register() {
  registerSparkLine();
  registerRunRow();
  registerRunTable();
  registerRunFilters();
  registerRunSelection();
  registerDeleteDialog();
  registerTagsDialog();
  registerFirstRun();
  registerRunList();
  registerLogPart();
  registerLogDrop();
  registerLogDialog();
}
