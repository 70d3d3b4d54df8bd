"""Thousands of bad inputs, the same each time; ``make fuzz`` draws others."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
CASES = 200


@pytest.mark.longest
def test_bad_input_of_every_sort_is_answered_well():
    command = [sys.executable, "-m", "tests.fuzz", "--seed", "2017", "--cases", str(CASES)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-3000:]
    assert f"{CASES} cases" in done.stdout
