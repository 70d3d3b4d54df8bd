"""``antiphon predict``: the best outputs of every input, and notes on standard error meanwhile and at the end."""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from antiphon.cli import answer_selection
from antiphon.cli.options import (
    MAX_HYPOTHESES,
    Beam,
    Device,
    Format,
    Run,
    SearchSettings,
    Threads,
    load_run,
    refuse_options,
)
from antiphon.terminal import count_of, duration, print_note
from antiphon.torch_free.codec import TextCodec
from antiphon.torch_free.inputs import PredictOptions
from antiphon.torch_free.readers import Source, named_errors, numbered_lines
from antiphon.torch_free.results import Prediction, total_probability

if TYPE_CHECKING:
    from antiphon.torch_free.prediction import PredictionInterface

_SHOWN = 5
_LONG = 2000
"""Symbols of an input from which its search, whose time grows with the square of its length, may be minutes."""
_FIRST_AFTER = {True: 2.0, False: 20.0}
"""Seconds before the first note on progress, on a terminal or elsewhere."""
_EVERY = {True: 0.5, False: 60.0}
"""Seconds between notes on progress."""
_PAUSE, _LONGEST_BURST = 0.1, 1.0
"""Predictions come in bursts, one for each window of inputs: seconds of waiting that end one, and its longest time."""
Inputs = Annotated[
    Path, typer.Argument(metavar="[FILE]", help="One input per line; - is standard input.", show_default=False)
]
NBest = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, max=MAX_HYPOTHESES, help="Outputs per input; default: 1, with --cover 100."),
]
Cover = Annotated[
    float | None,
    typer.Option(
        metavar="P", help="The fewest outputs whose probabilities add up to this, such as 0.9; at most --nbest."
    ),
]
Sample = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, max=MAX_HYPOTHESES, help="Draw this many outputs per input at random instead."),
]
Seed = Annotated[int, typer.Option(metavar="N", help="Random seed of --sample.")]
Explain = Annotated[
    bool, typer.Option("--explain", help="Answer selection with attention: show the weight of every word.")
]
FormatOption = Annotated[Format, typer.Option(help="One output per line, or one JSON object per line.")]
LexiconFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Pairs as for training; their inputs get the outputs listed there.")
]
AllowUnknown = Annotated[
    bool,
    typer.Option("--allow-unknown-features", help="Read features that training never saw as unknown, not as an error."),
]


