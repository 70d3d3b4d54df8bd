"""``antiphon evaluate``."""

import json
from pathlib import Path
from typing import Annotated

import typer

from antiphon.cli.options import Beam, Device, Qrels, Questions, QuestionsOption, References, Run, Threads


def command(
    run: Run,
    file: Annotated[
        list[Path], typer.Argument(metavar="FILE", help="Pairs: one TSV, or two parallel files; or questions.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    reference: References = None,
    beam: Beam = None,
    questions: QuestionsOption = Questions.all,
    qrels: Qrels = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Print all metrics of the task, each with its signature.

    For answer selection, --questions chooses those with a right candidate (answerable) or with both kinds (mixed) by
    the file's own labels. With --qrels the labels of that file count, and its questions that are not ranked count 0.
    """
    from rich.console import Console

    from antiphon.api import RankingModel, load
    from antiphon.cli import ranking
    from antiphon.cli.test_set import read_test_set
    from antiphon.report.tables import metrics_table

    model = load(run, device=device, threads=threads)
    if isinstance(model, RankingModel):
        ranking.refuse_options(model, {"--reference": reference, "--beam": beam, "a second file": file[1:]})
        evaluation = ranking.evaluate(model, file[0], questions.value, qrels)
    else:
        ranking.refuse_options(model, {"--questions": questions is not Questions.all, "--qrels": qrels})
        test = read_test_set(model.recipe, file, reference or [])
        evaluation = model.evaluate(test.pairs, beam=beam, more_references=test.more_references)
    if as_json:
        print(json.dumps(evaluation.as_json(), ensure_ascii=False))
    else:
        Console().print(metrics_table(evaluation))
