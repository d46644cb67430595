"""A page in headless Chromium for the benchmarks, that notes what it draws and when."""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

DEADLINE_S = 60.0
# Whoever steers the browser asks V8 for stack traces, for which it would read much of plotly a second time, half a
# second long, to find the lines: here it notes them as it compiles.
JS_FLAGS = "--expose-gc --no-enable-lazy-source-positions"
FLAGS = ["--no-sandbox", "--disable-gpu", "--enable-precise-memory-info", f"--js-flags={JS_FLAGS}"]

WATCH = """
window.noted = { draws: [], seen: [], frames: [] };
let plotly;
Object.defineProperty(window, "Plotly", {
  configurable: true,
  get: () => plotly,
  set: (made) => {
    const react = made.react;
    made.react = (element, ...rest) => {
      const start = performance.now();
      const done = react(element, ...rest);
      const name = element.closest("chart-row")?.dataset.figure ?? "histogram";
      noted.draws.push([name, performance.now() - start]);
      if (name === "norm") {
        const line = element._fullData?.find((trace) => trace.mode?.startsWith("lines") && trace.fill !== "toself");
        const step = line?.x.at(-1);
        // On screen once the frame after this one has begun.
        requestAnimationFrame(() => requestAnimationFrame(() => noted.seen.push([step, Date.now()])));
      }
      return done;
    };
    plotly = made;
  },
});
let before = 0;
const frame = (now) => {
  if (before) noted.frames.push(now - before);
  before = now;
  requestAnimationFrame(frame);
};
requestAnimationFrame(frame);
new MutationObserver(() => {
  const word = document.querySelector("verdict-card .verdict-word")?.textContent ?? "";
  const sentence = document.querySelector("verdict-card .verdict-lead")?.textContent ?? "";
  if (word && /\\d/.test(sentence)) noted.verdict ??= performance.now();
  if (document.querySelector("chart-row[data-figure=norm] .main-svg .js-line")) noted.chart ??= performance.now();
  if (document.querySelector("run-row")) noted.list ??= performance.now();
}).observe(document, { childList: true, subtree: true, characterData: true });
"""


@contextmanager
def chromium() -> Iterator[Browser]:
    """Playwright's own, or the machine's."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        yield browser
        browser.close()


def new_context(browser: Browser) -> BrowserContext:
    """With an empty cache."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.add_init_script(WATCH)
    return context


def noted(page: Page, what: str) -> Any:
    """What the page has noted so far."""
    return page.evaluate(f"window.noted?.{what} ?? null")


def wait_for(page: Page, is_true: Callable[[Page], Any], what: str) -> Any:
    """What it gives, once that is true.

    Raises:
        TimeoutError
    """
    deadline_s = time.monotonic() + DEADLINE_S
    while not (found := is_true(page)):
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{what} did not come within {DEADLINE_S:.0f} s")
        time.sleep(0.02)
    return found


def heap_mb(page: Page) -> float:
    """What the page's JavaScript holds, once it has been swept."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    used: float = session.send("Runtime.getHeapUsage")["usedSize"]
    session.detach()
    return used / 2**20


def main_thread(page: Page) -> Callable[[], float]:
    """Gives a function that says how long the page's main thread has worked since, in ms of its own processor time:
    unlike the clock it stays true on a machine that does other things too."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def busy_ms() -> float:
        found = {metric["name"]: metric["value"] for metric in session.send("Performance.getMetrics")["metrics"]}
        return 1e3 * float(found["TaskDuration"])

    return busy_ms
