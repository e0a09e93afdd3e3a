"""Debian's Chromium, driven by selenium: for the tests of pages, and for the pictures of them in the documentation."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

FLAGS = (
    "--headless=new",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
)


def missing() -> str | None:
    """Return what there is no browser for; None where there is one."""
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "selenium is not installed; pip install selenium"
    for program in ("chromium", "chromedriver"):
        if shutil.which(program) is None:
            return f"there is no {program}; apt-get install chromium chromium-driver"
    return None


@contextmanager
def browser() -> Iterator[Chrome]:
    """Open a browser, with its logs of the console and of the network."""
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    options = ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        # Chromium refuses to run as root inside its sandbox.
        for flag in (*FLAGS, f"--user-data-dir={profile}", *(["--no-sandbox"] if os.geteuid() == 0 else [])):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        driver = Chrome(options=options, service=Service(shutil.which("chromedriver")))
        try:
            yield driver
        finally:
            driver.quit()


def look(driver: Chrome, width: int, height: int = 1000, *, dark: bool = False) -> None:
    """Set how large the window is, and whether its reader prefers dark colours."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
