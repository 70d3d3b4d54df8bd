"""Combine trained runs into an ensemble.

An ensemble averages the probabilities of the next token. Its members can be of
any kinds that predict, such as one recipe trained with several seeds; they must
share a target vocabulary. The result is a run like any other, and can be the
--direct of a noisy channel.

Matchers make an ensemble that ranks answers, whatever their sentence models: it
averages the probabilities that a candidate is right.

Examples:
  antiphon ensemble runs/seed1 runs/seed2 runs/seed3 --out runs/three
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from antiphon.cli.loading import note_unfinished
from antiphon.cli.options import Force


class Mean(StrEnum):
    """What is averaged."""

    probabilities = "probabilities"
    logs = "logs"


def command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN RUN ...", help="Runs to combine.")],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for the ensemble.")],
    mean: Annotated[
        Mean, typer.Option(help="Average probabilities, or their logarithms (of answers: log odds).")
    ] = Mean.probabilities,
    force: Force = False,
) -> None:
    """Combines runs into one that averages their probabilities."""
    from antiphon.ranking.saved_rankers import ensemble_rankers
    from antiphon.recipe.kinds import KINDS
    from antiphon.runs.combined_runs import ensemble_runs
    from antiphon.runs.run_folder import RunFolder
    from antiphon.terminal import printable

    ranks = KINDS[RunFolder.open(runs[0]).recipe().model.kind].ranks
    (ensemble_rankers if ranks else ensemble_runs)(runs, out, mean.value, force=force)
    for run in runs:
        note_unfinished(RunFolder.open(run), run)
    print(printable(f"{out}: an ensemble of {', '.join(map(str, runs))}"))
