/** The start: registers the elements and shows the page that the address names. */

import { registerChartMenu } from "./components/chart-menu.js";
import { registerChartRow } from "./components/chart-row.js";
import { registerChartStack } from "./components/chart-stack.js";
import { registerCodeSnippet } from "./components/code-snippet.js";
import { registerConnectionStatus } from "./components/connection-status.js";
import { registerControlOffer } from "./components/control-offer.js";
import { registerDrawingPicker } from "./components/drawing-picker.js";
import { registerEventLane } from "./components/event-lane.js";
import { registerFindingList } from "./components/finding-list.js";
import { registerFindingRow } from "./components/finding-row.js";
import { registerFindingWhy } from "./components/finding-why.js";
import { registerFirstRun } from "./components/first-run.js";
import { registerLayerPicker } from "./components/layer-picker.js";
import { registerMarkLegend } from "./components/mark-legend.js";
import { registerNormHistogram } from "./components/norm-histogram.js";
import { registerRangePicker } from "./components/range-picker.js";
import { registerRunFacts } from "./components/run-facts.js";
import { registerRunHead } from "./components/run-head.js";
import { registerRunList } from "./components/run-list.js";
import { registerRunPage } from "./components/run-page.js";
import { registerRunRow } from "./components/run-row.js";
import { registerRunSetup } from "./components/run-setup.js";
import { registerRunState } from "./components/run-state.js";
import { registerRunTimeline } from "./components/run-timeline.js";
import { registerRunVerdicts } from "./components/run-verdicts.js";
import { registerStepAxis } from "./components/step-axis.js";
import { registerStepPanel } from "./components/step-panel.js";
import { registerTableDialog } from "./components/table-dialog.js";
import { registerThresholdLine } from "./components/threshold-line.js";
import { registerTimeAgo } from "./components/time-ago.js";
import { registerVerdictBadge } from "./components/verdict-badge.js";
import { registerVerdictCard } from "./components/verdict-card.js";
import { registerWhatIfPanel } from "./components/what-if-panel.js";
import { h } from "./lib/dom.js";
import { start } from "./lib/router.js";
import { t } from "./lib/texts.js";

// Parts before the pages made of them.
registerTimeAgo();
registerRunState();
registerCodeSnippet();
registerVerdictBadge();
registerVerdictCard();
registerFindingWhy();
registerFindingRow();
registerFindingList();
registerRunVerdicts();
registerRunRow();
registerFirstRun();
registerChartMenu();
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
registerRunList();
registerRunPage();
registerConnectionStatus();

const content = /** @type {HTMLElement} */ (document.getElementById("content"));

start((route) => {
  if (route.page === "runs") content.replaceChildren(h("run-list"));
  else if (route.page === "run") {
    const page = h("run-page");
    page.runId = route.runId;
    content.replaceChildren(page);
  } else {
    document.title = t("app.name");
    content.replaceChildren(
      h("div", { class: "notice" }, h("h1", {}, t("nowhere.title")), h("p", {}, t("nowhere.words", { path: location.pathname })), h("a", { href: "/" }, t("nowhere.link"))),
    );
  }
});
