"""Commands in forked processes: nothing has to be imported again, so each takes a moment."""

import io
import os
import sys
import traceback
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

from antiphon.cli import main


def call(*arguments):
    """Runs a command in this process; gives its exit status and what it said."""
    said, status = io.StringIO(), 0
    argv = patch.object(sys, "argv", ["antiphon", *map(str, arguments)])
    with argv, redirect_stdout(said), redirect_stderr(said):
        try:
            main()
        except SystemExit as end:
            status = end.code or 0
    return status, said.getvalue()


def in_fork(work):
    """Runs a function in a forked process; gives the status and the text that it gives, or how it failed.

    A process that is killed gives its status and no text.
    """
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reading)
        try:
            status, text = work()
        except BaseException:
            status, text = 1, traceback.format_exc()
        os.write(writing, text.encode()[-60_000:])
        os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read().decode()
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), text


def scratch_left(folder):
    """Unfinished files and folders of ours under a folder."""
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob(".antiphon-*"))