def predict(
    run: Run,
    file: Inputs = Path("-"),
    beam: Beam = None,
    settings: SearchSettings = None,
    nbest: NBest = None,
    cover: Cover = None,
    sample: Sample = None,
    seed: Seed = 1,
    explain: Explain = False,
    format: FormatOption = "text",
    lexicon: LexiconFile = None,
    allow_unknown_features: AllowUnknown = False,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Write the best output for every line of input.

    Outputs come in the order of the inputs. Each line is a source, or for a run
    trained with features source<TAB>features. Files of pairs work too: their targets
    are skipped. An empty line gets an empty output. Symbols that training never saw
    are listed on standard error at the end. RUN may be an exported run, or the name of
    one that comes with the package, such as en.

    With --nbest, --cover or --sample, every output has its own line: the line number
    of its input, its probability and its text, separated by tabs.

    An input listed in --lexicon gets the outputs that are listed for it, in their
    order and without probabilities; in JSON lines, "origin" is "lexicon" for them.

    --set changes how outputs are searched; the run stays as it is.

    An answer selection run reads a file of questions and candidates and writes a
    TREC run, or one JSON object per question.

    Examples:
      antiphon predict runs/g2p words.txt > phonemes.txt
      echo knight | antiphon predict runs/g2p --nbest 3 --format jsonl
      antiphon predict runs/g2p words.txt --set search.length_bias=0.5
      antiphon predict runs/answers questions.tsv > answers.run
    """
    from antiphon.recipe.kinds import KINDS
    from antiphon.recipe.recipe_file import change_search
    from antiphon.runs.run_folder import RunFolder, is_exported

    is_json, several = format == "jsonl", {"--nbest": nbest, "--cover": cover, "--sample": sample}
    options = PredictOptions(
        beam=beam,
        nbest=nbest,
        cover=cover,
        sample=sample,
        seed=seed,
        align=is_json,
        allow_unknown_features=allow_unknown_features,
    )
    format_options = {"as_json": is_json, "as_list": any(value is not None for value in several.values())}
    if is_exported(run):
        from antiphon import lite

        elsewhere = {"--device": device not in ("auto", "cpu")}
        refuse_options("exported", {"--set": settings, "--explain": explain, **elsewhere})
        predict_file(lambda: lite.load(run, threads=threads or 1), options, lexicon, file, **format_options)
        return
    recipe = RunFolder.open(run).recipe()
    kind = recipe.model.kind
    if KINDS[kind].ranks:
        others = {
            "--beam": beam,
            "--set": settings,
            "--lexicon": lexicon,
            "--allow-unknown-features": allow_unknown_features,
        }
        refuse_options(kind, {**several, **others})
        answer_selection.predict(run, file, as_json=is_json, explain=explain, device=device, threads=threads)
        return
    refuse_options(kind, {"--explain": explain})
    change_search(recipe, settings or ())  # wrong ones are refused before anything is written
    predict_file(lambda: load_run(run, device, threads, settings), options, lexicon, file, **format_options)


def predict_file(
    load: "Callable[[], PredictionInterface]",
    options: PredictOptions,
    lexicon: Path | None,
    file: Path,
    *,
    as_json: bool,
    as_list: bool,
) -> None:
    """Prints the predictions for a file, then notes on unknown symbols and on the inputs found in the lexicon."""
    lines, name = numbered_lines(file)
    model = load()
    listed, notes = model.lexicon(lexicon or ()), Notes(model.codec.source, lexicon, options.cover)
    sources = with_long_ones_noted(model.read_sources(lines, name, options, listed), model.codec.source)
    with closing(model.predict_lazily(sources, options, listed)) as predictions:
        for line, prediction in enumerate(Progress(count_lines(file)).follow(notes.follow(predictions)), 1):
            for text in prediction.lines(line, as_json=as_json, as_list=as_list):
                print(text)
    notes.print_summary()


def with_long_ones_noted(sources: Iterable[Source], codec: TextCodec) -> Iterator[Source]:
    """The same inputs; before the first is searched that is very long, a note says that this may take minutes."""
    noted = False
    for number, source in enumerate(sources, 1):
        if not noted and len(source.text) > _LONG and (length := len(codec.tokens(source.text))) > _LONG:
            print_note(
                f"input {number:,} has {length:,} symbols: the time of a search grows with the square of the length, "
                "so that such inputs may take minutes each"
            )
            noted = True
        yield source


class Progress:
    """Number of inputs done, rate and time left: on a terminal one line that is rewritten, elsewhere a line a minute.

    Nothing is shown if the outputs go to the same terminal.
    """

    def __init__(
        self,
        total: int | None = None,
        stream: TextIO | None = None,
        *,
        silent: bool | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total, self.stream, self.clock = total, stream or sys.stderr, clock
        self.is_terminal = self.stream.isatty()
        self.silent = self.is_terminal and sys.stdout.isatty() if silent is None else silent
        self.started = clock()
        self._next, self._shows_line = self.started + _FIRST_AFTER[self.is_terminal], False
        self._last = self._burst = self.started

    def follow(self, predictions: Iterable[Prediction]) -> Iterator[Prediction]:
        """The same predictions, while progress is shown."""
        try:
            for done, prediction in enumerate(predictions):
                self._note(done)
                yield prediction
        finally:
            if self._shows_line:
                self.stream.write("\r\x1b[K")
                self.stream.flush()

    def _note(self, done: int) -> None:
        """Shows progress if it is time, as it was at the end of a burst: inside one, the rate would be far too low."""
        now = self.clock()
        begins_burst = now - self._last >= _PAUSE
        if begins_burst:
            self._burst = now
        if done and not self.silent and now >= self._next and (begins_burst or now - self._burst >= _LONGEST_BURST):
            self._show(done, self._last - self.started)
            self._next = now + _EVERY[self.is_terminal]
        self._last = now

    def _show(self, done: int, seconds: float) -> None:
        inputs = f"{done:,} of {self.total:,} inputs" if self.total else count_of(done, "input")
        left = f", {duration(seconds / done * (self.total - done))} left" if self.total and self.total >= done else ""
        line = f"{inputs}, {done / seconds:,.1f} per second{left}"
        self._shows_line = self.is_terminal
        self.stream.write(f"\r{line}\x1b[K" if self.is_terminal else f"antiphon: {line}\n")
        self.stream.flush()


class UnknownSymbols:
    """Counts the source symbols that training never saw; of very many different ones, the rarest are forgotten.

    With the codec of the source, a symbol that training saw in lower case is pointed out.
    """

    def __init__(self, source: TextCodec | None = None, kept: int = 10_000) -> None:
        self.counts, self.inputs, self.total, self.kept = Counter[str](), 0, 0, kept
        self.source = source

    def follow(self, predictions: Iterable[Prediction]) -> Iterator[Prediction]:
        """The same predictions, while they are counted."""
        for prediction in predictions:
            self.add(prediction.unknown)
            yield prediction

    def add(self, symbols: Sequence[str]) -> None:
        """Counts the unknown symbols of one input."""
        self.counts.update(symbols)
        self.inputs += bool(symbols)
        self.total += len(symbols)
        if len(self.counts) > 2 * self.kept:
            self.counts = Counter(dict(self.counts.most_common(self.kept)))

    def print_summary(self) -> None:
        """Prints the sentence on standard error, if there is one."""
        if self.counts:
            print_note(str(self))

    def __str__(self) -> str:
        """One sentence; nothing if every symbol is known."""
        if not self.counts:
            return ""
        shown = ", ".join(f"{symbol!r} ({count:,})" for symbol, count in self.counts.most_common(_SHOWN))
        more = ", ..." if len(self.counts) > _SHOWN else ""
        inputs, symbols = count_of(self.inputs, "input"), count_of(self.total, "symbol")
        return f"{symbols} in {inputs} that training never saw: {shown}{more}{self._hint()}"

    def _hint(self) -> str:
        """How the most frequent symbol can be read that training saw in lower case; nothing if there is none."""
        if self.source is None or self.source.normalisation.lowercase:
            return ""
        for symbol, _ in self.counts.most_common():
            if symbol.lower() in self.source.vocab:
                return (
                    f"; it saw {symbol.lower()!r}: lower-case the input, or train with data.lowercase=true, "
                    f"which reads {symbol!r} so"
                )
        return ""


class Notes:
    """Counts unknown symbols, inputs that were found in a lexicon, and lists with less probability than asked for."""

    def __init__(self, source: TextCodec, lexicon: Path | None, cover: float | None) -> None:
        self.unknown, self.listed, self.short = UnknownSymbols(source), 0, 0
        self.lexicon, self.cover = lexicon, cover

    def follow(self, predictions: Iterable[Prediction]) -> Iterator[Prediction]:
        """The same predictions, while they are counted."""
        for prediction in self.unknown.follow(predictions):
            self.listed += prediction.origin == "lexicon"
            self.short += self._is_short(prediction)
            yield prediction

    def _is_short(self, prediction: Prediction) -> bool:

        if self.cover is None or prediction.origin == "lexicon" or not prediction.nbest:
            return False
        return total_probability(prediction.nbest) < self.cover

    def print_summary(self) -> None:
        """Prints what was counted on standard error."""
        self.unknown.print_summary()
        if self.lexicon is not None:
            print_note(f"{count_of(self.listed, 'input')} answered from {self.lexicon}")
        if self.short:
            inputs = count_of(self.short, "input")
            print_note(f"{inputs}: outputs have less than {self.cover:g} together; raise --nbest or --beam for more")


def count_lines(file: Path) -> int | None:
    """The number of lines of a plain file; None where counting would mean decompressing it, or consuming a pipe."""
    if file.suffix == ".gz" or not file.is_file():
        return None
    with named_errors(file), file.open("rb") as content:
        return sum(block.count(b"\n") for block in iter(lambda: content.read(2**20), b""))
