"""``antiphon evaluate``."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from antiphon.cli.options import Beam, Device, Run, Threads
from antiphon.errors import count_of


def command(
    run: Run,
    file: Annotated[list[Path], typer.Argument(metavar="FILE", help="Pairs: one TSV, or two parallel files.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    beam: Beam = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Print all metrics of the task, each with its signature."""
    from rich.console import Console

    from antiphon.api import load
    from antiphon.data.readers import pair_files, read_filled_pairs
    from antiphon.report.tables import metrics_table

    model = load(run, device=device, threads=threads)
    data = model.recipe.data
    pairs, blank = read_filled_pairs(pair_files(file), features=bool(data.features), swap=data.swap)
    if blank:
        print(f"antiphon: {count_of(blank, 'line')} without a source or a target left out", file=sys.stderr)
    evaluation = model.evaluate(pairs, beam=beam)
    if as_json:
        print(json.dumps(evaluation.as_json(), ensure_ascii=False))
    else:
        Console().print(metrics_table(evaluation))
