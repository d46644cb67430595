/** Which page the address names, and moving between pages without a reload. */

/** @typedef {{page: "runs" | "compare" | "alerts" | "settings"} | {page: "run", runId: string} | {page: "nowhere"}} Route */

const PAGES = /** @type {const} */ (["compare", "alerts", "settings"]);

/** @param {string} path @returns {Route} */
export function routeOf(path) {
  if (path === "/") return { page: "runs" };
  const page = PAGES.find((name) => path.replace(/\/$/, "") === `/${name}`);
  if (page) return { page };
  const match = /^\/runs\/([^/]+)\/?$/.exec(path);
  const runId = match && decoded(match[1]);
  return runId && !/[/\ufffd]/.test(runId) ? { page: "run", runId } : { page: "nowhere" };
}

/** @param {string} part of an address @returns {string | null} null where it says nothing: `%E0%A4%A` is cut off */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return null;
  }
}

/** @param {string} runId */
export function runPath(runId) {
  return `/runs/${encodeURIComponent(runId)}`;
}

/** @param {string[]} runIds */
export function comparePath(runIds) {
  return `/compare?runs=${runIds.join(",")}`;
}

/** Leads to another page of ours without a reload. @param {string} path */
export function goTo(path) {
  history.pushState(null, "", path);
  scrollTo(0, 0);
  dispatchEvent(new PopStateEvent("popstate"));
}

/**
 * Calls back with each new route: now, on links within the page, on back and forward.
 * @param {(route: Route) => void} show
 */
export function start(show) {
  let shown = location.pathname;
  addEventListener("popstate", () => {
    if (location.pathname === shown && location.hash) return; // a jump within the page, to the content say
    shown = location.pathname;
    show(routeOf(location.pathname));
  });
  document.addEventListener("click", (event) => {
    const link = event.target instanceof Element ? event.target.closest("a") : null;
    if (!link || !isPlainClick(event) || !staysHere(link)) return;
    event.preventDefault();
    goTo(link.href);
  });
  show(routeOf(location.pathname));
}

/** @param {MouseEvent} event */
function isPlainClick(event) {
  return !event.defaultPrevented && event.button === 0 && !(event.metaKey || event.ctrlKey || event.shiftKey || event.altKey);
}

/** @param {HTMLAnchorElement} link */
function staysHere(link) {
  if (link.origin !== location.origin || link.target || link.hasAttribute("download")) return false;
  if (link.hash && link.pathname === location.pathname) return false;
  return routeOf(link.pathname).page !== "nowhere";
}

/**
 * Writes what is shown into the address, so that it can be sent to someone. Null removes; of a list each gets its own.
 * @param {Record<string, string | number | string[] | null>} values
 */
export function rememberInAddress(values) {
  const url = new URL(location.href);
  for (const [name, value] of Object.entries(values)) {
    url.searchParams.delete(name);
    if (Array.isArray(value)) for (const one of value) url.searchParams.append(name, one);
    else if (value !== null) url.searchParams.set(name, String(value));
  }
  history.replaceState(history.state, "", url);
}

/** @returns {URLSearchParams} */
export function addressValues() {
  return new URLSearchParams(location.search);
}
