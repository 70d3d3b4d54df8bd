"""Single files: whole or not at all, never through a symbolic link, with the mode that the umask asks for."""

import errno
import fcntl
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from antiphon.exceptions import RunError
from antiphon.storage.files import atomic_replacement, locked, new_scratch_folder, scratch_name, sweep, write_atomically
from antiphon.storage.manifest import staging_folder
from tests.subprocesses import run_python


def test_a_file_is_replaced_in_one_move_and_nothing_else_is_left(tmp_path):
    write_atomically(tmp_path / "file", "old")
    with atomic_replacement(tmp_path / "file") as new:
        new.write_text("new")
        assert (tmp_path / "file").read_text() == "old"
    assert (tmp_path / "file").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_writing_that_fails_leaves_the_old_file(tmp_path):
    write_atomically(tmp_path / "file", "old")
    with pytest.raises(OSError, match="No space"), atomic_replacement(tmp_path / "file") as new:
        fill_disk(new)
    assert (tmp_path / "file").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_errors_name_the_file_and_not_the_unfinished_one(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        write_atomically(tmp_path / "missing" / "file", "new")
    assert caught.value.filename == str(tmp_path / "missing" / "file")
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError) as caught:
        write_atomically(tmp_path / "folder", "new")
    assert (caught.value.filename, caught.value.filename2) == (str(tmp_path / "folder"), None)
    with pytest.raises(OSError, match="No space") as caught, atomic_replacement(tmp_path / "file") as new:
        fill_disk(new)
    assert caught.value.filename == str(tmp_path / "file")
    with pytest.raises(OSError, match="No space") as caught, staging_folder(tmp_path) as stage:
        fill_disk(stage / "file")
    assert caught.value.filename == str(tmp_path)


def fill_disk(path):
    path.write_text("half")
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_under_a_new_file_names_the_file(tmp_path):
    with pytest.raises(OSError, match="No space") as caught, atomic_replacement(tmp_path / "file"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert caught.value.filename == str(tmp_path / "file")
    assert not list(tmp_path.iterdir())


def test_a_symbolic_link_is_replaced_and_never_followed(tmp_path):
    (tmp_path / "elsewhere").write_text("mine")
    (tmp_path / "file").symlink_to(tmp_path / "elsewhere")
    write_atomically(tmp_path / "file", "new")
    assert (tmp_path / "elsewhere").read_text() == "mine"
    assert not (tmp_path / "file").is_symlink()


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_the_mode_follows_the_umask(tmp_path, umask):
    before = os.umask(umask)
    try:
        write_atomically(tmp_path / "file", "x")
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o666 & ~umask


def ended_process():
    """The id of a process that has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def leftover(folder, process=None, machine=None):
    """An unfinished file of a process, by default of one that has ended, on this machine or another one."""
    _, own, _, number = scratch_name().split("-")
    path = folder / f".antiphon-{machine or own}-{process or ended_process()}-{number}"
    path.write_text("half a file")
    return path


def test_what_a_killed_process_left_is_removed_by_the_next_write(tmp_path):
    leftover(tmp_path)
    (tmp_path / ".antiphon-notes").write_text("mine")
    write_atomically(tmp_path / "file", "x")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".antiphon-notes", "file"]


def test_what_a_live_process_is_writing_is_left_alone(tmp_path):
    folder = new_scratch_folder(tmp_path)
    other = leftover(tmp_path, process=os.getppid())
    with atomic_replacement(tmp_path / "file") as new:
        sweep(tmp_path)
        assert folder.exists()
        assert other.exists()
        assert new.exists()


def no_locks(*_):
    raise OSError(errno.ENOSYS, "Function not implemented")


@pytest.mark.parametrize("flock", [no_locks, lambda *_: None], ids=["no locks", "a lock for every process"])
def test_without_working_locks_nothing_of_a_live_process_is_removed(tmp_path, monkeypatch, flock):
    monkeypatch.setattr(fcntl, "flock", flock)
    kept = {leftover(tmp_path, process=os.getppid()), leftover(tmp_path, machine="0" * 8)}
    leftover(tmp_path)
    sweep(tmp_path)
    with locked(tmp_path), staging_folder(tmp_path):
        assert kept <= {*tmp_path.iterdir()}
    assert {*tmp_path.iterdir()} == kept


def test_what_another_machine_left_is_removed_after_a_week_without_a_change(tmp_path):
    old, new = (leftover(tmp_path, machine="0" * 8) for _ in range(2))
    os.utime(old, times=(0, 0))
    sweep(tmp_path)
    assert (old.exists(), new.exists()) == (False, True)


def test_a_link_with_the_name_of_an_unfinished_file_is_never_followed(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").write_text("mine")
    link = leftover(tmp_path)
    link.unlink()
    link.symlink_to(tmp_path / "elsewhere")
    sweep(tmp_path)
    assert link.is_symlink()
    assert (tmp_path / "elsewhere" / "file").read_text() == "mine"


def test_sweeping_never_removes_a_folder_that_another_process_has_just_made(tmp_path):
    program = """
import sys
from pathlib import Path
from antiphon.storage.files import new_scratch_folder, remove_tree, sweep
for _ in range(2000):
    folder = new_scratch_folder(Path(sys.argv[1]))
    sweep(folder.parent)
    (folder / "file").write_text("x")
    remove_tree(folder)
"""
    with ThreadPoolExecutor(3) as pool:
        for ended in [pool.submit(run_python, program, tmp_path) for _ in range(3)]:
            ended.result()


def test_a_second_writer_is_refused_by_the_name_of_the_folder(tmp_path):
    with locked(tmp_path), pytest.raises(RunError, match=f"{tmp_path}: another antiphon process"), locked(tmp_path):
        pass
    with locked(tmp_path):
        pass


def test_the_lock_of_a_killed_process_does_not_block(tmp_path):
    program = """
import os, sys
from pathlib import Path
from antiphon.storage.files import locked
from antiphon.storage.manifest import staging_folder
if os.fork() == 0:
    with locked(Path(sys.argv[1])):
        os.kill(os.getpid(), 9)
assert os.waitstatus_to_exitcode(os.wait()[1]) == -9
with locked(Path(sys.argv[1])):
    pass
"""
    run_python(program, tmp_path / "new")


def test_folders_that_were_made_for_nothing_are_removed_again(tmp_path):
    with pytest.raises(ValueError, match="no"), locked(tmp_path / "a" / "b"):
        raise ValueError("no")
    assert not list(tmp_path.iterdir())


def test_a_file_in_place_of_a_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="file: a file, expected a folder"), locked(tmp_path / "file"):
        pass
