/** Everything of the page of one run. */

import { registerChartMenu } from "../components/chart-menu.js";
import { registerChartOverlay } from "../components/chart-overlay.js";
import { registerChartRow } from "../components/chart-row.js";
import { registerChartStack } from "../components/chart-stack.js";
import { registerCodeSnippet } from "../components/code-snippet.js";
import { registerControlOffer } from "../components/control-offer.js";
import { registerDrawingPicker } from "../components/drawing-picker.js";
import { registerEventLane } from "../components/event-lane.js";
import { registerFindingList } from "../components/finding-list.js";
import { registerFindingRow } from "../components/finding-row.js";
import { registerFindingWhy } from "../components/finding-why.js";
import { registerLayerPicker } from "../components/layer-picker.js";
import { registerMarkLegend } from "../components/mark-legend.js";
import { registerNormHistogram } from "../components/norm-histogram.js";
import { registerRangePicker } from "../components/range-picker.js";
import { registerRunFacts } from "../components/run-facts.js";
import { registerRunHead } from "../components/run-head.js";
import { registerRunPage } from "../components/run-page.js";
import { registerRunSetup } from "../components/run-setup.js";
import { registerRunTimeline } from "../components/run-timeline.js";
import { registerRunVerdicts } from "../components/run-verdicts.js";
import { registerStepAxis } from "../components/step-axis.js";
import { registerStepPanel } from "../components/step-panel.js";
import { registerTableDialog } from "../components/table-dialog.js";
import { registerThresholdLine } from "../components/threshold-line.js";
import { registerVerdictCard } from "../components/verdict-card.js";
import { registerWhatIfPanel } from "../components/what-if-panel.js";

/** Parts before the page made of them. */
export function register() {
  registerCodeSnippet();
  registerVerdictCard();
  registerFindingWhy();
  registerFindingRow();
  registerFindingList();
  registerRunVerdicts();
  registerChartMenu();
  registerChartOverlay();
  registerControlOffer();
  registerDrawingPicker();
  registerEventLane();
  registerStepPanel();
  registerTableDialog();
  registerMarkLegend();
  registerRangePicker();
  registerRunFacts();
  registerRunHead();
  registerRunSetup();
  registerLayerPicker();
  registerStepAxis();
  registerChartRow();
  registerNormHistogram();
  registerThresholdLine();
  registerWhatIfPanel();
  registerRunTimeline();
  registerChartStack();
  registerRunPage();
}
