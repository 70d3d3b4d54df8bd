"""MkDocs hook: fills the pages that are generated from the code, and adds files that live outside ``docs/``."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from antiphon.cli import app
from antiphon.recipe.kinds import KINDS
from antiphon.recipe.schema import Setting, all_settings

ROOT = Path(__file__).parent.parent
PICTURES = "benchmarks/results"
_HEAD = "| key | type | default | meaning | kinds |\n|---|---|---|---|---|\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The files of the site, with the pictures that the benchmarks draw."""
    for picture in sorted((ROOT / PICTURES).glob("*.png")):
        files.append(File.generated(config, f"{PICTURES}/{picture.name}", abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The text of a page, with what is generated in the place of its mark ``<!-- generated -->``."""
    make = _GENERATED.get(page.file.src_uri)
    if make:
        markdown = markdown.replace("<!-- generated -->", make())
    return markdown.replace(f"](../{PICTURES}/", f"]({PICTURES}/")


def settings_tables() -> str:
    """A table of settings for each section of a recipe."""
    sections: dict[str, list[str]] = {}
    for setting in all_settings():
        sections.setdefault(setting.key.partition(".")[0], []).append(_row(setting))
    return "\n\n".join(f"## {name}\n\n{_HEAD}" + "\n".join(rows) for name, rows in sections.items())


def _row(setting: Setting) -> str:
    meaning = setting.meaning.replace("``", "`")
    cells = (f"`{setting.key}`", setting.type, f"`{setting.default}`", meaning, _kinds(setting.kinds))
    return f"| {' | '.join(cell.replace(' | ', ', ') for cell in cells)} |"


def _kinds(kinds: tuple[str, ...]) -> str:
    """The kinds that have a setting, or those that do not if they are fewer."""
    others = [kind for kind in KINDS if kind not in kinds] if kinds else []
    if len(others) < len(kinds) or not kinds:
        return "all but " + ", ".join(others) if others else "all"
    return ", ".join(kinds)


def command_help() -> str:
    """The help text of every command."""
    command: Any = typer.main.get_command(app)
    context = command.make_context("antiphon", [], resilient_parsing=True)
    return "\n\n".join(_help_of(name, verb, context) for name, verb in command.commands.items())


def _help_of(name: str, verb: Any, parent: Any) -> str:
    context = verb.make_context(name, [], parent=parent, resilient_parsing=True)
    return f"## {name}\n\n```text\n{verb.get_help(context)}\n```"


def _root_page(name: str) -> Callable[[], str]:
    """What gives the text of a file of the root, with its links as seen from ``docs/`` and without its title."""
    return lambda: (ROOT / name).read_text(encoding="utf-8").partition("\n")[2].replace("](docs/", "](")


_GENERATED: dict[str, Callable[[], str]] = {
    "reference/settings.md": settings_tables,
    "reference/commands.md": command_help,
    "changelog.md": _root_page("CHANGELOG.md"),
    "contributing.md": _root_page("CONTRIBUTING.md"),
}
