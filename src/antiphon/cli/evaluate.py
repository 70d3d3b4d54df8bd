"""``antiphon evaluate``."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from antiphon.cli.options import Beam, Device, EmitBias, Margin, Policy, References, Run, StreamPolicy, Threads
from antiphon.errors import RecipeError

if TYPE_CHECKING:
    from antiphon.api import Evaluation


def command(
    run: Run,
    file: Annotated[list[Path], typer.Argument(metavar="FILE", help="Pairs: one TSV, or two parallel files.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, or one for each bias of a sweep.")
    ] = False,
    reference: References = None,
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
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Print all metrics of the task, each with its signature."""
    from rich.console import Console

    from antiphon.api import load
    from antiphon.cli.test_set import read_test_set
    from antiphon.report.tables import metrics_table, sweep_table

    model = load(run, device=device, threads=threads)
    test = read_test_set(model.recipe, file, reference or [])
    evaluations: dict[float, Evaluation] = {}
    if online or sweep is not None:
        for bias in [emit_bias] if sweep is None else parse_biases(sweep):
            evaluations[bias] = model.evaluate_online(
                test.pairs,
                more_references=test.more_references,
                policy=policy.value,
                emit_bias=bias,
                beam=beam,
                margin=margin,
            )
    else:
        evaluations[0.0] = model.evaluate(test.pairs, beam=beam, more_references=test.more_references)
    if sweep is not None:
        draw_sweep(evaluations, run / "online.png")
    for bias, evaluation in evaluations.items() if as_json else ():
        print(json.dumps(evaluation.as_json() | ({"emit_bias": bias} if sweep else {}), ensure_ascii=False))
    if not as_json:
        Console().print(sweep_table(evaluations) if sweep is not None else metrics_table(evaluations.popitem()[1]))


def parse_biases(text: str) -> list[float]:
    """Numbers between commas."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise RecipeError(f"--sweep {text}: expected numbers between commas, such as -1,0,1") from None


def draw_sweep(evaluations: "dict[float, Evaluation]", path: Path) -> None:
    """Quality against delay; the biases stand beside the points."""
    from antiphon.report.plots import plot_curves

    metrics = [evaluation.metrics for evaluation in evaluations.values()]
    quality = next(name for name in ("bleu", "accuracy") if name in metrics[0])
    points = [(scores["AL"].value, scores[quality].value) for scores in metrics]
    labels = [f"{bias:g}" for bias in evaluations]
    plot_curves({quality: points}, "average lagging (source tokens)", quality, path, labels=labels)
