"""What takes long to make, made once: commands in this process, and folders for all processes that run tests."""

import fcntl
import os
import shutil

import pytest


def run_command(*arguments):
    """Gives a command that has to succeed, in this process."""
    from antiphon.cli import main

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["antiphon", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_:
            main()
    assert not exit_.value.code


def filled_once(factory, name, fill):
    """A folder that ``fill`` has filled once for all processes of pytest-xdist, as a copy for this process alone."""
    root = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    folder, done = root / "filled" / name, root / "filled" / f"{name}.done"
    folder.parent.mkdir(exist_ok=True)
    with done.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until the process that fills it is done
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            fill(folder)
            done.touch()
    return shutil.copytree(folder, factory.mktemp("copies") / name)
