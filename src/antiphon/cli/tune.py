"""``antiphon tune``: finds the weights of a noisy channel."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from antiphon.cli.options import MAX_HYPOTHESES, Device, Run, Threads, load_run, read_test_set
from antiphon.exceptions import RunError

if TYPE_CHECKING:
    from rich.console import Console

    from antiphon.api.model import NoisyChannelModel
    from antiphon.tune import Tuning


DevFiles = Annotated[list[Path], typer.Argument(metavar="DEV", help="Held-out pairs: one TSV, or two parallel files.")]
Metric = Annotated[
    str | None, typer.Option(metavar="NAME", help="Metric to improve; default: accuracy for characters, else bleu.")
]
Rounds = Annotated[int, typer.Option(metavar="N", min=1, max=1000, help="Maximum number of search rounds.")]
NBest = Annotated[int, typer.Option(metavar="N", min=2, max=MAX_HYPOTHESES, help="Candidates per input in each round.")]


def tune(
    run: Run,
    file: DevFiles,
    metric: Metric = None,
    rounds: Rounds = 6,
    nbest: NBest = 50,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Find the weights of a noisy channel on held-out pairs.

    Searches for candidates, finds weights on their n-best lists, and searches again
    with these weights until the metric stops improving (n-best weight search). The
    weights are written into the run: never ones that are worse on these pairs than
    the direct model alone, whose weights are 1, 0, 0, 0, unless the direct model had
    no weight before. A model whose weight is 0 stays out, unless only the direct
    model has one.

    Examples:
      antiphon tune runs/noisy dev.tsv
      antiphon tune runs/noisy dev.tsv --metric accuracy --nbest 100
    """
    from antiphon.console import PlainConsole
    from antiphon.runs.run_folder import open_for_writing
    from antiphon.tune import save_tuning, start_lists, tune

    console = PlainConsole(stderr=True)
    with open_for_writing(run) as folder:
        model = load_noisy_channel(run, device, threads)
        candidates = start_lists(model, read_test_set(model.recipe, file).pairs, metric)
        found = tune(model, candidates, rounds=rounds, nbest=nbest, say=console.print)
        save_tuning(found, model.recipe, folder)
    show(found, console)


def load_noisy_channel(run: Path, device: str, threads: int | None) -> "NoisyChannelModel":
    """The loaded run; other kinds, which have no weights, are refused."""
    from antiphon.api.model import NoisyChannelModel

    model = load_run(run, device, threads)
    if not isinstance(model, NoisyChannelModel):
        raise RunError(
            f"{run}: a run of kind {model.kind} has no weights to tune, expected one made by antiphon combine"
        )
    return model


def show(found: "Tuning", console: "Console") -> None:
    """Prints the metric and the weights before and after."""
    from rich.table import Table

    table = Table(title=f"dev {found.metric}")
    for name in ("", found.metric, "direct", "channel", "language model", "length"):
        table.add_column(name, justify="right")
    rows = ("direct model", found.direct, ()), ("before", found.before, found.weights_before)
    for name, value, weights in (*rows, ("after", found.after, found.weights)):
        table.add_row(name, f"{value:.2f}", *(f"{weight:.3f}" for weight in weights))
    console.print(table)
