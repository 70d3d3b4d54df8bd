"""The training end of a trial's connection to its search: it reports every epoch, and is told whether to go on."""

import json
import os
import socket
from collections.abc import Mapping
from typing import NamedTuple

from torch import nn

from antiphon.training.callback import Callback
from antiphon.training.history import History

SOCKET_VARIABLE = "ANTIPHON_TRIAL_SOCKET"
"""Environment variable with the descriptor of the socket."""
GO_ON, STOP = b"go on\n", b"stop\n"


class EpochReport(NamedTuple):
    """An epoch of a trial: its dev metric, and the seconds of training so far."""

    epoch: int
    max_epochs: int
    value: float
    seconds: float


class TrialReport(Callback):
    """Reports every epoch, also those before a resume, and stops training like Ctrl-C if it is told to."""

    def __init__(self, connection: socket.socket) -> None:
        self._file = connection.makefile("rwb")
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
        epoch = EpochReport(int(row["epoch"]), self._max_epochs, row[self._metric], self._seconds)
        self._file.write(json.dumps(epoch).encode() + b"\n")
        self._file.flush()
        if self._file.readline() != GO_ON:
            raise KeyboardInterrupt


def trial_callbacks() -> list[Callback]:
    """The callback that reports to the search that has started this process, if one has."""
    descriptor = os.environ.pop(SOCKET_VARIABLE, "")
    return [TrialReport(socket.socket(fileno=int(descriptor)))] if descriptor.isdecimal() else []
