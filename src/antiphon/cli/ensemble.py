"""``antiphon ensemble``."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Mean(StrEnum):
    """What is averaged."""

    probabilities = "probabilities"
    logs = "logs"


def command(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN RUN ...", help="Runs to put together.", show_default=False)
    ],
    out: Annotated[Path, typer.Option(help="Folder for the ensemble.", show_default=False)],
    mean: Annotated[
        Mean, typer.Option(help="Average the probabilities of the next token, or their logs.")
    ] = Mean.probabilities,
    force: Annotated[bool, typer.Option("--force", help="Replace a run that is already in the folder.")] = False,
) -> None:
    """Put trained runs together as one.

    It averages their probabilities of the next token. The runs may be of any kinds
    that predict, such as one recipe trained with several seeds. They need one target
    vocabulary. The result is a run like any other, also as --direct of a noisy channel.

    Example: antiphon ensemble runs/seed1 runs/seed2 runs/seed3 --out runs/three
    """
    from antiphon.runs.combination import ensemble_runs
    from antiphon.terminal import printable

    ensemble_runs(runs, out, mean.value, force=force)
    print(printable(f"{out}: an ensemble of {', '.join(map(str, runs))}"))
