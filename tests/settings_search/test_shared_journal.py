"""A journal that several processes share survives those that are killed."""

import os
import subprocess
import sys

import pytest

from antiphon.settings_search import live_workers, shared_journal
from antiphon.settings_search.live_workers import SearchWorker
from antiphon.settings_search.shared_journal import Journal, SharedLock, machine

OTHER = "host-1-0123abcd"
WAITING_WORKER = """
import sys
from pathlib import Path
from antiphon.settings_search.live_workers import SearchWorker
worker = SearchWorker(Path(sys.argv[1]))
worker.start()
print(worker.name, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def journal(tmp_path):
    journal = Journal(tmp_path / "journal")
    journal.append_logs([{"a": 1}, {"b": "ä"}])
    return journal


@pytest.fixture
def worker(tmp_path):
    worker = SearchWorker(tmp_path / "workers")
    worker.start()
    yield worker
    worker.end()
    assert not (tmp_path / "workers").exists()


def test_half_a_line_of_a_killed_process_is_cut_off_before_the_next(journal, tmp_path):
    whole = (tmp_path / "journal").read_bytes()
    with (tmp_path / "journal").open("ab") as file:
        file.write(b'{"c": ' + b"9" * 10_000)
    assert list(Journal(tmp_path / "journal").read_logs(0)) == [{"a": 1}, {"b": "ä"}]
    journal.append_logs([{"d": 4}])
    assert (tmp_path / "journal").read_bytes() == whole + b'{"d":4}\n'
    assert list(journal.read_logs(2)) == [{"d": 4}]


def test_a_lock_that_a_killed_process_of_this_machine_left_is_taken_at_once(journal, tmp_path, monkeypatch):
    monkeypatch.setattr(shared_journal.time, "sleep", lambda _: pytest.fail("waited"))
    link = tmp_path / "journal.lock"
    link.symlink_to(machine())
    journal.append_logs([{"c": 3}])
    assert len(list(journal.read_logs(0))) == 3
    assert not link.is_symlink()


def test_a_lock_of_another_machine_is_waited_for_and_broken_if_it_stays(tmp_path, monkeypatch):
    link, waits = tmp_path / "lock", []
    link.symlink_to("another machine")
    monkeypatch.setattr(shared_journal, "_STALE_LOCK_SECONDS", -1.0)
    monkeypatch.setattr(shared_journal.time, "sleep", waits.append)
    with SharedLock(tmp_path, link):
        assert str(link.readlink()) == machine()
    link.symlink_to("another machine")
    monkeypatch.setattr(shared_journal, "_STALE_LOCK_SECONDS", 1e9)
    monkeypatch.setattr(shared_journal.time, "sleep", lambda _: (waits.append(1), link.unlink()))
    with SharedLock(tmp_path, link):
        assert waits == [1]
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_is_killed_is_dead_at_once(worker, tmp_path):
    command = [sys.executable, "-c", WAITING_WORKER, str(tmp_path / "workers")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        name = other.stdout.readline().strip()
        assert worker.is_alive(name)
        other.kill()
        other.wait()
    assert (tmp_path / "workers" / name).exists()
    assert not worker.is_alive(name)
    third = SearchWorker(tmp_path / "workers")
    third.start()
    assert not (tmp_path / "workers" / name).exists()
    assert worker.is_alive(third.name)
    assert third.is_alive(worker.name)
    third.end()
    assert not worker.is_alive(third.name)


def test_a_process_of_another_machine_is_alive_while_its_heartbeat_goes_on(worker, tmp_path):
    path = tmp_path / "workers" / OTHER
    path.write_text("another machine")
    assert worker.is_alive(OTHER)
    silent = path.stat().st_mtime - 2 * live_workers._HEARTBEAT_TIMEOUT
    os.utime(path, (silent, silent))
    assert not worker.is_alive(OTHER)
    path.unlink()


def test_files_of_others_stay(tmp_path):
    (tmp_path / "workers").mkdir()
    (tmp_path / "workers" / "notes.txt").write_text("mine")
    (tmp_path / "workers" / OTHER).write_text(machine())
    worker = SearchWorker(tmp_path / "workers")
    worker.start()
    assert not worker.is_alive("notes.txt")
    worker.end()
    assert [path.name for path in (tmp_path / "workers").iterdir()] == ["notes.txt"]


def test_without_file_locks_heartbeats_count_on_this_machine_too(worker, tmp_path, monkeypatch):
    monkeypatch.setattr(live_workers, "lock_descriptor", lambda _: True)
    monkeypatch.setattr(live_workers, "locks_work", lambda _: False)
    path = tmp_path / "workers" / OTHER
    path.write_text(machine())
    assert worker.is_alive(OTHER)
    path.unlink()
