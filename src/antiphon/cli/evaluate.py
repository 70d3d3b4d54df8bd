"""``antiphon evaluate``."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from antiphon.cli.loading import load_run
from antiphon.cli.options import (
    BREAKDOWNS,
    MOST_BIAS,
    Beam,
    ByOption,
    Device,
    EmitBias,
    Margin,
    Policy,
    Qrels,
    Questions,
    QuestionsOption,
    References,
    Run,
    StreamPolicy,
    Threads,
    parse_breakdowns,
    parse_numbers,
)
from antiphon.exceptions import InputError, RecipeError
from antiphon.terminal import one_line

if TYPE_CHECKING:
    from antiphon.api import Evaluation, Model, StreamOptions
    from antiphon.cli.test_set import TestSet
    from antiphon.runs.run_folder import RunFolder


def command(
    run: Run,
    file: Annotated[
        list[Path], typer.Argument(metavar="FILE", help="Pairs: one TSV, or two parallel files; or questions.")
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, or one for each bias of a sweep.")
    ] = False,
    reference: References = None,
    by: ByOption = None,
    beam: Beam = None,
    online: Annotated[
        bool, typer.Option("--online", help="Give the model its inputs token by token, and measure the delay too.")
    ] = False,
    policy: Policy = StreamPolicy.beam,
    emit_bias: EmitBias = 0.0,
    margin: Margin = None,
    sweep: Annotated[
        str | None,
        typer.Option(metavar="B1,B2,...", help="Online with each of these biases; drawn in RUN/online.png."),
    ] = None,
    questions: QuestionsOption = Questions.all,
    qrels: Qrels = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Print all metrics of the task, each with its signature.

    Features that training never saw are read as unknown; a note names them.

    For answer selection, --questions chooses those with a right candidate (answerable) or with both kinds (mixed) by
    the file's own labels. With --qrels the labels of that file count, and its questions that are not ranked count 0.

    Example: antiphon evaluate runs/g2p test.tsv
    """
    from antiphon.api import RankingModel
    from antiphon.cli import ranking
    from antiphon.cli.test_set import note_unknown_features, read_test_set
    from antiphon.metrics import missing_metrics_note
    from antiphon.runs.build import task_metrics
    from antiphon.runs.run_folder import writing

    breakdowns = parse_breakdowns(by)
    if breakdowns and (online or sweep is not None):
        raise InputError("--by: not with --online or --sweep, expected a command without it")
    model = load_run(run, device, threads)
    if isinstance(model, RankingModel):
        for_pairs = {"--reference": reference, "--beam": beam, "--online": online, "--sweep": sweep, "--by": by}
        ranking.refuse_options(model.kind, for_pairs | {"a second file": file[1:]})
        show(ranking.evaluate(model, file[0], questions.value, qrels), as_json=as_json)
        return
    ranking.refuse_options(model.kind, {"--questions": questions is not Questions.all, "--qrels": qrels})
    test = read_test_set(model.recipe, file, reference or [])
    note_unknown_features(model, test.pairs)
    if left_out := missing_metrics_note(task_metrics(model.recipe.data)):
        print(f"left out: {left_out}", file=sys.stderr)
    options: StreamOptions = {"policy": policy.value, "emit_bias": emit_bias, "beam": beam, "margin": margin}
    if sweep is not None:
        with writing(run) as folder:
            show_sweep(sweep_biases(model, test, parse_biases(sweep), options), folder, as_json=as_json)
    elif online:
        show(model.evaluate_online(test.pairs, more_references=test.more_references, **options), as_json=as_json)
    else:
        evaluation = model.evaluate(test.pairs, beam=beam, more_references=test.more_references, by=breakdowns)
        show(evaluation, as_json=as_json)


def show(evaluation: "Evaluation", *, as_json: bool) -> None:
    """A table and one for each kind of groups, or one JSON object."""
    from antiphon.report.error_formats import group_sections
    from antiphon.report.sections import print_sections
    from antiphon.report.tables import metrics_table
    from antiphon.terminal import PlainConsole

    if as_json:
        print(json.dumps(evaluation.to_dict(), ensure_ascii=False))
    else:
        console = PlainConsole()
        console.print(metrics_table(evaluation))
        print_sections(console, group_sections(evaluation.groups, BREAKDOWNS))


def parse_biases(text: str) -> list[float]:
    """Numbers between commas."""
    biases = parse_numbers(text, MOST_BIAS)
    if not biases:
        raise RecipeError(f"--sweep {one_line(text)}: expected finite numbers between commas, such as -1,0,1")
    return biases


def sweep_biases(
    model: "Model", test: "TestSet", biases: list[float], options: "StreamOptions"
) -> "dict[float, Evaluation]":
    """Quality and delay for every bias."""
    found = {}
    for bias in biases:
        options["emit_bias"] = bias
        found[bias] = model.evaluate_online(test.pairs, more_references=test.more_references, **options)
    return found


def show_sweep(evaluations: "dict[float, Evaluation]", run: "RunFolder", *, as_json: bool) -> None:
    """A table, or a JSON object for each bias; and quality against delay as a picture in the run."""
    from antiphon.report.plots import optional_picture
    from antiphon.report.tables import sweep_table
    from antiphon.terminal import PlainConsole, printable

    if as_json:
        for bias, evaluation in evaluations.items():
            print(json.dumps(evaluation.to_dict() | {"emit_bias": bias}, ensure_ascii=False))
    else:
        PlainConsole().print(sweep_table(evaluations))
    picture = run.path / "online.png"

    def say(note: str) -> None:
        print(f"antiphon: {printable(note)}", file=sys.stderr)

    with optional_picture(picture, say), run.changed() as new:
        draw_sweep(evaluations, new.path / picture.name)


def draw_sweep(evaluations: "dict[float, Evaluation]", path: Path) -> None:
    """Quality against delay; the biases stand beside the points."""
    from antiphon.report.plots import plot_curves

    metrics = [evaluation.metrics for evaluation in evaluations.values()]
    quality = next(name for name in ("bleu", "accuracy") if name in metrics[0])
    points = [(scores["AL"].value, scores[quality].value) for scores in metrics]
    labels = [f"emit bias {bias:g}" for bias in evaluations]
    title = "quality against delay, for several emit biases"
    plot_curves({quality: points}, "average lagging (source tokens)", quality, path, labels=labels, title=title)
