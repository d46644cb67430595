/** English: every text of the page, by key. It is the catalogue that others are held to. */

import alerts from "./en/alerts.js";
import charts from "./en/charts.js";
import compare from "./en/compare.js";
import evidence from "./en/evidence.js";
import imports from "./en/imports.js";
import page from "./en/page.js";
import run from "./en/run.js";
import runs from "./en/runs.js";
import settings from "./en/settings.js";
import verdicts from "./en/verdicts.js";
import whatIf from "./en/what-if.js";

export default { ...page, ...runs, ...imports, ...compare, ...alerts, ...settings, ...run, ...charts, ...verdicts, ...whatIf, ...evidence };
