"""What the documents say is so."""

import re
from pathlib import Path

import pytest

from antiphon.recipe.recipe_file import load_recipe
from antiphon.recipe.settings_list import all_settings

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("setting", list(all_settings()), ids=lambda setting: setting.key)
def test_every_setting_is_described(setting):
    row = f"| `{setting.key}` | {setting.default} | {setting.meaning} | {', '.join(setting.kinds)} |"
    assert row in (ROOT / "docs/recipes.md").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize(
    "recipe", sorted((ROOT / "src/antiphon/recipe/shipped").glob("*.toml")), ids=lambda path: path.name
)
def test_every_recipe_is_valid(recipe):
    load_recipe(recipe)


@pytest.mark.parametrize(
    "document", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda path: path.name
)
def test_links_lead_somewhere(document):
    for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text(encoding="utf-8")):
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


def test_every_verb_is_in_the_readme():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for path in (ROOT / "src/antiphon/cli").glob("[!_]*.py"):
        if "def command(" in path.read_text(encoding="utf-8"):
            assert f"| `{path.stem}" in text
