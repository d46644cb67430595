/** The start: registers the elements and shows the page that the address names. */

import { registerAlertBell } from "./components/alert-bell.js";
import { registerConnectionStatus } from "./components/connection-status.js";
import { registerHelpDialog } from "./components/help-dialog.js";
import { registerRunState } from "./components/run-state.js";
import { registerTimeAgo } from "./components/time-ago.js";
import { registerToastStack } from "./components/toast-stack.js";
import { registerTopBar } from "./components/top-bar.js";
import { registerVerdictBadge } from "./components/verdict-badge.js";
import { hasFile } from "./lib/api.js";
import { h } from "./lib/dom.js";
import { LANGUAGE_TAG } from "./lib/language.js";
import { reloadOnce } from "./lib/reloading.js";
import { start } from "./lib/router.js";
import { stream } from "./lib/stream.js";
import { t } from "./lib/texts.js";

// Parts before the pages made of them.
registerTimeAgo();
registerRunState();
registerVerdictBadge();
registerAlertBell();
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
/** For the server, which did not answer. */
let waiting = new AbortController();

const TAGS = /** @type {const} */ ({ runs: "run-list", run: "run-page", compare: "compare-page", alerts: "alerts-page", settings: "settings-page" });
/** Where people go most from the first page: fetched once that has had its time. */
const NEXT = /** @type {const} */ (["runs", "run"]);
const NEXT_MS = 3_000;

start(async (route) => {
  asked = route;
  waiting.abort();
  if (bar) bar.page = route.page === "run" ? "runs" : route.page;
  try {
    await fetchParts(route.page);
    if (route !== asked) return;
    const isFirst = !content.firstChild;
    content.replaceChildren(pageOf(route));
    if (!isFirst) content.focus({ preventScroll: true }); // who does not see the page change hears of it
    else setTimeout(() => stream().connected && Promise.all(NEXT.map(fetchParts)).catch(() => {}), NEXT_MS); // who goes there is told why it failed
  } catch {
    if (route === asked && route.page !== "nowhere") tellFailed(route.page);
  }
});

/** The page whose parts could not be fetched is fetched anew, with all others, once the server answers. @param {Exclude<import("./lib/router.js").Route["page"], "nowhere">} page */
async function tellFailed(page) {
  waiting.abort(); // the try before this one
  waiting = new AbortController();
  const { signal } = waiting;
  document.title = `${t(`${page === "run" ? "runs" : page}.title`)} · ${t("app.name")}`;
  const isThere = await hasFile(import.meta.url);
  if (signal.aborted) return;
  const why = isThere === null ? "page.failed.connection" : !reloadOnce() ? "page.failed.still" : isThere ? "page.failed.again" : "page.failed.version";
  content.replaceChildren(h("div", { class: "notice problem", role: "status" }, h("h1", {}, t("page.failed")), h("p", {}, t(why)), h("a", { href: location.href, target: "_self" }, t("retry"))));
  if (isThere === null) stream().addEventListener("state", () => stream().connected && tellFailed(page), { signal });
}

/** Each page's parts come when it is first asked for: the server names those of the first in the HTML. @param {import("./lib/router.js").Route["page"]} page */
async function fetchParts(page) {
  if (page === "nowhere") return;
  const { register } = await import(`./pages/${page}.js`);
  if (!customElements.get(TAGS[page])) register();
}

/** @param {import("./lib/router.js").Route} route */
function pageOf(route) {
  if (route.page === "run") {
    const page = h("run-page");
    page.runId = route.runId;
    return page;
  }
  if (route.page !== "nowhere") return h(TAGS[route.page]);
  document.title = t("app.name");
  return h("div", { class: "notice" }, h("h1", {}, t("nowhere.title")), h("p", {}, t("nowhere.words", { path: location.pathname })), h("a", { href: "/" }, t("nowhere.link")));
}
