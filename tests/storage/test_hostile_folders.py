"""Runs and exported runs from elsewhere: whatever is in them, a command that may not write has changed nothing."""

import json
import os
import shutil
from dataclasses import asdict

import pytest

from antiphon import lite
from antiphon.exceptions import RunError
from antiphon.storage.files import STAGED, digest_file, open_folder, parent_of, render_sealed, scratch_name
from tests.campaign.crashes import fingerprint
from tests.sealing import seal_again

OLD_NAME = ".antiphon-0123456789abcdef"


@pytest.fixture
def exported(antiphon, toy_run, tmp_path_factory):
    out = tmp_path_factory.mktemp("exported") / "lite"
    assert antiphon("export", toy_run, "--out", out).status == 0
    return out


def reseal(path, **changes):
    table = json.loads(path.read_text()) | changes
    path.write_text(render_sealed(table))


def make_hostile(folder, index, elsewhere, staged):
    """Lets a folder say that a change is in progress, with staging folders that are links to ``elsewhere``."""
    files = json.loads((folder / index).read_text())["files"]
    for name in files:
        (elsewhere / name).write_text("mine")
    for name in (OLD_NAME, STAGED, scratch_name()):
        (folder / name).symlink_to(elsewhere)
    reseal(folder / index, removed=["rules.tsv"], staged=staged)
    (elsewhere / "rules.tsv").write_text("mine")


STAGED_NAMES = [STAGED, OLD_NAME, f"../elsewhere/{OLD_NAME}", "/elsewhere", "nul\0"]


@pytest.mark.parametrize("staged", STAGED_NAMES)
def test_a_run_whose_staging_folder_is_a_link_changes_nothing_anywhere(antiphon, toy_run, tmp_path, staged):
    elsewhere, run = tmp_path / "elsewhere", shutil.copytree(toy_run, tmp_path / "run")
    elsewhere.mkdir()
    make_hostile(run, "manifest.json", elsewhere, staged)
    before = fingerprint(tmp_path)
    for command in (
        ["train", "toy", "--out", run],
        ["train", "toy", "--out", run, "--resume"],
        ["train", "toy", "--out", run, "--force"],
        ["combine", "--direct", toy_run, "--out", run],
        ["tune", run, toy_run.parent / "dev.tsv"],
        ["export", toy_run, "--out", run],
        ["export", run, "--out", tmp_path / "lite"],
        ["predict", run],
        ["info", run],
    ):
        result = antiphon(*command, stdin=b"badu\n")
        assert (result.status, result.err.count("\n")) == (2, 1), (command, result.err)
        assert fingerprint(tmp_path) == before, command


@pytest.mark.parametrize("staged", STAGED_NAMES)
def test_an_exported_run_that_speaks_of_a_staging_folder_is_refused_and_nothing_changes(
    antiphon, toy_run, exported, tmp_path, staged
):
    elsewhere, folder = tmp_path / "elsewhere", shutil.copytree(exported, tmp_path / "lite")
    elsewhere.mkdir()
    make_hostile(folder, "lite.json", elsewhere, staged)
    before = fingerprint(tmp_path)
    result = antiphon("export", toy_run, "--out", folder)
    assert (result.status, result.err.count("\n")) == (2, 1)
    assert fingerprint(tmp_path) == before
    with pytest.raises(RunError, match="is not a setting"):
        lite.load(folder)
    assert fingerprint(tmp_path) == before


def test_a_link_in_place_of_a_removed_file_is_not_read_and_its_target_keeps_its_mode(antiphon, toy_run, tmp_path):
    run, mine = shutil.copytree(toy_run, tmp_path / "run"), tmp_path / "mine"
    mine.write_text("badu\tbaad\n")
    mine.chmod(0o400)
    reseal(run / "manifest.json", removed=["rules.tsv"])
    (run / "rules.tsv").symlink_to(mine)
    for command in (
        ["combine", "--direct", run, "--out", tmp_path / "noisy"],
        ["ensemble", run, toy_run, "--out", tmp_path / "ensemble"],
        ["export", run, "--out", tmp_path / "lite"],
    ):
        assert antiphon(*command).status == 0, command
        assert mine.stat().st_mode & 0o777 == 0o400, command
    assert antiphon("predict", run, stdin=b"badu\n").out == antiphon("predict", toy_run, stdin=b"badu\n").out


