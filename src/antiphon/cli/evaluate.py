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
    PictureFile,
    Policy,
    Qrels,
    Questions,
    QuestionsOption,
    References,
    Run,
    SearchSettings,
    StreamPolicy,
    Threads,
    check_picture,
    load_run,
    parse_breakdowns,
    parse_numbers,
    refuse_options,
)
from antiphon.exceptions import InputError, RecipeError
from antiphon.terminal import one_line, print_note
from antiphon.torch_free.inputs import MAX_BIAS

if TYPE_CHECKING:
    from antiphon.api import Evaluation, Model, StreamOptions
    from antiphon.cli.options import TestSet

TestFiles = Annotated[
    list[Path], typer.Argument(metavar="FILE", help="Pairs: one TSV, or two parallel files. For rankers: questions.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, or one per bias of --sweep.")]
Online = Annotated[bool, typer.Option("--online", help="Feed inputs token by token, and measure the delay too.")]
Sweep = Annotated[
    str | None,
    typer.Option(metavar="B1,B2,...", help="Evaluate online with each of these emit biases, and draw RUN/online.png."),
]


def evaluate(
    run: Run,
    file: TestFiles,
    as_json: AsJson = False,
    reference: References = None,
    by: ByOption = None,
    beam: Beam = None,
    settings: SearchSettings = None,
    online: Online = False,
    policy: Policy = StreamPolicy.beam,
    emit_bias: EmitBias = 0.0,
    margin: Margin = None,
    sweep: Sweep = None,
    plot: PictureFile = None,
    questions: QuestionsOption = Questions.all,
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
      antiphon evaluate runs/online test.tsv --sweep 0,2,4 --plot delay.pdf
    """
    from antiphon.api import RankingModel

    breakdowns, biases = parse_breakdowns(by), None if sweep is None else parse_biases(sweep)
    check_options(sweep=sweep, online=online, by=by, plot=plot)
    streams = {"--policy": policy is not StreamPolicy.beam, "--emit-bias": emit_bias, "--margin": margin is not None}
    check_stream_options(streams, online=online, sweep=sweep)
    model = load_run(run, device, threads, settings)
    if isinstance(model, RankingModel):
        for_pairs = {"--reference": reference, "--beam": beam, "--online": online, "--sweep": sweep, "--by": by}
        refuse_options(model.kind, for_pairs | {"a second file": file[1:]})
        show(answer_selection.evaluate(model, file[0], questions.value, qrels), as_json=as_json)
        return
    refuse_options(model.kind, {"--questions": questions is not Questions.all, "--qrels": qrels})
    test = read_pairs(model, file, reference or [])
    options: StreamOptions = {"policy": policy.value, "emit_bias": emit_bias, "beam": beam, "margin": margin}
    if biases is not None:
        run_sweep(model, test, biases, options, run, plot, as_json=as_json)
    elif online:
        show(model.evaluate_online(test.pairs, more_references=test.more_references, **options), as_json=as_json)
    else:
        evaluation = model.evaluate(test.pairs, beam=beam, more_references=test.more_references, by=breakdowns)
        show(evaluation, as_json=as_json)


def check_options(*, sweep: str | None, online: bool, by: list[str] | None, plot: Path | None) -> None:
    """Refuses options that exclude each other, and a picture that cannot be drawn, before anything is computed."""
    if by and (online or sweep is not None):
        raise InputError("--by: does not work with --online or --sweep, expected a command without it")
    if plot is not None:
        if sweep is None:
            raise InputError("--plot: draws quality against delay, expected it together with --sweep")
        check_picture(plot)


def check_stream_options(given: Mapping[str, object], *, online: bool, sweep: str | None) -> None:
    """Refuses options of streams that would be ignored."""
    if not online and sweep is None:
        unused = next((option for option, value in given.items() if value), None)
        if unused is not None:
            raise InputError(f"{unused}: only for streams, expected it together with --online or --sweep")
    if sweep is not None and given["--emit-bias"]:
        raise InputError("--emit-bias: --sweep has the biases, expected only one of them")


def read_pairs(model: "Model", files: list[Path], references: list[Path]) -> "TestSet":
    """The test pairs; notes on unknown features and on metrics that cannot be computed go to standard error."""
    from antiphon.cli.options import note_unknown_features, read_test_set
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


def show(evaluation: "Evaluation", *, as_json: bool) -> None:
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


def parse_biases(text: str) -> list[float]:
    """The comma-separated emit biases."""
    biases = parse_numbers(text, MAX_BIAS)
    if not biases:
        raise RecipeError(f"--sweep {one_line(text)}: expected finite numbers separated by commas, such as -1,0,1")
    return biases


def run_sweep(
    model: "Model",
    test: "TestSet",
    biases: list[float],
    options: "StreamOptions",
    run: Path,
    plot: Path | None,
    *,
    as_json: bool,
) -> None:
    """Evaluates online with every bias, prints the results, and draws them into ``plot`` or into the run."""
    from antiphon.report.plots import optional_picture
    from antiphon.runs.run_folder import open_for_writing

    if plot is not None:
        found = evaluate_biases(model, test, biases, options)
        show_sweep(found, as_json=as_json)
        draw_sweep(found, plot)
        return
    with open_for_writing(run) as folder:  # refused before anything is computed where the run cannot be written to
        found = evaluate_biases(model, test, biases, options)
        show_sweep(found, as_json=as_json)
        picture = folder.path / "online.png"
        with optional_picture(picture, print_note), folder.changed() as new:
            draw_sweep(found, new.path / picture.name)


def evaluate_biases(
    model: "Model", test: "TestSet", biases: list[float], options: "StreamOptions"
) -> "dict[float, Evaluation]":
    """Quality and delay for every bias."""
    found = {}
    for bias in biases:
        own: StreamOptions = {**options, "emit_bias": bias}
        found[bias] = model.evaluate_online(test.pairs, more_references=test.more_references, **own)
    return found


def show_sweep(evaluations: "dict[float, Evaluation]", *, as_json: bool) -> None:
    """Prints a table, or a JSON object for each bias."""
    from antiphon.console import PlainConsole
    from antiphon.report.tables import sweep_table

    if as_json:
        for bias, evaluation in evaluations.items():
            print(json.dumps(evaluation.to_dict() | {"emit_bias": bias}, ensure_ascii=False))
    else:
        PlainConsole().print(sweep_table(evaluations))


def draw_sweep(evaluations: "dict[float, Evaluation]", path: Path) -> None:
    """Draws quality against delay, with the bias beside every point."""
    from antiphon.report.plots import plot_curves

    metrics = [evaluation.metrics for evaluation in evaluations.values()]
    quality = next(name for name in ("bleu", "accuracy") if name in metrics[0])
    points = [(scores["AL"].value, scores[quality].value) for scores in metrics]
    labels, title = [f"{bias:g}" for bias in evaluations], "Quality against delay, by emit bias"
    name = {"bleu": "BLEU", "accuracy": "accuracy (%)"}[quality]
    plot_curves({name: points}, "average lagging (source tokens)", name, path, labels=labels, title=title)
