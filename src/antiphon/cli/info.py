"""``antiphon info``."""

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from antiphon.cli.options import Run

_SEARCHES = ("transducer", "attention", "encoder_decoder", "noisy_channel", "ensemble")
_ONLY_FOR = {
    "train": ("transducer", "attention", "encoder_decoder", "language_model", "matcher"),
    "search": _SEARCHES,
    "search.proposals": ("noisy_channel",),
    "search.weights": ("noisy_channel",),
    "search.channel_prefix": ("noisy_channel",),
    "search.commit_margin": ("transducer", "noisy_channel"),
    "search.over": ("transducer",),
    "search.ensemble": ("ensemble",),
}
"""Sections and settings that say nothing of other kinds; what is not here says something of every kind."""


def command(
    run: Run,
    show_all: Annotated[bool, typer.Option("--all", help="Show settings that have their default, too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, with every setting.")] = False,
) -> None:
    """Say what is in a run folder.

    Its kind, vocabulary, metrics and settings. Of the settings, those are shown that apply to the kind of model and
    differ from their default.

    Example: antiphon info runs/mine
    """
    from antiphon.recipe.kind_settings import changed_settings
    from antiphon.recipe.recipe_file import as_table
    from antiphon.recipe.schema import Recipe
    from antiphon.report.tables import info_table
    from antiphon.runs.run_folder import RunFolder
    from antiphon.terminal import PlainConsole

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
        settings = applying(recipe.model.kind, as_table(recipe))
        settings = settings if show_all else changed_settings(settings, recipe, Recipe())
        PlainConsole().print(info_table(str(run), facts | {"recipe": settings}))


def applying(kind: str, recipe: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The settings that say something of a kind of model, which is said elsewhere itself."""

    def applies(key: str) -> bool:
        return kind in _ONLY_FOR.get(key, (kind,))

    return {
        section: {
            name: value
            for name, value in values.items()
            if applies(f"{section}.{name}") and (section, name) != ("model", "kind")
        }
        for section, values in recipe.items()
        if applies(section)
    }
