"""Python programs in processes of their own."""

import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parent.parent


def run_python(program, *arguments):
    """Runs a program from the root of the repository; it has to succeed, and gives what it printed."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=_ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
