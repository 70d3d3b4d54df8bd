"""Large files in parts: an input cut into parts of a fixed number of lines, and a folder with a file of outputs each.

The parts of one job are written by any number of processes on any number of machines. ``parts.json`` says what they are
made of, so that parts of two jobs are never mixed. A part is written under another name and renamed once it is whole
and synced: an existing part is complete. Temporary files of a part are removed only once it is there; whether another
machine still writes one cannot be seen on every shared disk.
"""

import hashlib
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from antiphon.exceptions import InputError, is_disk_full
from antiphon.storage.atomic import locked, sync_path, write_atomically
from antiphon.storage.staging import parse_sealed, render_sealed
from antiphon.torch_free.files import decode_lines, named_errors, open_file

DESCRIPTION = "parts.json"
_FORMAT = 1
_BLOCK = 2**20
_LINE_END = 10
_SHOWN = 5


@dataclass(frozen=True)
class CutFile:
    """Where the parts of a file begin, in bytes of its unpacked contents, and what identifies these."""

    path: Path
    lines_per_part: int
    starts: tuple[int, ...]
    lines: int
    bytes: int
    sha256: str

    def line_numbers(self, part: int) -> range:
        """The numbers of the lines of a part, from 1."""
        first = part * self.lines_per_part + 1
        return range(first, min(first + self.lines_per_part, self.lines + 1))

    def read(self, parts: Iterable[int]) -> Iterator[tuple[int, str]]:
        """Every line of some parts, which are in ascending order, with its number."""
        with named_errors(self.path), open_file(self.path) as file:
            for part in parts:
                file.seek(self.starts[part])
                numbers = self.line_numbers(part)
                lines = decode_lines(file, str(self.path), numbers.start)
                yield from zip(numbers, islice(lines, len(numbers)), strict=True)


def cut_file(path: Path, lines_per_part: int) -> CutFile:
    """The parts of a file, which is read once, block by block."""
    digest, starts, lines, size, last = hashlib.sha256(), [0], 0, 0, b""
    with named_errors(path), open_file(path) as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            ends = np.flatnonzero(np.frombuffer(block, np.uint8) == _LINE_END)
            first = -(lines + 1) % lines_per_part  # index of the first line end at which a part ends
            starts += (size + 1 + ends[first::lines_per_part]).tolist()
            lines, size, last = lines + len(ends), size + len(block), block[-1:]
    lines += bool(last.strip(b"\n"))
    parts = -(-lines // lines_per_part)
    return CutFile(path, lines_per_part, tuple(starts[:parts]), lines, size, digest.hexdigest())


@dataclass(frozen=True)
class PartFolder:
    """A folder of ``count`` parts with the outputs for ``lines`` inputs, ``lines_per_part`` for each part.

    ``one_line_each`` is whether every input has exactly one line of output. ``made_of`` are digests and settings.
    """

    path: Path
    count: int
    lines: int
    lines_per_part: int
    suffix: str
    one_line_each: bool
    made_of: Mapping[str, Any]

    def start(self) -> None:
        """Creates the folder, or finds that it has parts of the same job; other parts are refused."""
        description = self.path / DESCRIPTION
        with locked(self.path, wait=True):
            if description.exists():
                self._refuse_difference(PartFolder.open(self.path))
            elif any(self.path.glob("part-*")):
                raise InputError(f"{self.path}: parts in it but no {DESCRIPTION}, expected a new folder")
            else:
                own = {name: value for name, value in asdict(self).items() if name != "path"}
                write_atomically(description, render_sealed({"format": _FORMAT, **own}))

    @classmethod
    def open(cls, path: Path) -> "PartFolder":
        """The folder that ``start`` has made."""
        about = _read(path)
        try:
            return cls(path, **{name: value for name, value in about.items() if name not in ("format", "sha256")})
        except TypeError as error:
            raise InputError(f"{path / DESCRIPTION}: damaged ({error}), expected what antiphon wrote") from None

    def _refuse_difference(self, theirs: "PartFolder") -> None:
        """Refuses a folder whose parts are made of something else, and says of what."""
        for name in dict.fromkeys([*self.made_of, *theirs.made_of]):
            value, found = self.made_of.get(name), theirs.made_of.get(name)
            if found != value:
                shown = "" if len(str(found)) > 20 else f" ({_as_text(found)}, not {_as_text(value)})"
                raise InputError(
                    f"{self.path}: parts of another {name}{shown}, expected those of this command; choose another --out"
                )
        if theirs != self:
            raise InputError(f"{self.path}: parts of another size, expected this command's; choose another --out")

    def file(self, part: int) -> Path:
        """The file of a part, whose name counts from 1."""
        return self.path / f"part-{part + 1:06}.{self.suffix}"

    def missing(self) -> list[int]:
        """The parts that are not there."""
        there = {path.name for path in self.path.iterdir()}
        return [part for part in range(self.count) if self.file(part).name not in there]

    @contextmanager
    def writing(self, part: int) -> Iterator[TextIO]:
        """A new file that becomes the part at the end of the block, unless an error leaves it."""
        final = self.file(part)
        temporary = self.path / f".{final.name}-{secrets.token_hex(8)}"
        try:
            with temporary.open("x", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            self._publish(temporary, final)
        except BaseException as error:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            if isinstance(error, OSError) and error.filename is None and is_disk_full(error):
                error.filename = str(final)
            raise

    def _publish(self, temporary: Path, final: Path) -> None:
        """Renames a whole part, and removes what killed processes have left of it."""
        try:
            temporary.replace(final)
        except FileNotFoundError:  # another process has finished the same part, and removed this file
            if not final.exists():
                raise
        sync_path(self.path)
        for left in self.path.glob(f".{final.name}-*"):
            left.unlink(missing_ok=True)

    def refuse_missing(self) -> None:
        """Refuses a folder in which parts are missing, and names them."""
        missing = self.missing()
        if missing:
            shown = ", ".join(self.file(part).name for part in missing[:_SHOWN]) + ", ..." * (len(missing) > _SHOWN)
            raise InputError(
                f"{self.path}: {len(missing):,} of {self.count:,} parts missing ({shown}), expected all of them; "
                "start every shard again, existing parts are skipped"
            )

    def chunks(self) -> Iterator[str]:
        """The text of all parts in the order of the inputs; a part with too few or too many lines is refused."""
        for part in range(self.count):
            found = 0
            with self.file(part).open(encoding="utf-8", newline="") as file:
                while chunk := file.read(_BLOCK):
                    found += chunk.count("\n")
                    yield chunk
            expected = min(self.lines_per_part, self.lines - part * self.lines_per_part)
            if self.one_line_each and found != expected:
                raise InputError(
                    f"{self.file(part)}: {found:,} lines, expected {expected:,}; delete it and start its shard again"
                )


def _read(folder: Path) -> dict[str, Any]:
    path = folder / DESCRIPTION
    try:
        about = parse_sealed(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{folder}: no {DESCRIPTION} in it, expected a folder of antiphon predict --out") from None
    except ValueError as error:
        raise InputError(f"{path}: damaged ({error}), expected what antiphon wrote") from None
    if about.get("format") != _FORMAT:
        raise InputError(
            f"{path}: format {about.get('format')!r}, expected {_FORMAT}; install the antiphon of the parts"
        )
    return about


def _as_text(value: object) -> str:
    return "none" if value is None else str(value)
