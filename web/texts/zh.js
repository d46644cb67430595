/** 简体中文：页面的全部文字，按键排列。 */

import alerts from "./zh/alerts.js";
import charts from "./zh/charts.js";
import compare from "./zh/compare.js";
import evidence from "./zh/evidence.js";
import imports from "./zh/imports.js";
import page from "./zh/page.js";
import run from "./zh/run.js";
import runs from "./zh/runs.js";
import settings from "./zh/settings.js";
import verdicts from "./zh/verdicts.js";
import whatIf from "./zh/what-if.js";

export default { ...page, ...runs, ...imports, ...compare, ...alerts, ...settings, ...run, ...charts, ...verdicts, ...whatIf, ...evidence };
