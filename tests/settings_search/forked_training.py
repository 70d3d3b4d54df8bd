"""The trainings of a search in forked processes: nothing has to be imported again, so each takes a moment."""

import os
import sys
from pathlib import Path
from unittest.mock import patch


class ForkedTraining:
    """Stands for ``subprocess.Popen`` of an antiphon command; for one training at a time."""

    def __init__(self, command, stderr, env, **_):
        self._process = os.fork()
        if self._process == 0:
            os._exit(_run(command[command.index("antiphon") + 1 :], stderr, env))

    def wait(self):
        """The exit status, or minus the signal that killed it."""
        return os.waitstatus_to_exitcode(os.waitpid(self._process, 0)[1])


def _run(arguments, stderr, env):
    from antiphon.cli import main

    os.environ.update(env)
    with (
        open(stderr.fileno(), "w", closefd=False) as messages,
        Path(os.devnull).open("w") as nowhere,
        patch.multiple(sys, argv=["antiphon", *arguments], stderr=messages, stdout=nowhere),
    ):
        try:
            main()
        except SystemExit as end:
            return end.code or 0
    return 1
