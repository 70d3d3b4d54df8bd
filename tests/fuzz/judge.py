"""Runs a case in this process and says what is wrong with how it ended."""

import contextlib
import hashlib
import io
import os
import re
import resource
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

PROCESSOR_SECONDS, WALL_SECONDS = 30, 240
"""What a case may take: the second is for those that wait, on a machine that may be busy with other things."""
_LONG = 2000
"""Bytes of a line whose search may take longer, since its time grows with the square: it is stopped as by Ctrl-C."""
MEBIBYTES = 1200
"""Growth of the largest resident size of this process during one case."""
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@dataclass
class Case:
    """A command; ``may_change`` are paths that it writes if it does well, ``lines`` how many it should answer."""

    area: str
    arguments: list[str]
    stdin: bytes = b""
    may_change: list[Path] = field(default_factory=list)
    lines: int | None = None

    def __str__(self) -> str:
        shown = " ".join(repr(argument[:120]) for argument in self.arguments)
        return f"[{self.area}] {shown}" + (f" < {self.stdin[:200]!r}" if self.stdin else "")


@dataclass
class Verdict:
    """How a case ended; ``faults`` is empty if it ended well."""

    status: int | str
    faults: list[str]
    seconds: float
    said: str


def judge(case: Case, folders: list[Path]) -> Verdict:
    """Runs the case; the folders hold what must stay as it is."""
    before = snapshot(folders)
    memory = peak_memory()
    started = time.process_time()
    status, out, err, trace = run(case)
    seconds = time.process_time() - started
    faults = [*faults_of_status(status, err, trace), *faults_of_text(err, out, status)]
    if (grown := peak_memory() - memory) > MEBIBYTES:
        faults.append(f"memory grew by {grown:.0f} MiB")
    may_write = status in (0, 1) or "nothing was trained" in err.replace("\n", " ")  # a run that --force replaces
    faults += faults_of_files(case, before, snapshot(folders), may_write)
    if status == 0 and case.lines is not None and out.count("\n") != case.lines:
        faults.append(f"{out.count(chr(10))} lines for {case.lines} inputs")
    return Verdict(status, faults, seconds, trace or err[-2000:])


def run(case: Case) -> tuple[int | str, str, str, str]:
    """Exit status, both outputs, and the traceback of what was not caught."""
    from antiphon.cli import main

    streams = [io.TextIOWrapper(io.BytesIO(content), encoding="utf-8") for content in (case.stdin, b"", b"")]
    kept = sys.argv, sys.stdin, sys.stdout, sys.stderr
    sys.argv = ["antiphon", *case.arguments]
    sys.stdin, sys.stdout, sys.stderr = streams
    streams[2].reconfigure(errors="backslashreplace")
    status: int | str = "returned"
    trace = ""
    _places.clear()
    for timer, seconds in _TIMERS.items():
        signal.setitimer(timer, seconds)
    try:
        main()
    except SystemExit as exit_:
        status = exit_.code or 0
    except BaseException:
        status, trace = "traceback", traceback.format_exc()
    finally:
        for timer in _TIMERS:
            signal.setitimer(timer, 0)
        sys.argv, sys.stdin, sys.stdout, sys.stderr = kept
    if _places and not (status == _INTERRUPTED and longest_line(case) > _LONG):
        status, trace = "hang", _places[0]
    texts = []
    for stream in streams[1:]:
        with contextlib.suppress(ValueError):
            stream.flush()
        texts.append(stream.detach().getvalue().decode("utf-8", "replace"))
    return status, *texts, trace


def longest_line(case: Case) -> int:
    """Bytes of the longest line that a case reads from standard input or a file."""
    files = (Path(argument) for argument in case.arguments if len(argument) < 256 and "\0" not in argument)
    contents = [case.stdin, *(path.read_bytes() for path in files if path.is_file() and path.parent == Path())]
    return max(len(line) for content in contents for line in content.split(b"\n"))


_INTERRUPTED = 130
_places: list[str] = []
"""Where the case was when its time was up."""
_TIMERS = {signal.ITIMER_PROF: PROCESSOR_SECONDS, signal.ITIMER_REAL: WALL_SECONDS}


def heed_timers() -> None:
    """Has cases end when their time is up."""
    for number in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(number, _time_up)


def _time_up(_: int, frame: FrameType | None) -> None:
    _places.append("".join(traceback.format_stack(frame, 6)))
    raise KeyboardInterrupt


def faults_of_status(status: int | str, err: str, trace: str) -> list[str]:
    """What is wrong with the exit status."""
    if status in (0, 2, _INTERRUPTED):
        return []
    if status == 1 and "training stopped" in err.replace("\n", " "):
        return []
    return [f"status {status}"] + ([trace.strip().splitlines()[-1]] if trace else [])


def faults_of_text(err: str, out: str, status: int | str) -> list[str]:
    """What is wrong with what was said."""
    faults = []
    if "Traceback" in err or "Traceback" in out:
        faults.append("a traceback in the output")
    is_help = out.startswith("Usage: antiphon [")  # of the program without a command
    if status == 2 and not is_help and not any(line.startswith("antiphon: ") for line in err.splitlines()):
        faults.append("no sentence")
    if status == 2 and len(err) > 5000:
        faults.append(f"a message of {len(err)} characters")
    if found := _CONTROLS.search(err):
        faults.append(f"control character {found[0]!r} in the messages")
    return faults


def faults_of_files(case: Case, before: dict[str, str], after: dict[str, str], may_write: bool) -> list[str]:
    """What is wrong with the files after a case: only what did well writes, and it replaces only what is its own."""
    own = [str(path) for path in case.may_change]
    wrong = []
    for path in sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path)):
        is_own = path not in before or any(path == one or path.startswith(f"{one}/") for one in own)
        if not (may_write and is_own):
            wrong.append(f"{'changed' if path in before else 'left behind'}: {path}")
    return wrong[:3]


def snapshot(folders: list[Path]) -> dict[str, str]:
    """What every file is recognised by."""
    return {entry.path: _mark(entry) for folder in folders for entry in _walk(folder)}


def _walk(folder: str | Path) -> Iterator[os.DirEntry[str]]:
    for entry in os.scandir(folder):
        yield entry
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(entry.path)


_marks: dict[tuple[str, int, int, int], str] = {}


def _mark(entry: "os.DirEntry[str]") -> str:
    if not entry.is_file(follow_symlinks=False):
        return "link" if entry.is_symlink() else "folder"
    found = entry.stat(follow_symlinks=False)
    key = entry.path, found.st_ino, found.st_mtime_ns, found.st_size
    if key not in _marks:
        _marks[key] = hashlib.md5(Path(entry.path).read_bytes()).hexdigest()
    return _marks[key]


def peak_memory() -> float:
    """MiB that this process has held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
