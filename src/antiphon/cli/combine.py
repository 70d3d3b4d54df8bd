"""``antiphon combine``."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from antiphon.cli.options import MOST_HYPOTHESES, parse_numbers
from antiphon.exceptions import RecipeError
from antiphon.terminal import one_line


class Reading(StrEnum):
    """Readings of the channel's score of an unfinished output."""

    last = "last"
    anywhere = "anywhere"


def command(
    direct: Annotated[Path, typer.Option(help="Run of a transducer from inputs to outputs.", show_default=False)],
    out: Annotated[Path, typer.Option(help="Folder for the combined run.", show_default=False)],
    channel: Annotated[
        Path | None, typer.Option(help="Run of a unidirectional transducer trained with data.swap=true.")
    ] = None,
    lm: Annotated[Path | None, typer.Option(help="Run of a language model over outputs.")] = None,
    weights: Annotated[
        str | None, typer.Option(metavar="L1,L2,L3,L4", help="Of direct, channel, language model and length.")
    ] = None,
    proposals: Annotated[
        int | None, typer.Option(min=1, max=MOST_HYPOTHESES, help="Candidates of the direct model per cell.")
    ] = None,
    beam: Annotated[int | None, typer.Option(min=1, max=MOST_HYPOTHESES, help="Hypotheses kept per cell.")] = None,
    channel_prefix: Annotated[
        Reading,
        typer.Option(help="Where the channel writes the last input token: at the last output token or anywhere."),
    ] = Reading.last,
    force: Annotated[bool, typer.Option("--force", help="Replace a run that is already in the folder.")] = False,
) -> None:
    """Combine trained runs into a noisy channel.

    The result is a run like any other. The direct model always proposes. With a weight of 0 it only proposes;
    without --channel or --lm those weigh nothing. Weights are found on held-out pairs by `antiphon tune`.

    Example: antiphon combine --direct runs/a --lm runs/b --out runs/noisy
    """
    from antiphon.runs.combination import combine_runs
    from antiphon.terminal import printable

    search: dict[str, object] = {
        "weights": parse_weights(weights),
        "proposals": proposals,
        "beam": beam,
        "channel_prefix": channel_prefix.value,
    }
    combine_runs(direct, channel, lm, out, search, force=force)
    parts = ", ".join(str(part) for part in (direct, channel, lm) if part is not None)
    print(printable(f"{out}: a noisy channel of {parts}"))


def parse_weights(text: str | None) -> tuple[float, ...] | None:
    """Four numbers between commas."""
    if text is None:
        return None
    weights = tuple(parse_numbers(text, 1e6))
    if len(weights) != 4:
        raise RecipeError(f"--weights {one_line(text)}: expected four finite numbers L1,L2,L3,L4")
    return weights
