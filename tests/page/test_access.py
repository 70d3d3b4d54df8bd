"""The page for everyone: keyboard, screen reader, small screens, both themes."""

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.toy import inflect

pytestmark = pytest.mark.browser

VIEWS = {
    "transduction": {"run": "online", "text": "dagibu", "ended": "true", "policy": "beam", "prefix": ["d"]},
    "features": {"run": "genders", "text": "tomi", "ended": "true", "features": "N;FEM"},
    "noisy channel": {"run": "noisy", "text": "dagibu", "ended": "true"},
    "comparison": {"run": "online", "compare": "waiting", "text": "dagibu", "ended": "true"},
    "attention": {"run": "attention", "text": "dagibu", "ended": "true"},
    "answers": {"run": "answers"},
    "language model": {"run": "lm", "text": "daagiib"},
}
SHOWN = "() => document.querySelector('.output button, .ranking li, .scored li')"


@pytest.mark.parametrize("view", VIEWS)
def test_no_view_violates_a_rule_of_accessibility(screen, view):
    page = screen.open(**VIEWS[view])
    screen.wait(SHOWN)
    if page.locator("#explain").is_visible():
        page.locator("#explain").click()
    light = Axe().run(page)
    assert light.violations_count == 0, light.generate_report()
    page.emulate_media(color_scheme="dark", reduced_motion="reduce")
    screen.wait("() => document.documentElement.dataset.theme === 'dark'")
    dark = Axe().run(page, options={"runOnly": ["color-contrast"]})
    assert dark.violations_count == 0, dark.generate_report()


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_fits_a_laptop_and_scrolls_only_downwards_on_a_phone(screen, view):
    screen.page.set_viewport_size({"width": 1280, "height": 720})
    page = screen.open(**VIEWS[view])
    screen.wait(SHOWN)
    assert page.evaluate("() => document.documentElement.scrollHeight") <= 720
    page.set_viewport_size({"width": 360, "height": 740})
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 360


def test_everything_can_be_done_from_the_keyboard(screen):
    page = screen.open(run="online", text="d")
    tab_to(page, "text")
    page.keyboard.press("End")
    page.keyboard.type("agibu")
    page.keyboard.press("Enter")
    screen.wait_for_output(inflect("dagibu"))
    screen.wait_for_lattice("dagibu", inflect("dagibu"))
    tab_to(page, "lattice")
    for _ in inflect("dagibu"):
        page.keyboard.press("ArrowUp")
        page.keyboard.press("ArrowLeft")
    walk = {"ArrowRight": "Row d, token a", "ArrowDown": "Row a, token a", "ArrowLeft": "Row a, token d"}
    for key, place in walk.items():
        page.keyboard.press(key)
        screen.wait(
            "start => document.querySelector('#announcements').innerText.startsWith(start)", f"{place}, posterior "
        )
        assert "read on" in page.locator("#announcements").inner_text()
    tab_to(page, "next-token")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    screen.wait("() => !document.querySelector('#forced').hidden")
    tab_to(page, "unforce")
    page.keyboard.press("Enter")
    screen.wait_for_output(inflect("dagibu"))


def tab_to(page, name):
    """Presses Tab until the element with this id or class has the focus."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("name => document.activeElement.matches(`#${name}, .${name}`)", name):
            return
    raise AssertionError(f"{name} is not reached")


def test_written_tokens_are_announced(screen):
    page = screen.open(run="online", text="d")
    screen.type("da", end=True)
    screen.wait("() => document.querySelector('#announcements').innerText.startsWith('wrote')")
    assert page.locator("#announcements").get_attribute("aria-live") == "polite"


def test_the_numbers_of_the_lattice_are_a_table(screen):
    page = screen.open(run="online", text="dag", ended="true")
    screen.wait_for_lattice("dag", inflect("dag"))
    assert page.locator(".lattice-table thead th").all_inner_texts() == [*inflect("dag"), "</s>"]
    rows = [row.locator("td").all_inner_texts() for row in page.locator(".lattice-table tbody tr").all()]
    for column in zip(*rows, strict=True):
        assert sum(float(number.strip("<>")) for number in column) == pytest.approx(1, abs=0.05)
    page.get_by_role("button", name="Table").click()
    assert page.locator(".lattice").is_hidden()
    assert page.locator(".lattice-table").is_visible()


def test_the_theme_is_chosen_and_kept(screen):
    page = screen.open(run="online", text="da")
    assert page.locator("html").get_attribute("data-theme") == "light"
    page.locator("#theme").click()
    assert page.locator("html").get_attribute("data-theme") == "dark"
    page.reload()
    assert page.locator("html").get_attribute("data-theme") == "dark"
    screen.wait("() => document.querySelectorAll('.token').length > 0")
