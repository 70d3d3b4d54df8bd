"""The journal of a search: a file on a disk that processes of several machines may share, and a lock beside it.

Optuna's own file backend waits half a minute for the lock of a process that was killed, and cannot be read
once one was killed while it wrote a line. Here a lock that a process of this machine has left behind is recognised at
once, and half a line is cut off before the next is written.
"""

import json
import os
import socket
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

from optuna.storages.journal import JournalFileBackend

from antiphon.storage.atomic import lock_descriptor

_STALE_LOCK_SECONDS = 30.0
"""How long a process of another machine may hold a lock; it is held for a moment only."""
_RETRY_SECONDS = 0.02


@cache
def machine() -> str:
    """A name of this machine since it was started; containers on it share the name, and file locks."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return boot.read_text().strip() if boot.exists() else socket.gethostname()


def locks_work(path: Path) -> bool:
    """Whether this machine can lock a file of that disk; one that is locked already can be locked again if not."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return not lock_descriptor(descriptor)
    finally:
        os.close(descriptor)


class SharedLock:
    """A lock between threads, processes and machines: a file lock, and a symbolic link that works on every disk.

    The link names the machine. The file lock ends with its process: who has it, and still finds a link of this
    machine, knows that its owner was killed.
    """

    def __init__(self, path: Path, link: Path) -> None:
        self._path, self._link = path, link
        self._threads, self._descriptor = Lock(), -1

    def __enter__(self) -> None:
        self._threads.acquire()
        try:
            self._descriptor = os.open(self._path, os.O_RDONLY)
            lock_descriptor(self._descriptor, wait=True)
            self._make_link()
        except BaseException:
            self._release()
            raise

    def __exit__(self, *_: object) -> None:
        with suppress(FileNotFoundError):  # broken by a process that has waited too long
            self._link.unlink()
        self._release()

    def _release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1
        self._threads.release()

    def _make_link(self) -> None:
        seen, since = (0, 0), time.monotonic()
        while True:
            with suppress(FileExistsError):
                self._link.symlink_to(machine())
                return
            with suppress(FileNotFoundError):
                found = self._link.lstat()
                if (found.st_ino, found.st_mtime_ns) != seen:
                    seen, since = (found.st_ino, found.st_mtime_ns), time.monotonic()
                is_late = time.monotonic() - since > _STALE_LOCK_SECONDS
                if is_late or (str(self._link.readlink()) == machine() and locks_work(self._path)):
                    self._link.unlink()
                    continue
            time.sleep(_RETRY_SECONDS)


class Journal(JournalFileBackend):
    """Optuna's journal in a file, which stays readable whenever a process that writes it is killed."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self._path, self._shared_lock = path, SharedLock(path, path.with_name(f"{path.name}.lock"))

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Appends entries, a line each, after the last whole line."""
        lines = "".join(json.dumps(log, separators=(",", ":")) + "\n" for log in logs).encode()
        with self._shared_lock, self._path.open("r+b") as file:
            file.seek(_end_of_last_line(self._path))
            file.truncate()
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())


def _end_of_last_line(path: Path) -> int:
    """The number of bytes up to the end of the last whole line."""
    with path.open("rb") as file:
        position = file.seek(0, os.SEEK_END)
        while position > 0:
            start = max(0, position - 4096)
            file.seek(start)
            found = file.read(position - start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            position = start
    return 0
