"""A server of small runs in a process of its own, and a browser that looks at its page."""

from contextlib import contextmanager

import pytest
from playwright.sync_api import sync_playwright

from tests.page.chromium import find_chromium
from tests.page.runs import NAMES, train_runs
from tests.page.screen import Screen
from tests.serve.processes import start
from tests.shared_folders import filled_once


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """The folders of all runs."""
    folder = filled_once(tmp_path_factory, "page", train_runs)
    return [folder / name for name in NAMES]


@contextmanager
def serving(*arguments):
    """The address of `antiphon serve` with these arguments."""
    server = start(["-m", "antiphon", "serve", *arguments, "--port", 0, "--device", "cpu"])
    try:
        yield f"http://{server.address}"
    finally:
        assert server.stop() == 0


@pytest.fixture(scope="package")
def address(runs):
    """The address of a server of all runs."""
    with serving(*runs) as found:
        yield found


@pytest.fixture(scope="package")
def browser():
    """Chromium without a window."""
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def screen(browser, address):
    """A fresh page; after the test nothing may have gone wrong in it, and no request may have left the machine."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    shown = Screen(context, address)
    yield shown
    context.close()
    assert shown.problems == []
    assert [url for url in shown.requested if not url.startswith((address, address.replace("http", "ws")))] == []
