"""A prediction job: the run and options that predict lines of text, the format of the outputs, and notes meanwhile.

Any number of shards may share the parts of a file. It is cut into parts of a fixed number of lines, and shard i of n
predicts every nth of them, beginning with the ith. Parts do not depend on the number of shards, which may differ each
time a job is started again. Batches are formed within windows that parts are made of, so a part is the same to the last
digit whichever process computes it.
"""

import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TextIO

from antiphon.cli.options import load_run
from antiphon.exceptions import InputError
from antiphon.terminal import count_of, duration, one_line, print_note

if TYPE_CHECKING:
    from antiphon.api import Prediction, PredictOptions
    from antiphon.data.part_files import CutFile, PartFolder
    from antiphon.torch_free.readers import NumberedLines

_SHOWN = 5
_FIRST_AFTER = {True: 2.0, False: 20.0}
"""Seconds before the first note on progress, on a terminal or elsewhere."""
_EVERY = {True: 0.5, False: 60.0}
"""Seconds between notes on progress."""
_PAUSE, _LONGEST_BURST = 0.1, 1.0
"""Predictions come in bursts, one for each window of inputs: seconds of waiting that end one, and its longest time."""


@dataclass(frozen=True)
class PredictionJob:
    """A run, its lexicon and all options of a prediction."""

    run: Path
    lexicon: Path | None
    options: "PredictOptions"
    processes: int
    device: str
    threads: int | None
    settings: tuple[str, ...] = ()

    def predictions(
        self, lines: "NumberedLines", name: str, window: int | None = None
    ) -> "Generator[Prediction, None, None]":
        """The predictions for lines of the file ``name``, in order, by one process or several.

        Batches are formed within each ``window`` of lines.
        """
        from antiphon.api import load_planner
        from antiphon.api.workers import predict_in_processes

        one_process, options = self.processes == 1, self.options
        if one_process:
            model = load_run(self.run, self.device, self.threads, self.settings)
        else:
            model = load_planner(self.run, self.settings)
        lexicon = model.lexicon(self.lexicon or ())
        sources = model.read_sources(lines, name, options, lexicon)
        if one_process:
            return model.predict_lazily(sources, options, lexicon, window)
        return predict_in_processes(
            self.run,
            sources,
            processes=self.processes,
            options=options,
            lexicon=lexicon,
            device=self.device,
            threads=self.threads or 1,
            window=window,
            settings=self.settings,
        )


class OutputFormat(NamedTuple):
    """The format of predictions: JSON lines, lists of numbered outputs, or the best outputs."""

    as_json: bool
    as_list: bool

    @property
    def one_line_each(self) -> bool:
        """Whether every input has exactly one line."""
        return self.as_json or not self.as_list

    def write(self, line: int, prediction: "Prediction", file: TextIO | None = None) -> None:
        """Writes a JSON object, or one line for every output, or the best output; by default on standard output."""
        for text in prediction.lines(line, as_json=self.as_json, as_list=self.as_list):
            print(text, file=file)


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

    def follow(self, predictions: "Iterable[Prediction]") -> "Iterator[Prediction]":
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
    """Counts the source symbols that training never saw; of very many different ones, the rarest are forgotten."""

    def __init__(self, kept: int = 10_000) -> None:
        self.counts, self.inputs, self.total, self.kept = Counter[str](), 0, 0, kept

    def follow(self, predictions: "Iterable[Prediction]") -> "Iterator[Prediction]":
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
        return f"{symbols} in {inputs} that training never saw: {shown}{more}"


class Notes:
    """Counts unknown symbols, inputs that were found in a lexicon, and lists with less probability than asked for."""

    def __init__(self, lexicon: Path | None, cover: float | None) -> None:
        self.unknown, self.listed, self.short = UnknownSymbols(), 0, 0
        self.lexicon, self.cover = lexicon, cover

    def follow(self, predictions: "Iterable[Prediction]") -> "Iterator[Prediction]":
        """The same predictions, while they are counted."""
        for prediction in self.unknown.follow(predictions):
            self.listed += prediction.origin == "lexicon"
            self.short += self._is_short(prediction)
            yield prediction

    def _is_short(self, prediction: "Prediction") -> bool:
        from antiphon.torch_free.results import total_probability

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
    with file.open("rb") as content:
        return sum(block.count(b"\n") for block in iter(lambda: content.read(2**20), b""))


PART_LINES = 4096
"""Lines of a part by default: a multiple of the window, small enough to be lost, and few files for many lines."""


@dataclass(frozen=True)
class Shard:
    """Shard ``index`` of ``count``, counted from 1."""

    index: int
    count: int

    def parts(self, all_parts: int) -> range:
        """The parts that this shard predicts."""
        return range(self.index - 1, all_parts, self.count)


