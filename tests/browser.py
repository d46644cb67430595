"""Find a browser for the tests; run as a script, install one where there is none: a browser test is never skipped."""

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# No sandbox, because tests in a container run as root; nothing in the background, so that every request a test sees
# was made by the page.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


class NoBrowserError(Exception):
    """There is no browser to test with; the message says what to do."""


@functools.cache
def find_browser() -> str:
    """The browser that GRADSIGHT_TEST_BROWSER names, else a Chromium on PATH, else the one Playwright has installed."""
    if named := os.environ.get("GRADSIGHT_TEST_BROWSER"):
        if (found := shutil.which(named)) is None:
            raise NoBrowserError(f"GRADSIGHT_TEST_BROWSER must name a Chromium or Chrome to run, got {named!r}.")
        return found
    for name in NAMES:
        if found := shutil.which(name):
            return found
    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    if not Path(path).exists():
        raise NoBrowserError("no browser for the tests: install Chromium, or name one in GRADSIGHT_TEST_BROWSER.")
    return path


def install_browser() -> None:
    """Ask the system for Chromium where we may, else Playwright; `find_browser` then tells whether that went well."""
    if sys.platform == "linux" and os.geteuid() == 0 and shutil.which("apt-get"):
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["apt-get", "update", "-q"], env=quiet)
        subprocess.run(["apt-get", "install", "-q", "-y", "--no-install-recommends", "chromium"], env=quiet)
        if shutil.which("chromium"):
            return
    subprocess.run([sys.executable, "-m", "playwright", "install", "chromium"])


def main() -> None:
    """Say which browser the tests will use, once it has answered."""
    try:
        browser = find_browser()
    except NoBrowserError:
        if not os.environ.get("GRADSIGHT_TEST_BROWSER"):
            install_browser()
        browser = find_browser()
    try:
        version = subprocess.run([browser, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        raise NoBrowserError(f"the browser {browser!r} does not start: {error}") from error
    print(f"browser for the tests: {browser} ({version})")


if __name__ == "__main__":
    try:
        main()
    except NoBrowserError as error:
        sys.exit(str(error))
