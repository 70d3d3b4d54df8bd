"""What the documents say is so."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

import antiphon
from antiphon.recipe.recipe_file import load_recipe
from antiphon.recipe.schema import all_settings
from tests.page.chromium import find_chromium

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src/antiphon"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built as `make docs` builds it; a broken link or a page that the navigation lacks is an error."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=quiet)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def test_the_site_lists_every_setting_every_command_and_every_public_name(site):
    pages = {name: (site / f"reference/{name}.html").read_text() for name in ("settings", "commands", "python")}
    for setting in all_settings():
        assert f"<code>{setting.key}</code>" in pages["settings"], setting.key
    for path in (ROOT / "src/antiphon/cli").glob("[!_]*.py"):
        if "def command(" in path.read_text(encoding="utf-8"):
            assert f"Usage: antiphon {path.stem}" in pages["commands"], path.stem
    for name in set(antiphon.__all__) - {"__version__"}:
        assert f"{name}</span>" in pages["python"], name


def test_the_site_loads_nothing_from_elsewhere(site):
    for page in site.rglob("*.html"):
        for tag in re.findall(r"<(?:script|link|img|iframe)[^>]*>", page.read_text(encoding="utf-8")):
            assert not re.search(r"(?:src|href)=[\"']?(?:https?:)?//", tag), (page, tag)


@pytest.mark.browser
def test_the_site_is_searched_from_the_disk(site):
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        page = browser.new_page()
        page.goto((site / "tutorials/inflection.html").as_uri())
        page.get_by_placeholder("Search").press_sequentially("alignment")
        page.locator(".md-search-result__link").first.wait_for()
        assert page.locator(".md-search-result__link").first.get_attribute("href").startswith("file://")
        browser.close()


def test_the_files_of_the_tutorials_are_what_their_script_writes():
    script = runpy.run_path(str(ROOT / "docs/data/make_data.py"))
    for name, lines in script["files"]():
        assert (ROOT / "docs/data" / name).read_text(encoding="utf-8").splitlines() == lines, name


@pytest.mark.parametrize(
    "recipe", sorted((ROOT / "src/antiphon/recipe/shipped").glob("*.toml")), ids=lambda path: path.name
)
def test_every_recipe_is_valid(recipe):
    load_recipe(recipe)


@pytest.mark.parametrize(
    "document", [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))], ids=lambda path: path.name
)
def test_links_lead_somewhere(document):
    text = re.sub(r"(`+).*?\1", "", document.read_text(encoding="utf-8"), flags=re.DOTALL)  # code has no links
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (document.parent / target).exists(), target


def test_every_test_that_equations_names_exists():
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs/equations.md").read_text(encoding="utf-8")))
    written = {
        name for path in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text())
    }
    assert named <= written


def test_the_map_names_every_folder_and_file_of_the_package():
    text = (ROOT / "docs/map.md").read_text(encoding="utf-8")
    for path in (ROOT / "src/antiphon").iterdir():
        if not path.name.startswith("_"):
            assert f"`{path.name}{'/' if path.is_dir() else ''}`" in text, path.name


def test_every_path_in_the_map_exists():
    text = (ROOT / "docs/map.md").read_text(encoding="utf-8")
    paths = set(re.findall(r"`([\w.]+/[\w./]*|\w+\.(?:py|typed))`", text))
    missing = [path for path in sorted(paths) if not (SOURCE / path).exists() and not (ROOT / path).exists()]
    assert len(paths) > 80
    assert not missing


def test_every_verb_is_in_the_readme():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for path in (ROOT / "src/antiphon/cli").glob("[!_]*.py"):
        if "def command(" in path.read_text(encoding="utf-8"):
            assert f"| `{path.stem}" in text
