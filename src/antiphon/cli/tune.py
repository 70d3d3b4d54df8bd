"""``antiphon tune``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from antiphon.cli.loading import load_run
from antiphon.cli.options import MOST_HYPOTHESES, Device, Run, Threads
from antiphon.exceptions import RunError

if TYPE_CHECKING:
    from rich.console import Console

    from antiphon.tune.mert import Tuning


def command(
    run: Run,
    file: Annotated[list[Path], typer.Argument(metavar="DEV", help="Held-out pairs: one TSV, or two parallel files.")],
    metric: Annotated[
        str | None, typer.Option(help="What to make better; unset: accuracy for characters, else bleu.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, max=1000, help="Times to search and weigh at most.")] = 6,
    nbest: Annotated[
        int, typer.Option(min=2, max=MOST_HYPOTHESES, help="Candidates of each input that are weighed.")
    ] = 50,
    save_lists: Annotated[
        Path | None, typer.Option(help="Write all candidates with their four scores to this file, as JSON lines.")
    ] = None,
    lists: Annotated[
        Path | None, typer.Option(help="Weigh the candidates that --save-lists wrote, without searching again.")
    ] = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Find the weights of a noisy channel on held-out pairs.

    They are written into the run. Searches for candidates, finds weights on their lists, and searches again with
    them, until nothing gets better. A part whose weight is 0 stays out.

    Example: antiphon tune runs/noisy dev.tsv
    """
    from antiphon.api import NoisyChannelModel
    from antiphon.cli.test_set import read_test_set
    from antiphon.runs.run_folder import writing
    from antiphon.terminal import PlainConsole
    from antiphon.tune.mert import save_tuning, start_lists, tune, tune_on_lists

    console = PlainConsole(stderr=True)
    with writing(run) as folder:
        model = load_run(run, device, threads)
        if not isinstance(model, NoisyChannelModel):
            raise RunError(
                f"{run}: a run of kind {model.kind} has no weights to tune, expected one made by antiphon combine"
            )
        test = read_test_set(model.recipe, file)
        candidates = start_lists(model, test.pairs, metric)
        if lists is None:
            found = tune(model, candidates, rounds=rounds, nbest=nbest, say=console.print)
        else:
            candidates.load(lists)
            found = tune_on_lists(model, candidates)
        if save_lists is not None:
            candidates.save(save_lists)
        save_tuning(found, model.recipe, folder)
    show(found, console)


def show(found: "Tuning", console: "Console") -> None:
    """Before and after."""
    from rich.table import Table

    table = Table(title=f"dev {found.metric}")
    for name in ("", found.metric, "direct", "channel", "language model", "length"):
        table.add_column(name, justify="right")
    table.add_row("before", f"{found.before:.2f}", *(f"{weight:.3f}" for weight in found.weights_before))
    table.add_row("after", f"{found.after:.2f}", *(f"{weight:.3f}" for weight in found.weights))
    console.print(table)
