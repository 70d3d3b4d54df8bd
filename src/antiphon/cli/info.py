"""``antiphon info``."""

import json
from typing import Annotated

import typer

from antiphon.cli.options import Run


def command(
    run: Run,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say what is in a run folder: kind, sizes, data, metrics, how it was made."""
    from antiphon.config import as_table
    from antiphon.report.tables import info_table
    from antiphon.run import RunFolder
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
        PlainConsole().print(info_table(str(run), facts))
