"""Run folders: changed as a whole, replaced as a whole, and nothing of the user's lost."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from antiphon.exceptions import RunError
from antiphon.runs.run_folder import RunFolder, locked_folder, new_run, open_for_writing
from antiphon.storage.manifest import (
    FORMAT,
    RUN_FILES,
    changed_run,
    check_new_run,
    read_manifest,
    read_verified,
    write_manifest,
)
from tests.campaign.bit_flips import flip_bits


def make_run(folder, force=False, **files):
    with locked_folder(folder), new_run(folder, force=force) as run:
        for name, text in files.items():
            (run.path / name.replace("_", ".")).write_text(text)
    return folder


@pytest.fixture
def run(tmp_path):
    return make_run(tmp_path / "run", recipe_toml="recipe", metrics_json="{}")


def names(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def change(run, name):
    with changed_run(run) as stage:
        (stage / name).parent.mkdir(exist_ok=True)
        (stage / name).write_text("other")


def write_and_fail(path):
    path.write_text("other")
    raise ValueError("no")


def test_a_change_adds_replaces_and_removes_in_one(run):
    with changed_run(run, remove=["metrics.json"]) as stage:
        (stage / "recipe.toml").write_text("other")
        (stage / "log.csv").write_text("log")
        assert names(run)[-2:] == ["metrics.json", "recipe.toml"]
    assert names(run) == ["log.csv", "manifest.json", "recipe.toml"]
    assert read_verified(run).files.keys() == {"log.csv", "recipe.toml"}
    assert (run / "recipe.toml").read_text() == "other"


def test_a_change_that_fails_changes_nothing(run):
    with pytest.raises(ValueError, match="no"), changed_run(run) as stage:
        write_and_fail(stage / "recipe.toml")
    assert names(run) == ["manifest.json", "metrics.json", "recipe.toml"]
    assert (run / "recipe.toml").read_text() == "recipe"


def test_force_replaces_the_run_and_nothing_else(run):
    (run / "notes.txt").write_text("mine")
    (run / "run.new").mkdir()
    with pytest.raises(RunError, match=r"run: holds a run already \(manifest.json\)"):
        make_run(run, recipe_toml="new")
    make_run(run, force=True, recipe_toml="new")
    assert names(run) == ["manifest.json", "notes.txt", "recipe.toml"]
    assert (run / "run.new").is_dir()


@pytest.mark.parametrize("name", ["recipe.toml", "direct/recipe.toml"])
def test_files_of_the_user_with_names_of_ours_are_never_overwritten(tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    with pytest.raises(RunError, match="in the way of a new run"):
        make_run(tmp_path, force=True, recipe_toml="new")
    assert names(tmp_path) == [name]
    assert (tmp_path / name).read_text() == "mine"


def test_the_current_folder_and_a_link_to_another_take_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_run(RunFolder(tmp_path).path / ".", recipe_toml="here")
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    make_run(tmp_path / "link", recipe_toml="there")
    make_run(tmp_path / "link", force=True, recipe_toml="again")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "disk" / "recipe.toml").read_text() == "again"
    assert (tmp_path / "recipe.toml").read_text() == "here"


def test_an_interrupted_change_is_read_where_it_waits_and_finished_by_the_next_writer(run, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("antiphon.storage.manifest._finish", lambda *_: None)
        with changed_run(run, remove=["metrics.json"]) as stage:
            (stage / "recipe.toml").write_text("new")
    opened = RunFolder.open(run)
    assert opened.file("recipe.toml").read_text() == "new"
    assert (run / "recipe.toml").read_text() == "recipe"
    assert not opened.file("metrics.json").exists()
    assert (run / "metrics.json").exists()
    with open_for_writing(run) as opened:
        assert (run / "recipe.toml").read_text() == "recipe"
        with opened.changed():
            pass
        assert names(run) == ["manifest.json", "recipe.toml"]
        assert (run / "recipe.toml").read_text() == "new"


def test_a_folder_in_place_of_the_manifest_is_refused_before_anything_is_trained(run):
    (run / "manifest.json").unlink()
    (run / "manifest.json").mkdir()
    with pytest.raises(RunError, match=r"manifest.json: a folder, expected a file of the run"):
        check_new_run(run, force=True)


def test_a_damaged_manifest_does_not_stand_in_the_way_of_force(run):
    (run / "manifest.json").write_text("{")
    with pytest.raises(RunError, match=r"manifest.json: damaged .* --force"):
        RunFolder.open(run)
    make_run(run, force=True, recipe_toml="new")
    assert names(run) == ["manifest.json", "recipe.toml"]


def test_every_flipped_bit_of_every_file_that_a_run_can_have_is_noticed(tmp_path):
    names = [name for name in RUN_FILES if "member-" not in name or "member-1/" in name]
    with locked_folder(tmp_path), new_run(tmp_path) as stage:
        for name in names:
            (stage.path / name).parent.mkdir(parents=True, exist_ok=True)
            (stage.path / name).write_text(f"contents of {name}")
    found = flip_bits(tmp_path, 4)
    assert sum(path.is_file() for path in tmp_path.rglob("*")) == len(names) + 1
    assert found.injected > 3 * (len(names) + 1)
    assert not found.problems


@pytest.mark.parametrize("name", ["recipe.toml", "direct/recipe.toml"])
def test_symbolic_links_in_a_run_are_neither_read_nor_written_through(tmp_path, name):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "recipe.toml").write_text("mine")
    run = tmp_path / "run"
    with locked_folder(run), new_run(run) as new:
        (new.path / "direct").mkdir()
        (new.path / name).write_text("mine")
    (run / name).unlink()
    link = run / name if name == "recipe.toml" else run / "direct"
    if link.is_dir():
        link.rmdir()
    link.symlink_to(elsewhere / "recipe.toml" if name == "recipe.toml" else elsewhere)
    with pytest.raises(RunError, match=f"{link}: a symbolic link"):
        RunFolder.open(run)
    with pytest.raises(RunError, match="a symbolic link"):
        change(run, name)
    assert (elsewhere / "recipe.toml").read_text() == "mine"


def test_a_manifest_that_names_files_elsewhere_is_refused(run):
    manifest = read_manifest(run)
    (run.parent / "secret").write_text("x")
    write_manifest(run, type(manifest)({"../secret": manifest.files["recipe.toml"]}))
    with pytest.raises(RunError, match=r"manifest.json: damaged \(it names '../secret'\)"):
        RunFolder.open(run)


def test_a_run_of_a_newer_format_or_without_a_manifest_is_refused(run):
    write_manifest(run, type(read_manifest(run))({}, format=FORMAT + 1))
    newer = f"a run of format {FORMAT + 1}, expected at most {FORMAT}; it was written by a newer antiphon"
    with pytest.raises(RunError, match=newer):
        RunFolder.open(run)
    (run / "manifest.json").unlink()
    with pytest.raises(RunError, match=r"not a run folder, expected one with a manifest\.json in it"):
        RunFolder.open(run)


def test_a_pipe_in_place_of_a_file_is_refused_at_once(run):
    import os

    (run / "recipe.toml").unlink()
    os.mkfifo(run / "recipe.toml")
    with pytest.raises(RunError, match=r"recipe.toml: not a regular file"):
        RunFolder.open(run)


def test_reports_may_be_deleted(run):
    with changed_run(run) as stage:
        (stage / "log.csv").write_text("log")
    (run / "log.csv").unlink()
    assert RunFolder.open(run).metrics() == {}


def test_a_run_can_be_opened_at_any_moment_of_its_training(run):
    def write():
        for number in range(150):
            with changed_run(run) as stage:
                (stage / "recipe.toml").write_text(f"recipe {number}")
                (stage / "last.ckpt").write_text(f"checkpoint {number}")

    with ThreadPoolExecutor(1) as pool:
        written, opened = pool.submit(write), 0
        while not written.done():
            RunFolder.open(run)
            opened += 1
        written.result()
    assert opened > 1
    assert (run / "last.ckpt").read_text() == "checkpoint 149"
