"""``antiphon evaluate``."""

import json
from pathlib import Path
from typing import Annotated

import typer

from antiphon.cli.options import Beam, Device, References, Run, Threads


def command(
    run: Run,
    file: Annotated[list[Path], typer.Argument(metavar="FILE", help="Pairs: one TSV, or two parallel files.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    reference: References = None,
    beam: Beam = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Print all metrics of the task, each with its signature."""
    from rich.console import Console

    from antiphon.api import load
    from antiphon.cli.test_set import read_test_set
    from antiphon.report.tables import metrics_table

    model = load(run, device=device, threads=threads)
    test = read_test_set(model.recipe, file, reference or [])
    evaluation = model.evaluate(test.pairs, beam=beam, more_references=test.more_references)
    if as_json:
        print(json.dumps(evaluation.as_json(), ensure_ascii=False))
    else:
        Console().print(metrics_table(evaluation))
