"""Predictions for lines of text: with what they are made, and how they are written."""

from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TextIO

from antiphon.cli.loading import load_run

if TYPE_CHECKING:
    from antiphon.api import Prediction, PredictOptions
    from antiphon.data.readers import NumberedLines


@dataclass(frozen=True)
class PredictionJob:
    """What to predict with."""

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

        is_alone, options = self.processes == 1, self.options
        model = (
            load_run(self.run, self.device, self.threads, self.settings)
            if is_alone
            else load_planner(self.run, self.settings)
        )
        lexicon = model.lexicon(self.lexicon or ())
        sources = model.read_sources(lines, name, options, lexicon)
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
            settings=self.settings,
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
        for text in prediction.lines(line, as_json=self.as_json, as_list=self.as_list):
            print(text, file=file)
