"""``antiphon combine`` and ``antiphon ensemble``: runs that are made of trained runs."""

from pathlib import Path
from typing import Annotated

import typer

from antiphon.cli.options import Beam, Force, SearchSettings, note_unfinished, parse_numbers
from antiphon.exceptions import RecipeError
from antiphon.terminal import one_line, printable

Direct = Annotated[Path, typer.Option(metavar="RUN", help="Run that maps inputs to outputs.")]
Channel = Annotated[
    Path | None, typer.Option(metavar="RUN", help="Run of a unidirectional transducer trained with data.swap=true.")
]
LanguageModel = Annotated[Path | None, typer.Option(metavar="RUN", help="Run of a language model over outputs.")]
Out = Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for the combined run.")]
WeightsOption = Annotated[
    str | None, typer.Option(metavar="L1,L2,L3,L4", help="Weights of direct, channel, language model and length.")
]


def combine(
    direct: Direct,
    out: Out,
    channel: Channel = None,
    lm: LanguageModel = None,
    weights: WeightsOption = None,
    beam: Beam = None,
    settings: SearchSettings = None,
    force: Force = False,
) -> None:
    """Combine trained runs into a noisy channel.

    The direct model proposes outputs; all three models and the length score them.
    With a direct weight of 0 the direct model only proposes. Without --channel or
    --lm, that model has no weight. antiphon tune finds the weights on held-out
    pairs. The result is a run like any other.

    Examples:
      antiphon combine --direct runs/a --lm runs/c --out runs/ac
      antiphon combine --direct runs/a --channel runs/b --lm runs/c --out runs/abc
      antiphon combine --direct a --channel b --set search.over=cells --out ab
    """
    from antiphon.runs.combined_runs import combine_runs
    from antiphon.runs.run_folder import RunFolder

    search: dict[str, object] = {"weights": parse_weights(weights), "beam": beam}
    combine_runs(direct, channel, lm, out, search, settings or (), force=force)
    parts = [part for part in (direct, channel, lm) if part is not None]
    for part in parts:
        note_unfinished(RunFolder.open(part), part)
    print(printable(f"{out}: a noisy channel of {', '.join(map(str, parts))}"))


def parse_weights(text: str | None) -> tuple[float, ...] | None:
    """Four comma-separated numbers."""
    if text is None:
        return None
    weights = tuple(parse_numbers(text, 1e6))
    if len(weights) != 4:
        raise RecipeError(f"--weights {one_line(text)}: expected four numbers L1,L2,L3,L4 of at most 1,000,000")
    return weights


def ensemble(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN RUN ...", help="Runs to combine.")],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for the ensemble.")],
    force: Force = False,
) -> None:
    """Combine trained runs into an ensemble.

    An ensemble averages the probabilities of the next token. Its members can be of
    any kinds that predict, such as one recipe trained with several seeds; they must
    share a target vocabulary. The result is a run like any other, and can be the
    --direct of a noisy channel.

    Examples:
      antiphon ensemble runs/seed1 runs/seed2 runs/seed3 --out runs/three
    """
    from antiphon.runs.combined_runs import ensemble_runs
    from antiphon.runs.run_folder import RunFolder

    ensemble_runs(runs, out, force=force)
    for run in runs:
        note_unfinished(RunFolder.open(run), run)
    print(printable(f"{out}: an ensemble of {', '.join(map(str, runs))}"))
