"""The system's Chromium as a browser, and the server of the example project."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .site import PASSWORD, Site, running_site

CHROMIUM = os.environ.get("MQLITE_TEST_CHROMIUM") or shutil.which("chromium") or ""
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SCREENSHOTS = os.environ.get("MQLITE_SCREENSHOTS")
"""Where the screenshots of the documentation are written, if anywhere: `docs/screenshots`."""


@pytest.fixture(scope="package")
def browser() -> Iterator:
    """Start Chromium without a window; skip the test if there is none."""
    if not CHROMIUM:
        pytest.skip("NOT TESTED: the browser tests need Chromium (apt-get install chromium)")
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - may not be installed

    # Playwright runs an event loop in this thread, in which Django refuses to work.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
            yield browser
            browser.close()
    finally:
        del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture(scope="package")
def running(browser, tmp_path_factory, django_db_blocker) -> Iterator[Site]:
    with django_db_blocker.unblock(), running_site(tmp_path_factory.mktemp("site")) as site:
        yield site


@pytest.fixture
def site(running) -> Site:
    """Return the site without the messages of earlier tests."""
    running.clear()
    return running


@pytest.fixture
def page(browser) -> Iterator:
    """Open a page without cookies; fail the test if a script raises an error."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(15_000)
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    context.close()
    assert errors == []


@pytest.fixture
def log_in(page, site) -> Callable[[str], None]:
    """Log in through the form, and the second time with the same session."""

    def log_in(user: str) -> None:
        if user in site.sessions:
            page.context.add_cookies(site.sessions[user])
            return
        page.goto(f"{site.url}/admin/")
        page.get_by_label("Username").fill(user)
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url(f"{site.url}/admin/")
        site.sessions[user] = page.context.cookies()

    return log_in


@pytest.fixture
def shoot(page) -> Callable[[str], None]:
    """Write a screenshot for the documentation if MQLITE_SCREENSHOTS is set."""

    def shoot(name: str) -> None:
        if SCREENSHOTS:
            page.evaluate("window.scrollTo(0, 0)")
            page.screenshot(path=Path(SCREENSHOTS) / f"{name}.png", full_page=True)

    return shoot
