"""``antiphon predict``."""

import json
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from antiphon.cli.loading import load_run
from antiphon.cli.long_input import Progress, UnknownSymbols, count_lines
from antiphon.cli.options import MOST_AT_ONCE, MOST_HYPOTHESES, Beam, Device, Run, Threads
from antiphon.exceptions import count_of
from antiphon.terminal import printable

if TYPE_CHECKING:
    from antiphon.api import Prediction
    from antiphon.data.readers import Source
    from antiphon.recipe.schema import DataSection


_MOST_COVERING = 100
"""Outputs at most where --cover is given and --nbest is not."""


class Format(StrEnum):
    """How predictions are written."""

    text = "text"
    jsonl = "jsonl"


def command(
    run: Run,
    file: Annotated[
        Path, typer.Argument(metavar="[FILE]", help="One input per line; - reads standard input.", show_default=False)
    ] = Path("-"),
    beam: Beam = None,
    nbest: Annotated[
        int | None, typer.Option(min=1, max=MOST_HYPOTHESES, help="Outputs per input; unset: 1, with --cover 100.")
    ] = None,
    cover: Annotated[
        float | None, typer.Option(help="Only as many outputs as have this much of the probability together.")
    ] = None,
    sample: Annotated[
        int | None, typer.Option(min=1, max=MOST_HYPOTHESES, help="Draw so many outputs per input instead.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Decides what --sample draws.")] = 1,
    explain: Annotated[
        bool, typer.Option("--explain", help="Of a matcher with attention: show which words the question looks at.")
    ] = False,
    format: Annotated[Format, typer.Option(help="One output per line, or one JSON object per line.")] = Format.text,
    lexicon: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Pairs as for training: inputs listed there are answered from it, others by the run.",
            show_default=False,
        ),
    ] = None,
    allow_unknown_features: Annotated[
        bool,
        typer.Option(
            "--allow-unknown-features", help="Read features that training never saw as unknown; unset: refuse them."
        ),
    ] = False,
    processes: Annotated[
        int,
        typer.Option(
            min=1, max=MOST_AT_ONCE, help="Processes that share the work, with one thread each and a GPU each in turn."
        ),
    ] = 1,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Write the best output for every line of input.

    Outputs come in the order of the inputs. A line is a source; for a run trained with features it is
    source<TAB>features. Files of pairs work too: their targets are skipped. An empty line gets an empty output.

    Standard error says at the end which source symbols training never saw. An input of the --lexicon gets all outputs
    that are listed for it, in their order and without a probability; in JSON lines they are marked by "from".

    With --nbest, --cover or --sample every output has a line of its own: the line of its input, its probability and
    its text, with tabs between them.

    A run of answer selection reads a file of questions and candidates and writes a TREC run, or one JSON object per
    question.

    Example: antiphon predict runs/g2p words.txt > phonemes.txt
    """
    from antiphon.api import PredictOptions, RankingModel, load_planner
    from antiphon.api.workers import predict_in_processes
    from antiphon.cli import ranking
    from antiphon.runs.kinds import RANKING_KINDS
    from antiphon.runs.run_folder import RunFolder

    recipe = RunFolder.open(run).recipe()
    kind = recipe.model.kind
    if kind in RANKING_KINDS:
        ranking.refuse_options(
            kind,
            {
                "--beam": beam,
                "--nbest": nbest,
                "--cover": cover,
                "--sample": sample,
                "--processes": processes > 1,
                "--lexicon": lexicon,
                "--allow-unknown-features": allow_unknown_features,
            },
        )
        ranker = cast(RankingModel, load_run(run, device, threads))
        ranking.predict(ranker, file, run.resolve().name, as_json=format is Format.jsonl, explain=explain)
        return
    ranking.refuse_options(kind, {"--explain": explain})
    in_full = nbest is not None or cover is not None or sample is not None
    most = nbest or (1 if cover is None else _MOST_COVERING)
    options = PredictOptions(beam, most, cover, sample, seed, format is Format.jsonl, allow_unknown_features)
    model = load_run(run, device, threads) if processes == 1 else load_planner(run)
    listed = model.lexicon(lexicon or ())
    sources = read_sources(file, recipe.data, lambda source, where: model.check_source(source, where, options, listed))
    if processes == 1:
        predictions = model.predict_lazily(sources, options, listed)
    else:
        predictions = predict_in_processes(
            run, sources, processes=processes, options=options, lexicon=listed, device=device, threads=threads or 1
        )
    write(predictions, file, lexicon, as_json=format is Format.jsonl, in_full=in_full)


def write(
    predictions: "Generator[Prediction, None, None]", file: Path, lexicon: Path | None, *, as_json: bool, in_full: bool
) -> None:
    """Writes the predictions for a file, then says what was unknown, and how many a lexicon answered."""
    unknown, listed = UnknownSymbols(), 0
    with closing(predictions):
        for line, prediction in enumerate(Progress(count_lines(file)).follow(unknown.follow(predictions)), 1):
            show(line, prediction, as_json=as_json, in_full=in_full)
            listed += prediction.origin == "lexicon"
    unknown.say()
    if lexicon is not None:
        print(printable(f"antiphon: {count_of(listed, 'input')} answered from {lexicon}"), file=sys.stderr)


def show(line: int, prediction: "Prediction", *, as_json: bool, in_full: bool) -> None:
    """A JSON object, every output of an input on a line of its own, or the best one; rules have no probability."""
    if as_json:
        print(json.dumps(prediction.to_dict(), ensure_ascii=False))
    elif not in_full:
        print(prediction.text or "")
    for candidate in prediction.nbest if in_full and not as_json else ():
        probability = "" if candidate.probability is None else f"{candidate.probability:.6g}"
        print(line, probability, candidate.text, sep="\t")


def read_sources(file: Path, data: "DataSection", check: "Callable[[Source, str], None]") -> "Iterator[Source]":
    """The inputs of a file, or of standard input; ``check`` is given each one and its line."""
    from antiphon.data.files import STANDARD_INPUT, read_lines, read_standard_input
    from antiphon.data.readers import parse_source

    from_pipe = file == Path("-")
    name = STANDARD_INPUT if from_pipe else str(file)
    lines = read_standard_input() if from_pipe else read_lines(file)
    for number, line in enumerate(lines, 1):
        source = parse_source(line, f"{name}:{number}", features=bool(data.features), swap=data.swap)
        check(source, f"{name}:{number}")
        yield source
