"""Which processes of a search are alive: each has a file that it locks, and touches as a heartbeat, until it ends.

The system releases the lock however a process of the same machine ends. Locks of other machines are not visible on
every shared disk, so for them the heartbeat counts; times are those of the disk, since clocks may differ.
"""

import os
import re
import secrets
import socket
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

from antiphon.settings_search.shared_journal import locks_work, machine
from antiphon.storage.atomic import lock_descriptor

_NAME = re.compile(r"[\w.-]+-\d+-[0-9a-f]{8}")
"""Names of these files, unlikely to be a user's."""
_HEARTBEAT_SECONDS = 5.0
_HEARTBEAT_TIMEOUT = 60.0
"""A process of another machine that has not touched its file for this long is considered dead."""


class SearchWorker:
    """This process among those of a search, which have their files in ``folder``."""

    def __init__(self, folder: Path) -> None:
        host = re.sub(r"[^\w.-]", "_", socket.gethostname())
        self.name = f"{host or 'host'}-{os.getpid()}-{secrets.token_hex(4)}"
        self._folder, self._file = folder, folder / self.name
        self._ends = Event()
        self._heartbeat = Thread(target=self._beat, daemon=True)
        self._descriptor = -1

    def start(self) -> None:
        """Makes the file of this process, and removes those of dead ones."""
        self._folder.mkdir(exist_ok=True)
        self._descriptor = os.open(self._file, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)
        lock_descriptor(self._descriptor)
        os.write(self._descriptor, machine().encode())
        self._heartbeat.start()
        for path in self._folder.iterdir():
            if _NAME.fullmatch(path.name) and not self.is_alive(path.name):
                path.unlink(missing_ok=True)

    def end(self) -> None:
        """Removes the file of this process."""
        self._ends.set()
        if self._descriptor >= 0:
            self._heartbeat.join()
            os.close(self._descriptor)
            self._descriptor = -1
            self._file.unlink(missing_ok=True)
        with suppress(OSError):  # not empty
            self._folder.rmdir()

    def is_alive(self, name: str) -> bool:
        """Whether the process of that name is at work."""
        if name == self.name:
            return True
        if not _NAME.fullmatch(name):
            return False
        try:
            descriptor = os.open(self._folder / name, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:
            return False
        try:
            if not lock_descriptor(descriptor):
                return True
            is_of_this_machine = os.read(descriptor, 256).decode(errors="replace") == machine()
            if is_of_this_machine and locks_work(self._file):
                return False
            os.utime(self._file)
            return self._file.stat().st_mtime - os.fstat(descriptor).st_mtime < _HEARTBEAT_TIMEOUT
        finally:
            os.close(descriptor)

    def _beat(self) -> None:
        while not self._ends.wait(_HEARTBEAT_SECONDS):
            with suppress(OSError):  # a disk that is away for a moment
                os.utime(self._file)
