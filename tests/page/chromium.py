"""The browser that the tests of the page drive."""

import os
import shutil

REQUIRED = "ANTIPHON_TESTS_NEED_CHROMIUM"
"""Environment variable: with it, a missing browser is an error; without, the tests of the page are not selected."""
HOW = "the tests of the page need Chromium; on Debian: apt-get install chromium"


def find_chromium():
    """The path of Chromium, or None."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def is_required():
    """Whether the tests must not go without it."""
    return bool(os.environ.get(REQUIRED))
