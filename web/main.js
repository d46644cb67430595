/** The start: registers the elements and shows the page that the address names. */

import { registerAlertBell } from "./components/alert-bell.js";
import { registerChartMenu } from "./components/chart-menu.js";
import { registerChartOverlay } from "./components/chart-overlay.js";
import { registerChartRow } from "./components/chart-row.js";
import { registerChartStack } from "./components/chart-stack.js";
import { registerCodeSnippet } from "./components/code-snippet.js";
import { registerConnectionStatus } from "./components/connection-status.js";
import { registerControlOffer } from "./components/control-offer.js";
import { registerDeleteDialog } from "./components/delete-dialog.js";
import { registerDrawingPicker } from "./components/drawing-picker.js";
import { registerEventLane } from "./components/event-lane.js";
import { registerFindingList } from "./components/finding-list.js";
import { registerFindingRow } from "./components/finding-row.js";
import { registerFindingWhy } from "./components/finding-why.js";
import { registerFirstRun } from "./components/first-run.js";
import { registerHelpDialog } from "./components/help-dialog.js";
import { registerLayerPicker } from "./components/layer-picker.js";
import { registerLogDialog } from "./components/log-dialog.js";
import { registerLogDrop } from "./components/log-drop.js";
import { registerLogPart } from "./components/log-part.js";
import { registerMarkLegend } from "./components/mark-legend.js";
import { registerNormHistogram } from "./components/norm-histogram.js";
import { registerRangePicker } from "./components/range-picker.js";
import { registerRunFacts } from "./components/run-facts.js";
import { registerRunFilters } from "./components/run-filters.js";
import { registerRunHead } from "./components/run-head.js";
import { registerRunList } from "./components/run-list.js";
import { registerRunPage } from "./components/run-page.js";
import { registerRunRow } from "./components/run-row.js";
import { registerRunSelection } from "./components/run-selection.js";
import { registerRunSetup } from "./components/run-setup.js";
import { registerRunState } from "./components/run-state.js";
import { registerRunTable } from "./components/run-table.js";
import { registerRunTimeline } from "./components/run-timeline.js";
import { registerRunVerdicts } from "./components/run-verdicts.js";
import { registerSparkLine } from "./components/spark-line.js";
import { registerStepAxis } from "./components/step-axis.js";
import { registerStepPanel } from "./components/step-panel.js";
import { registerTableDialog } from "./components/table-dialog.js";
import { registerTagsDialog } from "./components/tags-dialog.js";
import { registerThresholdLine } from "./components/threshold-line.js";
import { registerTimeAgo } from "./components/time-ago.js";
import { registerToastStack } from "./components/toast-stack.js";
import { registerTopBar } from "./components/top-bar.js";
import { registerVerdictBadge } from "./components/verdict-badge.js";
import { registerVerdictCard } from "./components/verdict-card.js";
import { registerWhatIfPanel } from "./components/what-if-panel.js";
import { h } from "./lib/dom.js";
import { LANGUAGE_TAG } from "./lib/language.js";
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
registerSparkLine();
registerRunRow();
registerRunTable();
registerRunFilters();
registerRunSelection();
registerDeleteDialog();
registerTagsDialog();
registerFirstRun();
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
registerRunList();
registerAlertBell();
registerLogPart();
registerLogDrop();
registerLogDialog();
registerRunPage();
registerConnectionStatus();
registerTopBar();
registerToastStack();
registerHelpDialog();

document.documentElement.lang = LANGUAGE_TAG;
const skip = document.querySelector(".skip-link");
if (skip) skip.textContent = t("nav.skip");
const content = /** @type {HTMLElement} */ (document.getElementById("content"));
const bar = document.querySelector("top-bar");

/** The page that was asked for last: one that comes late is not shown. @type {import("./lib/router.js").Route | null} */
let asked = null;

start(async (route) => {
  asked = route;
  if (bar) bar.page = route.page === "run" ? "runs" : route.page;
  try {
    await fetchParts(route);
    if (route !== asked) return;
    const isFirst = !content.firstChild;
    content.replaceChildren(pageOf(route));
    if (!isFirst) content.focus({ preventScroll: true }); // who does not see the page change hears of it
  } catch (error) {
    if (route === asked) content.replaceChildren(h("div", { class: "notice problem" }, h("h1", {}, t("page.failed")), h("p", {}, String(error)), h("a", { href: location.href, target: "_self" }, t("retry"))));
  }
});

/** The pages that few look at come when somebody does. @param {import("./lib/router.js").Route} route */
async function fetchParts({ page }) {
  if (page !== "compare" && page !== "alerts" && page !== "settings") return;
  const { register } = await import(`./pages/${page}.js`);
  if (!customElements.get(`${page}-page`)) register();
}

/** @param {import("./lib/router.js").Route} route */
function pageOf(route) {
  if (route.page === "runs") return h("run-list");
  if (route.page === "run") {
    const page = h("run-page");
    page.runId = route.runId;
    return page;
  }
  if (route.page === "alerts") return h("alerts-page");
  if (route.page === "settings") return h("settings-page");
  if (route.page === "compare") return h("compare-page");
  document.title = t("app.name");
  return h("div", { class: "notice" }, h("h1", {}, t("nowhere.title")), h("p", {}, t("nowhere.words", { path: location.pathname })), h("a", { href: "/" }, t("nowhere.link")));
}
