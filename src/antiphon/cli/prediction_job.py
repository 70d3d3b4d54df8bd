"""Predictions for lines of text: with what they are made, and how they are written."""

import json
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TextIO

from antiphon.cli.loading import load_run

if TYPE_CHECKING:
    from antiphon.api import Prediction, PredictOptions
    from antiphon.data.readers import Source
    from antiphon.recipe.schema import DataSection

NumberedLines = Iterable[tuple[int, str]]
"""Lines of text with their numbers in a file."""


@dataclass(frozen=True)
class PredictionJob:
    """What to predict with."""

    run: Path
    lexicon: Path | None
    options: "PredictOptions"
    processes: int
    device: str
    threads: int | None

    def predictions(
        self, lines: NumberedLines, name: str, window: int | None = None
    ) -> "Generator[Prediction, None, None]":
        """The predictions for lines of the file ``name``, in order, by one process or several.

        Batches are formed within each ``window`` of lines.
        """
        from antiphon.api import load_planner
        from antiphon.api.workers import predict_in_processes

        is_alone, options = self.processes == 1, self.options
        model = load_run(self.run, self.device, self.threads) if is_alone else load_planner(self.run)
        lexicon = model.lexicon(self.lexicon or ())
        sources = read_sources(
            lines, name, model.recipe.data, lambda source, where: model.check_source(source, where, options, lexicon)
        )
        if is_alone:
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
        )


class Style(NamedTuple):
    """How predictions are written: JSON lines, lists of numbered outputs, or the best outputs."""

    as_json: bool
    as_list: bool

    @property
    def one_line_each(self) -> bool:
        """Whether every input has exactly one line."""
        return self.as_json or not self.as_list

    def show(self, line: int, prediction: "Prediction", file: TextIO | None = None) -> None:
        """Prints a JSON object, or one line for every output, or the best output; by default on standard output."""
        if self.as_json:
            print(json.dumps(prediction.to_dict(), ensure_ascii=False), file=file)
        elif not self.as_list:
            print(prediction.text or "", file=file)
        for candidate in prediction.nbest if self.as_list and not self.as_json else ():
            probability = "" if candidate.probability is None else f"{candidate.probability:.6g}"
            print(line, probability, candidate.text, sep="\t", file=file)


def numbered_lines(file: Path) -> tuple[NumberedLines, str]:
    """The lines of a file, or of standard input, with their numbers; and its name in messages."""
    from antiphon.data.files import STANDARD_INPUT, read_lines, read_standard_input

    if file == Path("-"):
        return enumerate(read_standard_input(), 1), STANDARD_INPUT
    return enumerate(read_lines(file), 1), str(file)


def read_sources(
    lines: NumberedLines, name: str, data: "DataSection", check: "Callable[[Source, str], None]"
) -> "Iterator[Source]":
    """The inputs on lines of the file ``name``; ``check`` is called with each one and its line."""
    from antiphon.data.readers import parse_source

    for number, line in lines:
        source = parse_source(line, f"{name}:{number}", features=bool(data.features), swap=data.swap)
        check(source, f"{name}:{number}")
        yield source
