"""A browser without a window, and what the tests of pages ask it."""

from __future__ import annotations

import shutil

import pytest

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1200,900",
)


def start_browser(profile):
    """Chromium with a profile of its own; the test is skipped where there is none to drive."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium drives the browser")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (chromium and driver):
        pytest.skip("no chromium and chromedriver on this machine")
    options = webdriver.ChromeOptions()
    for flag in (*_FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.binary_location = chromium
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))


def look_at(browser, *, width=1200, scheme="light", media=""):
    """Show the page that is open, and those to come, in a window or on paper of this width."""
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500},
    )
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features, "media": media})


def open_page(browser, address, **how):
    """Open a file or an address; `how` is for `look_at`."""
    look_at(browser, **how)
    browser.get_log("browser")  # what earlier pages left
    browser.get(address if isinstance(address, str) else address.as_uri())


def fetched(browser):
    """What the page that is open has asked for."""
    return browser.execute_script(
        "return performance.getEntriesByType('resource').map((r) => r.name)"
    )


def page_width(browser):
    """How wide the page is, which should not be wider than its window."""
    return browser.execute_script("return document.documentElement.scrollWidth")
