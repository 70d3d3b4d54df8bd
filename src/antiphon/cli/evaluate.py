"""``antiphon evaluate``: prints all metrics of a run on a test file."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from antiphon.cli import answer_selection
from antiphon.cli.options import (
    BREAKDOWNS,
    Beam,
    ByOption,
    Device,
    EmitBias,
    Margin,
    Policy,
    Qrels,
    QuestionsOption,
    References,
    Run,
    SearchSettings,
    TestSet,
    Threads,
    load_run,
    note_unknown_features,
    parse_breakdowns,
    read_test_set,
    refuse_options,
)
from antiphon.exceptions import InputError
from antiphon.terminal import print_note
from antiphon.torch_free.inputs import StreamOptions
from antiphon.torch_free.results import Evaluation

if TYPE_CHECKING:
    from antiphon.api.model import Model

TestFiles = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE", help="Pairs: a TSV, - for standard input, or two parallel files. For rankers: questions."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Online = Annotated[bool, typer.Option("--online", help="Feed inputs token by token, and measure the delay too.")]


def evaluate(
    run: Run,
    file: TestFiles,
    as_json: AsJson = False,
    reference: References = None,
    by: ByOption = None,
    beam: Beam = None,
    settings: SearchSettings = None,
    online: Online = False,
    policy: Policy = "beam",
    emit_bias: EmitBias = 0.0,
    margin: Margin = None,
    questions: QuestionsOption = "all",
    qrels: Qrels = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Print all metrics of the task, each with its signature.

    Features that training never saw are read as unknown; a note names them.

    In answer selection, --questions keeps the questions with a correct candidate
    (answerable) or with correct and wrong ones (mixed), by the labels of the file.
    --qrels replaces those labels; its questions that were not ranked count as 0.

    Examples:
      antiphon evaluate runs/g2p test.tsv
      antiphon evaluate runs/inflection test.tsv --by features
      antiphon evaluate runs/online test.tsv --online --policy greedy
    """
    from antiphon.api.ranking_model import RankingModel

    breakdowns = parse_breakdowns(by)
    streams = {"--policy": policy != "beam", "--emit-bias": emit_bias, "--margin": margin is not None}
    check_options(streams, online=online, by=by)
    model = load_run(run, device, threads, settings)
    if isinstance(model, RankingModel):
        for_pairs = {"--reference": reference, "--beam": beam, "--online": online, "--by": by}
        refuse_options(model.kind, for_pairs | {"a second file": file[1:]})
        show(answer_selection.evaluate(model, file[0], questions, qrels), as_json=as_json)
        return
    refuse_options(model.kind, {"--questions": questions != "all", "--qrels": qrels})
    test = read_pairs(model, file, reference or [])
    options: StreamOptions = {"policy": policy, "emit_bias": emit_bias, "beam": beam, "margin": margin}
    if online:
        show(model.evaluate_online(test.pairs, more_references=test.more_references, **options), as_json=as_json)
    else:
        evaluation = model.evaluate(test.pairs, beam=beam, more_references=test.more_references, by=breakdowns)
        show(evaluation, as_json=as_json)


def check_options(streams: Mapping[str, object], *, online: bool, by: list[str] | None) -> None:
    """Refuses options that exclude each other, and options of streams that would be ignored."""
    if by and online:
        raise InputError("--by: does not work with --online, expected a command without it")
    unused = next((option for option, value in streams.items() if value and not online), None)
    if unused is not None:
        raise InputError(f"{unused}: only for streams, expected it together with --online")


def read_pairs(model: "Model", files: list[Path], references: list[Path]) -> TestSet:
    """The test pairs; notes on unknown features and on metrics that cannot be computed go to standard error."""
    from antiphon.metrics.output_metrics import has_fourgrams, missing_metrics_note
    from antiphon.runs.build import task_metrics

    test = read_test_set(model.recipe, files, references)
    note_unknown_features(model, test.pairs)
    metrics = task_metrics(model.recipe.data)
    if missing := missing_metrics_note(metrics):
        print_note(f"not computed: {missing}")
    if "bleu" in metrics and not has_fourgrams(pair.target for pair in test.pairs):
        print_note("no target has four words, so bleu is 0; the other metrics say more")
    return test


def show(evaluation: Evaluation, *, as_json: bool) -> None:
    """Prints a table of metrics and one for each kind of group, or one JSON object."""
    from antiphon.console import PlainConsole
    from antiphon.report.error_report import group_sections
    from antiphon.report.tables import metrics_table, print_sections

    if as_json:
        print(json.dumps(evaluation.to_dict(), ensure_ascii=False))
    else:
        console = PlainConsole()
        console.print(metrics_table(evaluation))
        print_sections(console, group_sections(evaluation.groups, BREAKDOWNS))
