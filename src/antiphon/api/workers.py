"""Predicts with several processes, each of which has loaded the run: the same outputs in the same order.

Batches are those that one process would form, so outputs are the same to the last digit; the next free process takes
the next batch. Only the worker processes load weights.

The pool is ``concurrent.futures``' own, with spawned processes. What it lacks is added here: workers end at once when
this process does, even by ``kill -9`` (``child_processes``), they never see Ctrl-C, which is for this process, and a
worker that dies is one sentence.
"""

import signal
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context, resource_tracker
from pathlib import Path
from typing import NamedTuple, Self

from antiphon.api import Lexicon, Model, Prediction, PredictOptions, SourceLike, load, load_planner
from antiphon.child_processes import start_worker
from antiphon.device import choose_device, visible_gpus
from antiphon.exceptions import AntiphonError, RunError
from antiphon.storage.files import Entry, FileState, known_digests, trust_digests
from antiphon.torch_free.readers import Source


@dataclass(frozen=True)
class Job:
    """What a worker process needs to predict: which run to load, how, and the options of the prediction."""

    run: Path
    device: str
    threads: int
    options: PredictOptions
    settings: tuple[str, ...] = ()
    digests: tuple[tuple[FileState, Entry], ...] = ()
    """Files that this process has verified, which workers do not read again to verify them."""


def predict_in_processes(
    run: str | Path,
    sources: Iterable[SourceLike],
    *,
    processes: int,
    options: PredictOptions | None = None,
    lexicon: Lexicon | None = None,
    device: str = "auto",
    threads: int = 1,
    settings: Sequence[str] = (),
) -> Generator[Prediction, None, None]:
    """Predictions in order, with only some thousand inputs in memory.

    ``settings`` such as ``search.beam=20`` change the search of the run. Every process has ``threads`` threads and, if
    there are GPUs, one of them. Processes are spawned, so a script must call this under
    ``if __name__ == "__main__":``.
    """
    model = load_planner(run, settings)
    where = choose_device(device)
    job = Job(Path(run), where, threads, options or PredictOptions(), tuple(settings), known_digests())
    model.check_can_predict()
    planner = _Planner(model, lexicon or Lexicon(model.codec))
    with Workers(job, processes) as workers:
        yield from _predict(planner, workers, model.windows(sources, job.options, planner.lexicon))


class Workers:
    """A pool of processes that predict batches until the end of a ``with`` block, or of this process."""

    def __init__(self, job: Job, processes: int) -> None:
        context = get_context("spawn")
        self.job = job
        self._reading, self._writing = context.Pipe(duplex=False)
        arguments = self._reading, context.Value("i", 0), visible_gpus() if job.device == "cuda" else []
        self._pool = ProcessPoolExecutor(processes, context, initializer=start_worker, initargs=arguments)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._writing.close()  # ends them, busy or not
        self._pool.shutdown(cancel_futures=True)
        self._reading.close()

    def submit(self, batch: Sequence[Source]) -> "Future[list[Prediction]]":
        """The future predictions of a batch."""
        with _ctrl_c_blocked():
            return self._pool.submit(predict_batch, self.job, batch)


def predict_batch(job: Job, batch: Sequence[Source]) -> list[Prediction]:
    """The predictions of a batch by the model of this process."""
    return _model(job).predict_batch(batch, job.options)


@cache
def _model(job: Job) -> Model:
    trust_digests(job.digests)
    return load(job.run, device=job.device, threads=job.threads, settings=job.settings)


class _Planner(NamedTuple):
    """Forms batches and completes predictions in this process: a model without weights, and the lexicon."""

    model: Model
    lexicon: Lexicon


class _Window(NamedTuple):
    """Inputs in progress, and the future predictions of each of their batches by the indices of its inputs."""

    sources: list[Source]
    batches: list[tuple[list[int], "Future[list[Prediction]]"]]

    @classmethod
    def send(cls, sources: list[Source], planner: _Planner, workers: Workers) -> "_Window":
        plan = planner.model.plan(sources, planner.lexicon)
        return cls(sources, [(indices, workers.submit([sources[index] for index in indices])) for indices in plan])

    def receive(self, planner: _Planner) -> Iterator[Prediction]:
        found: dict[int, Prediction] = {}
        for indices, predictions in self.batches:
            found.update(zip(indices, _result(predictions), strict=True))
        return planner.model.fill_blank_inputs(self.sources, found, planner.lexicon)


def _result(predictions: "Future[list[Prediction]]") -> list[Prediction]:
    try:
        return predictions.result()
    except BrokenProcessPool:
        raise RunError(
            "--processes: a process died, expected all of them to finish; if memory is short, use fewer processes"
        ) from None


def _predict(planner: _Planner, workers: Workers, ahead: Iterator[list[Source]]) -> Iterator[Prediction]:
    """Predictions in order; the next window of inputs is already submitted while waiting."""
    current = _Window.send(next(ahead, []), planner, workers)
    while current.sources:
        try:
            following = _Window.send(next(ahead, []), planner, workers)
        except AntiphonError:  # an invalid input does not affect those before it
            yield from current.receive(planner)
            raise
        yield from current.receive(planner)
        current = following


@contextmanager
def _ctrl_c_blocked() -> Iterator[None]:
    """Processes started inside ignore Ctrl-C; the parent handles it and ends them."""
    resource_tracker.ensure_running()  # started with the first process, it would undo the mask
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
