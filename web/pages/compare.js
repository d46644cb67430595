/** Everything of the comparison; fetched once somebody goes there. */

import { registerCompareChart } from "../components/compare-chart.js";
import { registerComparePage } from "../components/compare-page.js";
import { registerCompareRuns } from "../components/compare-runs.js";
import { registerCompareSettings } from "../components/compare-settings.js";

export function register() {
  registerCompareChart();
  registerCompareRuns();
  registerCompareSettings();
  registerComparePage();
}
