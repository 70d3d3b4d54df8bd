"""Prediction by several processes, each of which holds the run: the same outputs in the same order.

Batches of inputs are those that one process would form, so that outputs are the same to the last digit; whichever
process is free takes the next batch.
"""

import signal
import traceback
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Self

import torch

from antiphon.api import Model, Prediction, SourceLike, load
from antiphon.data.readers import Source
from antiphon.device import choose_device
from antiphon.errors import AntiphonError, RunError


@dataclass(frozen=True)
class Job:
    """What every process does: load a run, and answer with it."""

    run: Path
    device: str
    threads: int
    beam: int | None
    nbest: int


def predict_in_processes(
    run: str | Path,
    sources: Iterable[SourceLike],
    *,
    processes: int,
    beam: int | None = None,
    nbest: int = 1,
    device: str = "auto",
    threads: int = 1,
) -> Generator[Prediction, None, None]:
    """Predictions one by one and in order, while only some thousand inputs are held in memory.

    Every process has so many ``threads``, and where there are GPUs, one of them in turn. Processes start anew, so a
    script that calls this does so under ``if __name__ == "__main__":``.
    """
    job = Job(Path(run), choose_device(device), threads, beam, nbest)
    model = load(run, device="cpu")
    model.check_answers()
    with Workers(job, processes) as workers:
        yield from _predict(model, workers, model.windows(sources))


class Worker:
    """A process that answers one batch after another."""

    def __init__(self, job: Job, number: int) -> None:
        context = get_context("spawn")
        self.connection, its_end = context.Pipe()
        self.process = context.Process(target=_serve, args=(its_end, job, number), daemon=True)
        self.process.start()
        its_end.close()
        self.is_loaded = False

    def answer(self, batch: Sequence[Source]) -> list[Prediction]:
        """The predictions of a batch; an error of the process is raised here."""
        if not self.is_loaded:
            self._hear()
            self.is_loaded = True
        self.connection.send(batch)
        return self._hear()

    def _hear(self) -> list[Prediction]:
        try:
            said: list[Prediction] | Exception = self.connection.recv()
        except (EOFError, ConnectionError):
            self.process.join()
            raise RunError(
                f"--processes: one of them ended with status {self.process.exitcode}, expected all to go on; "
                "where memory is short, use fewer"
            ) from None
        if isinstance(said, Exception):
            raise said
        return said


class Workers:
    """Processes that answer batches until the end of a ``with`` block."""

    def __init__(self, job: Job, number: int) -> None:
        with _deaf_to_ctrl_c():
            self._workers = [Worker(job, place) for place in range(number)]
        self._free: SimpleQueue[Worker] = SimpleQueue()
        for worker in self._workers:
            self._free.put(worker)
        self._threads = ThreadPoolExecutor(number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.process.kill()
        self._threads.shutdown(cancel_futures=True)

    def answer(self, batch: Sequence[Source]) -> "Future[list[Prediction]]":
        """The predictions of a batch, as soon as a process has had time for it."""
        return self._threads.submit(self._answer, batch)

    def _answer(self, batch: Sequence[Source]) -> list[Prediction]:
        worker = self._free.get()
        try:
            return worker.answer(batch)
        finally:
            self._free.put(worker)


@dataclass(frozen=True)
class _Window:
    """Inputs that are being answered."""

    sources: list[Source]
    answers: list[tuple[list[int], "Future[list[Prediction]]"]]

    @classmethod
    def send(cls, sources: list[Source], model: Model, workers: Workers) -> "_Window":
        return cls(
            sources,
            [(numbers, workers.answer([sources[n] for n in numbers])) for numbers in model.plan(sources)],
        )

    def receive(self, model: Model) -> Iterator[Prediction]:
        found: dict[int, Prediction] = {}
        for numbers, answers in self.answers:
            found.update(zip(numbers, answers.result(), strict=True))
        return model.complete(self.sources, found)


def _predict(model: Model, workers: Workers, ahead: Iterator[list[Source]]) -> Iterator[Prediction]:
    """Predictions in order; while some are waited for, the inputs of the next window are on their way already."""
    current = _Window.send(next(ahead, []), model, workers)
    while current.sources:
        try:
            following = _Window.send(next(ahead, []), model, workers)
        except AntiphonError:  # an input that is wrong takes nothing away from those before it
            yield from current.receive(model)
            raise
        yield from current.receive(model)
        current = following


def _serve(connection: Connection, job: Job, number: int) -> None:
    """The life of a process: load the run, then a batch in, its predictions or an error out, until nobody asks."""
    try:
        if job.device == "cuda":
            torch.cuda.set_device(number % torch.cuda.device_count())
        model = load(job.run, device=job.device, threads=job.threads)
        connection.send([])
        while True:
            connection.send(model.answer(connection.recv(), beam=job.beam, nbest=job.nbest))
    except EOFError:
        return
    except Exception as error:
        if not isinstance(error, AntiphonError):
            error.add_note(traceback.format_exc())
        connection.send(error)


@contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """Processes started inside never hear of Ctrl-C, which is for the one that started them and ends them."""
    resource_tracker.ensure_running()  # if it started along with the first process, it would undo the mask
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
