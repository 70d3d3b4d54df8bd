"""Combine trained runs into an ensemble.

An ensemble averages the probabilities of the next token. Its members can be of
any kinds that predict, such as one recipe trained with several seeds; they must
share a target vocabulary. The result is a run like any other, and can be the
--direct of a noisy channel.

Examples:
  antiphon ensemble runs/seed1 runs/seed2 runs/seed3 --out runs/three
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from antiphon.cli.options import Force


class Mean(StrEnum):
    """What is averaged."""

    probabilities = "probabilities"
    logs = "logs"


def command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN RUN ...", help="Runs to combine.", show_default=False)],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for the ensemble.", show_default=False)],
    mean: Annotated[
        Mean, typer.Option(help="Average probabilities of the next token, or their logarithms.")
    ] = Mean.probabilities,
    force: Force = False,
) -> None:
    """Combines runs into one that averages their probabilities."""
    from antiphon.runs.combination import ensemble_runs
    from antiphon.terminal import printable

    ensemble_runs(runs, out, mean.value, force=force)
    print(printable(f"{out}: an ensemble of {', '.join(map(str, runs))}"))
