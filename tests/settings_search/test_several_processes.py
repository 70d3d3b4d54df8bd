"""Processes that work on one search at the same time, in an SQLite file or on a PostgreSQL server; one is killed."""

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from functools import partial

import pytest
import sqlalchemy

from tests.settings_search.databases import postgresql_programs, postgresql_server, silence
from tests.toy import write_recipe

RECIPE = """
[model]
kind = "suffix_rule"
[train]
dev_metric = "accuracy"
"""
SLOW = [
    part
    for setting in ("model.kind=encoder_decoder", "model.hidden_size=8", "train.max_epochs=40", "train.passes=20")
    for part in ("--set", setting)
]
"""Trials that take long enough to be killed."""
WORKER = """
import sys
from pathlib import Path
from antiphon.recipe.recipe_file import find_recipe
from antiphon.runs.run_folder import RunFolder
from antiphon.storage.manifest import seal_run
from antiphon.settings_search.search import SearchOptions, SettingsSearch
from antiphon.settings_search.search_space import parse_space
space = parse_space(find_recipe("toy"), [], ["model.dropout=0.0..0.5"], Path(sys.argv[1]))
search = SettingsSearch(space, SearchOptions("random", 12, storage=sys.argv[2] or None))
sys.stdin.readline()
def train(recipe, folder, report):
    print(recipe.model.dropout)
    folder.mkdir()
    RunFolder(folder).save_metrics({"dev_accuracy": 1.0, "epochs": 1, "training_seconds": 1.0})
    seal_run(folder)

with search.joined():
    search.run(train, lambda _: None)
"""
PATIENCE = 300
"""Seconds after which a test has failed."""
need_postgresql = pytest.mark.skipif(postgresql_programs() is None, reason="needs Debian's package postgresql")
Both = pytest.mark.parametrize(
    "database", ["SQLite", pytest.param("PostgreSQL", marks=[pytest.mark.slow, need_postgresql])], indirect=True
)


@pytest.fixture
def database(request, tmp_path):
    """The URL of a database, and what to give as ``--storage``."""
    if request.param == "SQLite":
        yield f"sqlite:///{tmp_path / 'out' / 'search.db'}", ""
    else:
        with postgresql_server() as url:
            yield url, url


def start(*arguments):
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([sys.executable, *map(str, arguments)], **pipes, text=True)


def states(url):
    engine = sqlalchemy.create_engine(url)
    with engine.connect() as connection:
        found = connection.execute(sqlalchemy.text("SELECT state FROM trials")).scalars().all()
    engine.dispose()
    return Counter(found)


@Both
def test_processes_that_start_at_once_on_a_new_database_share_the_trials(database, tmp_path):
    url, storage = database
    processes = [start("-c", WORKER, tmp_path / "out", storage) for _ in range(3)]
    for process in processes:
        process.stdin.write("begin\n")
        process.stdin.flush()
    ends = [process.communicate(timeout=PATIENCE) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], ends
    drawn = [value for out, _ in ends for value in out.split()]
    assert len(drawn) == len(set(drawn)) == 12
    assert states(url)["COMPLETE"] == 12


@Both
@pytest.mark.longest
def test_processes_join_a_search_and_go_on_with_what_a_killed_one_left(database, tmp_path):
    """One is killed in its second trial; two that are then started at the same time train the rest together."""
    url, storage = database
    recipe = write_recipe(tmp_path, 30, 10, RECIPE)
    command = ["-m", "antiphon", "grid", recipe, "--out", tmp_path / "out"]
    command += ["--grid", "data.min_count=1,2,3", *(["--storage", storage] if storage else []), *SLOW]
    with start(*command) as first:
        assert any(line.startswith("1 of 3") for line in first.stderr)
        while states(url)["RUNNING"] == 0:
            assert first.poll() is None
        os.kill(first.pid, signal.SIGKILL)
    weights = tmp_path / "out" / "data.min_count=1" / "model.safetensors"
    before = weights.stat().st_mtime_ns
    engine = sqlalchemy.create_engine(url)
    silence(engine)
    engine.dispose()
    with start(*command) as second, start(*command) as third:
        ends = [process.communicate(timeout=PATIENCE) for process in (second, third)]
    assert [second.returncode, third.returncode] == [0, 0], ends
    assert ends[0][0] == ends[1][0]
    table = (tmp_path / "out" / "grid.tsv").read_text()
    assert re.findall(r"\w+$", table, re.MULTILINE) == ["state", "complete", "complete", "complete"]
    assert weights.stat().st_mtime_ns == before
    assert states(url) == {"COMPLETE": 3, "FAIL": 1}  # every trial was made once, and the lost one repeated


@need_postgresql
@pytest.mark.slow
def test_searches_of_several_folders_share_a_server_that_is_lost_in_one_sentence(antiphon, tmp_path):
    recipe = write_recipe(tmp_path, 30, 10, RECIPE)
    grid = partial(antiphon, "grid", recipe, "--grid")
    with postgresql_server() as url:
        for name in "one", "two":
            result = grid(f"data.min_count={len(name)},4", "--out", tmp_path / name, "--storage", url)
            assert result.status == 0, result.err
        other = grid("data.lowercase=true,false", "--out", tmp_path / "two", "--storage", url)
        assert "searched with --grid data.min_count = 3,4, now not set" in other.err
    lost = grid("data.min_count=3,4", "--out", tmp_path / "two", "--storage", url)
    assert lost.status == 2
    assert lost.err.startswith("antiphon: --storage postgresql+psycopg://")
    assert "expected a database that can be read and written" in lost.err