@pytest.mark.parametrize("name", [f"{STAGED}/model.safetensors", "member-1", "log.csv"])
@pytest.mark.parametrize("target", ["elsewhere", "nothing"])
def test_a_link_in_a_run_is_refused_before_it_is_replaced_or_continued(antiphon, toy_run, tmp_path, name, target):
    run = shutil.copytree(toy_run, tmp_path / "run")
    (tmp_path / "elsewhere").mkdir()
    reseal(run / "manifest.json", removed=["rules.tsv"])
    (run / name).unlink(missing_ok=True)
    (run / name).parent.mkdir(exist_ok=True)
    (run / name).symlink_to(tmp_path / target)
    before = fingerprint(tmp_path)
    for command in (
        ["train", "toy", "--out", run, "--force"],
        ["ensemble", toy_run, toy_run, "--out", run, "--force"],
        *([] if name == "member-1" else [["train", "toy", "--out", run, "--resume", "--set", "train.max_epochs=21"]]),
    ):
        result = antiphon(*command)
        assert result.status == 2, command
        assert "a symbolic link" in result.err, command
        assert fingerprint(tmp_path) == before, command


def test_without_force_an_interrupted_change_is_not_even_finished(antiphon, toy_run, tmp_path):
    run = shutil.copytree(toy_run, tmp_path / "run")
    (run / STAGED).mkdir()
    (run / "source.vocab").rename(run / STAGED / "source.vocab")
    reseal(run / "manifest.json", removed=[])
    before = fingerprint(tmp_path)
    for refused in (
        ["train", "toy", "--out", run],
        ["train", "toy", "--out", run, "--resume", "--set", "train.seed=5"],
        ["tune", run, toy_run.parent / "dev.tsv"],
    ):
        assert antiphon(*refused).status == 2, refused
    assert antiphon("predict", run, stdin=b"badu\n").status == 0
    assert fingerprint(tmp_path) == before


@pytest.mark.parametrize(
    "files",
    [
        '{"recipe.toml": {"bytes": 1e400, "sha256": ""}}',
        '{"nul\\u0000": {"bytes": 1, "sha256": ""}}',
        '{"/etc/passwd": {"bytes": 1, "sha256": ""}}',
        '{"recipe.toml": 3}',
    ],
)
def test_odd_lists_of_files_are_one_sentence(antiphon, toy_run, exported, tmp_path, files):
    run, folder = shutil.copytree(toy_run, tmp_path / "run"), shutil.copytree(exported, tmp_path / "lite")
    reseal(run / "manifest.json", files=json.loads(files))
    reseal(folder / "lite.json", files=json.loads(files))
    result = antiphon("info", run)
    assert (result.status, result.err.count("\n")) == (2, 1), result.err
    with pytest.raises(RunError, match="damaged"):
        lite.load(folder)


def test_an_exported_run_that_names_files_elsewhere_is_refused_and_they_stay(antiphon, toy_run, exported, tmp_path):
    folder, mine = shutil.copytree(exported, tmp_path / "lite"), tmp_path / "mine"
    mine.write_text("mine")
    for name in ("../mine", str(mine)):
        files = json.loads((exported / "lite.json").read_text())["files"]
        reseal(folder / "lite.json", files=files | {name: asdict(digest_file(mine))})
        with pytest.raises(RunError, match="it names"):
            lite.load(folder)
        assert antiphon("export", toy_run, "--out", folder).status == 2
        assert mine.read_text() == "mine"


def test_a_loop_of_links_as_out_is_one_sentence(antiphon, toy_run, tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for command in (["train", "toy"], ["export", toy_run]):
        result = antiphon(*command, "--out", tmp_path / "loop")
        assert (result.status, result.err.count("\n")) == (2, 1), (command, result.err)
    assert os.path.lexists(tmp_path / "loop")


def test_a_run_that_learns_by_counting_and_lacks_its_metrics_is_not_resumed(antiphon, tmp_path):
    command = ["train", "toy", "--set", "model.kind=suffix_rule", "--out", tmp_path / "run"]
    assert antiphon(*command).status == 0
    (tmp_path / "run" / "metrics.json").unlink()
    seal_again(tmp_path / "run")
    result = antiphon(*command, "--resume")
    assert result.status == 2
    assert "metrics.json: missing, expected it in a run of kind suffix_rule" in result.err


def test_nothing_is_opened_through_a_link_made_after_the_folder_was_checked(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run/encoder").symlink_to(tmp_path / "elsewhere")
    with open_folder(tmp_path / "run") as root:
        for create in (False, True):
            with pytest.raises(NotADirectoryError), parent_of(root, "encoder/config.json", create=create):
                pass


def test_the_list_of_files_is_not_read_through_a_link(antiphon, toy_run, exported, tmp_path):
    run, lite_folder = shutil.copytree(toy_run, tmp_path / "run"), shutil.copytree(exported, tmp_path / "lite")
    for folder, index in ((run, "manifest.json"), (lite_folder, "lite.json")):
        (folder / index).rename(tmp_path / index)
        (folder / index).symlink_to(tmp_path / index)
        refused = antiphon("predict", folder, stdin=b"badu\n")
        assert (refused.status, refused.out) == (2, "")
        assert f"{index}: a symbolic link, expected a file of the run itself" in refused.err
