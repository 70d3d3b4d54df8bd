"""Batch prediction on an existing engine: one picklable callable for Ray Data, Spark, and whatever maps batches.

    predictor = Predictor("runs/g2p", nbest=3)
    dataset.map_batches(predictor)                 # Ray Data: mappings of arrays, pandas or Arrow
    frame.mapInPandas(predictor, schema)           # Spark: an iterator of pandas frames

The callable holds the path of a run and options, no weights. Every process that it is sent to loads the run once, when
its first batch arrives, and refuses a run that is not the one the job was started with. A row is answered on its own,
so batches may come in any order, and again.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from antiphon.api.model import Model, load
from antiphon.device import choose_device
from antiphon.exceptions import RunError
from antiphon.recipe.kinds import KINDS
from antiphon.runs.combined_runs import run_digest
from antiphon.runs.run_folder import RunFolder
from antiphon.torch_free.frames import Columns, predict_frame
from antiphon.torch_free.inputs import PredictOptions, as_path, check_threads
from antiphon.torch_free.prediction import cannot


class Predictor:
    """Adds the outputs of a run to frames: the columns ``prediction`` and ``probability``, with ``prefix`` before them.

    ``source`` and ``features`` name the columns that are read; other columns are kept. With ``nbest`` above 1, or
    ``cover``, the columns ``nbest`` and ``nbest_probability`` hold lists. Options are those of ``Model.predict``. The
    run must be at the same path on every machine. ``threads`` are those of each process.
    """

    def __init__(
        self,
        run: str | Path,
        *,
        source: str = "source",
        features: str | None = None,
        prefix: str = "",
        beam: int | None = None,
        nbest: int | None = None,
        cover: float | None = None,
        allow_unknown_features: bool = False,
        device: str = "auto",
        threads: int = 1,
    ) -> None:
        check_threads(threads)
        self.run, self.device, self.threads = as_path("run", run).absolute(), device, threads
        self.columns = Columns(source, features, prefix)
        self.options = PredictOptions(beam, nbest, cover, align=False, allow_unknown_features=allow_unknown_features)
        folder = RunFolder.open(self.run)
        kind = KINDS[folder.recipe().model.kind]
        if not kind.predicts:
            raise cannot(kind.name, "predict", "a model that maps a source to a target")
        self.digest = run_digest(folder)

    def __call__(self, batch: Any) -> Any:
        """The batch with the outputs; of an iterator of batches, an iterator."""
        return map(self._predict, batch) if isinstance(batch, Iterator) else self._predict(batch)

    def _predict(self, batch: Any) -> Any:
        model = _load_once(self.run, self.digest, choose_device(self.device), self.threads)
        return predict_frame(model, batch, self.columns, self.options)


@cache
def _load_once(run: Path, digest: str, device: str, threads: int) -> Model:
    """The model of a run in this process; a run with another digest is refused."""
    if run_digest(RunFolder.open(run)) != digest:
        raise RunError(f"{run}: not the run that the job was started with, expected the same on every machine")
    return load(run, device=device, threads=threads)
