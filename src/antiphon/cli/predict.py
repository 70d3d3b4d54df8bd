"""Write the best output for every line of input.

Outputs come in the order of the inputs. Each line is a source, or for a run
trained with features source<TAB>features. Files of pairs work too: their targets
are skipped. An empty line gets an empty output. Symbols that training never saw
are listed on standard error at the end.

With --nbest, --cover or --sample, every output has its own line: the line number
of its input, its probability and its text, separated by tabs.

An input listed in --lexicon gets the outputs that are listed for it, in their
order and without probabilities; in JSON lines, "from" is "lexicon" for them.

An answer selection run reads a file of questions and candidates and writes a
TREC run, or one JSON object per question.

Examples:
  antiphon predict runs/g2p words.txt > phonemes.txt
  echo knight | antiphon predict runs/g2p --nbest 3 --format jsonl
  antiphon predict runs/answers questions.tsv > answers.run
"""

import json
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from antiphon.cli import answer_selection
from antiphon.cli.loading import load_run
from antiphon.cli.options import MOST_AT_ONCE, MOST_HYPOTHESES, Beam, Device, Run, Threads, refuse_options
from antiphon.cli.prediction_notes import Progress, UnknownSymbols, count_lines
from antiphon.terminal import count_of, printable

if TYPE_CHECKING:
    from antiphon.api import Prediction, PredictOptions
    from antiphon.data.readers import Source
    from antiphon.recipe.schema import DataSection

_MAX_COVERING = 100
"""Largest number of outputs where --cover is given and --nbest is not."""


class Format(StrEnum):
    """How predictions are written."""

    text = "text"
    jsonl = "jsonl"


Inputs = Annotated[
    Path, typer.Argument(metavar="[FILE]", help="One input per line; - is standard input.", show_default=False)
]
NBest = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        max=MOST_HYPOTHESES,
        help="Outputs per input; default: 1, with --cover 100.",
        show_default=False,
    ),
]
Cover = Annotated[
    float | None,
    typer.Option(
        metavar="P",
        help="The fewest outputs whose probabilities add up to this, such as 0.9; at most --nbest.",
        show_default=False,
    ),
]
Sample = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        max=MOST_HYPOTHESES,
        help="Draw this many outputs per input at random instead.",
        show_default=False,
    ),
]
Seed = Annotated[int, typer.Option(metavar="N", help="Random seed of --sample.")]
Explain = Annotated[
    bool, typer.Option("--explain", help="Answer selection with attention: show the weight of every word.")
]
FormatOption = Annotated[Format, typer.Option(help="One output per line, or one JSON object per line.")]
LexiconFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Pairs as for training; their inputs get the outputs listed there.", show_default=False
    ),
]
AllowUnknown = Annotated[
    bool,
    typer.Option("--allow-unknown-features", help="Read features that training never saw as unknown, not as an error."),
]
Processes = Annotated[
    int,
    typer.Option(
        metavar="N", min=1, max=MOST_AT_ONCE, help="Processes that share the work: one thread each, and one GPU each."
    ),
]


def command(
    run: Run,
    file: Inputs = Path("-"),
    beam: Beam = None,
    nbest: NBest = None,
    cover: Cover = None,
    sample: Sample = None,
    seed: Seed = 1,
    explain: Explain = False,
    format: FormatOption = Format.text,
    lexicon: LexiconFile = None,
    allow_unknown_features: AllowUnknown = False,
    processes: Processes = 1,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Writes the best outputs of every input."""
    from antiphon.api import PredictOptions
    from antiphon.recipe.kinds import KINDS
    from antiphon.runs.run_folder import RunFolder

    kind = RunFolder.open(run).recipe().model.kind
    is_json, several = format is Format.jsonl, {"--nbest": nbest, "--cover": cover, "--sample": sample}
    if KINDS[kind].ranks:
        others = {"--beam": beam, "--lexicon": lexicon, "--allow-unknown-features": allow_unknown_features}
        refuse_options(kind, several | others | {"--processes": processes > 1})
        answer_selection.predict(run, file, as_json=is_json, explain=explain, device=device, threads=threads)
        return
    refuse_options(kind, {"--explain": explain})
    outputs = nbest or (1 if cover is None else _MAX_COVERING)
    options = PredictOptions(beam, outputs, cover, sample, seed, is_json, allow_unknown_features)
    predictions = Job(run, file, lexicon, options, processes, device, threads).predictions()
    write(predictions, file, lexicon, as_json=is_json, as_list=any(value is not None for value in several.values()))


@dataclass(frozen=True)
class Job:
    """What to predict, and with what."""

    run: Path
    file: Path
    lexicon: Path | None
    options: "PredictOptions"
    processes: int
    device: str
    threads: int | None

    def predictions(self) -> "Generator[Prediction, None, None]":
        """The predictions for every line of the file, in order, by one process or several."""
        from antiphon.api import load_planner
        from antiphon.api.workers import predict_in_processes

        is_alone, options = self.processes == 1, self.options
        model = load_run(self.run, self.device, self.threads) if is_alone else load_planner(self.run)
        lexicon = model.lexicon(self.lexicon or ())
        sources = read_sources(
            self.file, model.recipe.data, lambda source, where: model.check_source(source, where, options, lexicon)
        )
        if is_alone:
            return model.predict_lazily(sources, options, lexicon)
        return predict_in_processes(
            self.run,
            sources,
            processes=self.processes,
            options=options,
            lexicon=lexicon,
            device=self.device,
            threads=self.threads or 1,
        )


def write(
    predictions: "Generator[Prediction, None, None]", file: Path, lexicon: Path | None, *, as_json: bool, as_list: bool
) -> None:
    """Writes the predictions for a file, then notes on unknown symbols and on the inputs found in the lexicon."""
    unknown, listed = UnknownSymbols(), 0
    with closing(predictions):
        for line, prediction in enumerate(Progress(count_lines(file)).follow(unknown.follow(predictions)), 1):
            show(line, prediction, as_json=as_json, as_list=as_list)
            listed += prediction.origin == "lexicon"
    unknown.say()
    if lexicon is not None:
        print(printable(f"antiphon: {count_of(listed, 'input')} answered from {lexicon}"), file=sys.stderr)


def show(line: int, prediction: "Prediction", *, as_json: bool, as_list: bool) -> None:
    """Prints a JSON object, or one line for every output, or the best output."""
    if as_json:
        print(json.dumps(prediction.to_dict(), ensure_ascii=False))
    elif not as_list:
        print(prediction.text or "")
    for candidate in prediction.nbest if as_list and not as_json else ():
        probability = "" if candidate.probability is None else f"{candidate.probability:.6g}"
        print(line, probability, candidate.text, sep="\t")


def read_sources(file: Path, data: "DataSection", check: "Callable[[Source, str], None]") -> "Iterator[Source]":
    """The inputs of a file, or of standard input; ``check`` is called with each one and its line."""
    from antiphon.data.files import STANDARD_INPUT, read_lines, read_standard_input
    from antiphon.data.readers import parse_source

    from_pipe = file == Path("-")
    name = STANDARD_INPUT if from_pipe else str(file)
    lines = read_standard_input() if from_pipe else read_lines(file)
    for number, line in enumerate(lines, 1):
        source = parse_source(line, f"{name}:{number}", features=bool(data.features), swap=data.swap)
        check(source, f"{name}:{number}")
        yield source
