"""``antiphon info``: prints what is in a run folder."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from antiphon.cli.options import Run

if TYPE_CHECKING:
    from antiphon.recipe.schema import Recipe


def info(
    run: Run,
    show_all: Annotated[bool, typer.Option("--all", help="Also show settings that have their default.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, with every setting.")] = False,
) -> None:
    """Show what is in a run folder.

    That is its kind, vocabulary, metrics and settings. Only settings that apply to
    the kind of model and differ from their default are shown.

    Examples:
      antiphon info runs/mine
      antiphon info runs/mine --all
    """
    from antiphon.console import PlainConsole
    from antiphon.recipe.recipe_file import as_table
    from antiphon.recipe.schema import changed_settings
    from antiphon.report.tables import info_table
    from antiphon.runs.run_folder import RunFolder

    folder = RunFolder.open(run)
    recipe = folder.recipe()
    facts = {
        "kind": recipe.model.kind,
        "state": folder.state(),
        "vocabulary": folder.vocabulary_sizes(),
        "metrics": folder.metrics(),
        "recipe": as_table(recipe),
    }
    if as_json:
        print(json.dumps(facts, ensure_ascii=False))
    else:
        settings = applicable_settings(recipe)
        if not show_all:
            settings = changed_settings(settings, recipe)
        PlainConsole().print(info_table(str(run), facts | {"recipe": settings}))


def applicable_settings(recipe: "Recipe") -> dict[str, dict[str, Any]]:
    """The settings that apply to the kind of model; the kind itself is left out."""
    from antiphon.recipe.kinds import KINDS
    from antiphon.recipe.recipe_file import as_table
    from antiphon.recipe.schema import settings_of

    used = {key for key, _ in settings_of(KINDS[recipe.model.kind])} - {("model", "kind")}
    return {
        section: {name: value for name, value in values.items() if (section, name) in used}
        for section, values in as_table(recipe).items()
    }
