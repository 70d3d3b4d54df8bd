"""The training end of the connection between a search of settings (``antiphon grid``) and one of its trials."""

import os
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import NamedTuple

from torch import nn

from antiphon.training.callback import Callback
from antiphon.training.history import History

TRIAL_VARIABLE = "ANTIPHON_TRIAL"
"""Environment variable with the descriptor of the connection."""


class EpochReport(NamedTuple):
    """An epoch of a trial: its dev metric, and the seconds of training so far."""

    epoch: int
    max_epochs: int
    value: float
    seconds: float


class TrialReport(Callback):
    """Reports every epoch, also those before a resume, and stops training like Ctrl-C if it is told to."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._max_epochs, self._metric, self._seconds = 0, "", 0.0

    def on_train_begin(self, history: History, max_epochs: int) -> None:
        """Reports the epochs before a resume."""
        self._max_epochs, self._metric = max_epochs, f"dev_{history.metric}"
        for row in history.rows:
            self._report(row)

    def on_epoch_end(self, epoch: int, metrics: Mapping[str, float], model: nn.Module) -> None:
        """Reports an epoch."""
        self._report(metrics)

    def _report(self, row: Mapping[str, float]) -> None:
        self._seconds += row["seconds"]
        self._connection.send(EpochReport(int(row["epoch"]), self._max_epochs, row[self._metric], self._seconds))
        if not self._connection.recv():
            raise KeyboardInterrupt


def trial_callbacks() -> list[Callback]:
    """The callback that reports to the search that has started this process, if one has."""
    descriptor = os.environ.pop(TRIAL_VARIABLE, "")
    return [TrialReport(Connection(int(descriptor)))] if descriptor.isdecimal() else []
