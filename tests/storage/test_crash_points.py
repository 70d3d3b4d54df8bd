"""A command that is killed, or finds the disk full, leaves the old run or the new one, and goes on."""

import pytest

from tests.campaign.scenarios import SCENARIOS
from tests.subprocesses import run_python

_PROGRAM = """
import sys, tempfile
from pathlib import Path
from tests.campaign import crashes
from tests.campaign.__main__ import fast_folder
from tests.campaign.scenarios import SCENARIOS, open_workshop

kill, every_kill, every_full_disk, *names = sys.argv[1:]
with tempfile.TemporaryDirectory(dir=fast_folder()) as root:
    shop = open_workshop(Path(root) / "workshop")
    for name in names:
        killed = getattr(crashes, kill)(shop, SCENARIOS[name], int(every_kill))
        full = crashes.fill_disk_everywhere(shop, SCENARIOS[name], int(every_full_disk))
        print(name, killed.injected, full.injected, *killed.problems, *full.problems, sep="\\n")
        assert killed.injected and full.injected and not killed.problems + full.problems
"""
"""In a process of its own, since it forks and changes what it imports."""
_TRAININGS = [name for name in SCENARIOS if name.startswith("train")]
_OTHERS = [name for name in SCENARIOS if name not in _TRAININGS]


@pytest.mark.parametrize("names", [_TRAININGS, _OTHERS], ids=["trainings", "others"])
def test_a_crash_at_any_file_operation_leaves_a_run_that_goes_on(names):
    """Every fifth kill, in the states that it leaves on the disk; and a full disk now and then."""
    run_python(_PROGRAM, "snapshot_everywhere", 5, 29, *names)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_real_kill_or_a_full_disk_at_any_file_operation_loses_nothing(name):
    run_python(_PROGRAM, "kill_everywhere", 1, 1, name)
