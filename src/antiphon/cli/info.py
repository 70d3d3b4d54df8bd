"""Show what is in a run folder.

That is its kind, vocabulary, metrics and settings. Only settings that apply to
the kind of model and differ from their default are shown.

Examples:
  antiphon info runs/mine
  antiphon info runs/mine --all
"""

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
"""Kinds that a section or setting applies to; those not listed apply to all kinds."""


def command(
    run: Run,
    show_all: Annotated[bool, typer.Option("--all", help="Also show settings that have their default.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, with every setting.")] = False,
) -> None:
    """Prints what is in a run folder."""
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
    """The settings that apply to a kind of model; the kind itself is left out."""

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
