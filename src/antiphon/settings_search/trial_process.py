"""The processes that train the trials of a search: each reports its epochs, and all of them can be stopped."""

import json
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from tempfile import TemporaryFile
from threading import Event, Lock
from typing import IO, NamedTuple

from antiphon.settings_search.trial_report import GO_ON, SOCKET_VARIABLE, STOP, EpochReport

_LONGEST_MESSAGE = 4096


class ProcessResult(NamedTuple):
    """The exit status of a process, negative for the signal that killed it, and its last message."""

    status: int
    message: str


class TrialProcesses:
    """The processes of a search: all of them can be stopped, and none is started after that."""

    def __init__(self, parent_pipe: int, environment: Mapping[str, str]) -> None:
        self._parent_pipe, self._environment = parent_pipe, environment
        self._running: list[subprocess.Popen[bytes]] = []
        self._lock, self._stopped = Lock(), Event()

    @property
    def are_stopped(self) -> bool:
        """Whether ``stop`` was called."""
        return self._stopped.is_set()

    def wait(self, seconds: float) -> None:
        """Waits, but not longer than until ``stop`` is called."""
        self._stopped.wait(seconds)

    def run(
        self, command: Sequence[str], environment: Mapping[str, str], goes_on: Callable[[EpochReport], bool]
    ) -> ProcessResult | None:
        """How a training ended; ``goes_on`` says after each epoch whether it goes on. None if it was not started."""
        ours, theirs = socket.socketpair()
        with ours, TemporaryFile() as messages:
            with theirs, self._lock:
                if self.are_stopped:
                    return None
                process = self._start(command, environment, theirs.fileno(), messages)
                self._running.append(process)
            _answer(ours, goes_on)
            return ProcessResult(process.wait(), _last_line(messages))

    def stop(self, signal_: signal.Signals) -> None:
        """Sends a signal to all running processes."""
        with self._lock:
            self._stopped.set()
            for process in self._running:
                process.send_signal(signal_)

    def _start(
        self, command: Sequence[str], environment: Mapping[str, str], descriptor: int, messages: IO[bytes]
    ) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=messages,
            pass_fds=(self._parent_pipe, descriptor),
            env={**self._environment, **environment, SOCKET_VARIABLE: str(descriptor)},
            start_new_session=True,  # Ctrl-C reaches only this process, which passes it on once
        )


def _answer(connection: socket.socket, goes_on: Callable[[EpochReport], bool]) -> None:
    """Answers every epoch that is reported, until the process ends."""
    with suppress(BrokenPipeError, ConnectionResetError), connection.makefile("rwb") as file:
        for line in file:
            if line.endswith(b"\n"):  # else it was killed within the line
                file.write(GO_ON if goes_on(EpochReport(*json.loads(line))) else STOP)
                file.flush()


def _last_line(messages: IO[bytes]) -> str:
    end = messages.seek(0, 2)
    messages.seek(max(0, end - _LONGEST_MESSAGE))
    lines = messages.read().decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "no message")