def parse_shard(text: str) -> Shard:
    """The shard that ``i/n`` names; without a text, all of the file."""
    from antiphon.torch_free.files import is_count

    index, _, count = (text or "1/1").partition("/")
    if not (is_count(index) and is_count(count) and int(count)):
        raise InputError(f"--shard {one_line(text)}: expected I/N such as 2/8, the second of eight shards")
    if not 1 <= int(index) <= int(count):
        raise InputError(
            f"--shard {text}: expected 1/{count} to {count}/{count}, shards are counted from 1; in a job array of "
            f"Slurm, --array=1-{count}"
        )
    return Shard(int(index), int(count))


def predict_shard(
    job: PredictionJob, output_format: OutputFormat, file: Path, shard: str, out: Path | None, part_lines: int | None
) -> None:
    """Writes the parts of a shard that are not in the folder yet."""
    from antiphon.data.part_files import cut_file

    mine = parse_shard(shard)
    if out is None:
        option = "--shard" if part_lines is None else "--part-lines"
        raise InputError(f"{option}: no --out, expected a folder for the parts")
    _check_parts(file, part_lines)
    cut = cut_file(file, part_lines or PART_LINES)
    folder = _start_folder(job, output_format, cut, out)
    missing = {*folder.missing()}
    parts = mine.parts(folder.count)
    _write_parts(job, output_format, cut, folder, [part for part in parts if part in missing])
    _note_missing(folder, len(parts), len(missing.intersection(parts)))


def _check_parts(file: Path, part_lines: int | None) -> None:
    """Refuses an input that can be read only once, and parts whose batches would depend on the shard."""
    from antiphon.torch_free.files import is_pipe
    from antiphon.torch_free.prediction import LINES_AT_ONCE

    if file == Path("-") or is_pipe(file):
        raise InputError(f"{file}: standard input or a pipe, expected a file, which every shard can read")
    if part_lines is not None and part_lines > LINES_AT_ONCE and part_lines % LINES_AT_ONCE:
        raise InputError(f"--part-lines {part_lines}: expected at most {LINES_AT_ONCE}, or a multiple of it")


def _start_folder(job: PredictionJob, output_format: OutputFormat, cut: "CutFile", out: Path) -> "PartFolder":
    """The folder of the parts; one with parts of another run, another file or other settings is refused."""
    from antiphon.data.part_files import PartFolder
    from antiphon.runs.copies import run_digest
    from antiphon.runs.run_folder import RunFolder
    from antiphon.storage.staging import digest_file

    options = {
        f"setting {name}": value for name, value in asdict(job.options).items() if name not in ("align", "prefix")
    }
    made_of = {
        "run": run_digest(RunFolder.open(job.run)),
        "input file": cut.sha256,
        "lexicon": None if job.lexicon is None else digest_file(job.lexicon).sha256,
        "setting format": "jsonl" if output_format.as_json else "text",
        "setting part-lines": cut.lines_per_part,
        **options,
        **({"--set": ", ".join(sorted(job.settings))} if job.settings else {}),
        "list of outputs": output_format.as_list,
    }
    suffix = "jsonl" if output_format.as_json else "txt"
    folder = PartFolder(
        out, len(cut.starts), cut.lines, cut.lines_per_part, suffix, output_format.one_line_each, made_of
    )
    folder.start()
    return folder


def _write_parts(
    job: PredictionJob, output_format: OutputFormat, cut: "CutFile", folder: "PartFolder", parts: Sequence[int]
) -> None:
    """Predicts the lines of some parts and writes each part, with notes on standard error."""
    from antiphon.torch_free.prediction import LINES_AT_ONCE

    if not parts:
        return
    notes = Notes(job.lexicon, job.options.cover)
    progress = Progress(sum(len(cut.line_numbers(part)) for part in parts))
    window = min(cut.lines_per_part, LINES_AT_ONCE)
    with closing(job.predictions(cut.read(parts), str(cut.path), window)) as predictions:
        followed = iter(progress.follow(notes.follow(predictions)))
        for part in parts:
            with folder.writing(part) as file:
                for line, prediction in zip(cut.line_numbers(part), followed, strict=False):
                    output_format.write(line, prediction, file)
    notes.print_summary()


def _note_missing(folder: "PartFolder", parts: int, written: int) -> None:
    left = len(folder.missing())
    done = f"{folder.path}: {count_of(written, 'part')} written, {parts - written:,} there before"
    print_note(
        f"{done}; {left:,} of {folder.count:,} missing" if left else f"{done}; all there: antiphon join {folder.path}"
    )
