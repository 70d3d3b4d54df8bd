"""A prediction job: the run and options that predict lines of text, and the format of the outputs."""

from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TextIO

from antiphon.cli.loading import load_run

if TYPE_CHECKING:
    from antiphon.api import Prediction, PredictOptions
    from antiphon.torch_free.readers import NumberedLines


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
