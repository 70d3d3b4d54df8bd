"""Runs in one file: they answer as their folders do, and nothing in such a file is trusted."""

import os
import shutil
import stat
import tempfile
import zipfile
from pathlib import Path

import pytest

import antiphon as package
from antiphon.exceptions import RunError
from antiphon.runs.combined_runs import combine_runs, ensemble_runs
from antiphon.runs.copies import pack_run
from antiphon.runs.run_folder import RunFolder, open_for_writing
from antiphon.storage.atomic import is_unfinished
from antiphon.storage.packed_run import pack_folder
from tests.sealing import seal_again

WORDS = ["badu", "kesto", ""]


@pytest.fixture(autouse=True)
def folder_for_temporary_files(tmp_path, monkeypatch):
    """A folder of its own, so that what is left there can be seen."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return tmp_path / "temporary"


@pytest.fixture
def packed(toy_run, tmp_path):
    pack_run(toy_run, tmp_path / "toy.zip")
    return tmp_path / "toy.zip"


def entries_of(packed):
    with zipfile.ZipFile(packed) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write_zip(path, entries, **options):
    with zipfile.ZipFile(path, "w", **options) as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return path


def test_a_packed_run_answers_as_its_folder_does(toy_run, packed):
    assert package.load(packed).predict(WORDS, nbest=3) == package.load(toy_run).predict(WORDS, nbest=3)


def test_the_same_run_gives_the_same_bytes_wherever_it_is(toy_run, packed, tmp_path):
    elsewhere = shutil.copytree(toy_run, tmp_path / "else/where/run")
    pack_run(elsewhere, tmp_path / "again.zip")
    pack_run(packed, tmp_path / "repacked.zip")
    assert (tmp_path / "again.zip").read_bytes() == packed.read_bytes()
    assert (tmp_path / "repacked.zip").read_bytes() == packed.read_bytes()


def test_unzipping_a_packed_run_gives_a_run_folder(packed, tmp_path, toy_run):
    zipfile.ZipFile(packed).extractall(tmp_path / "unzipped")
    assert package.load(tmp_path / "unzipped").predict(WORDS) == package.load(toy_run).predict(WORDS)


def test_combined_runs_pack_with_their_members(toy_run, tmp_path):
    ensemble_runs([toy_run, toy_run], tmp_path / "ensemble", "probabilities", force=False)
    combine_runs(tmp_path / "ensemble", None, None, tmp_path / "noisy", {}, force=False)
    pack_run(tmp_path / "noisy", tmp_path / "noisy.zip")
    assert "direct/member-2/model.safetensors" in entries_of(tmp_path / "noisy.zip")
    expected = package.load(tmp_path / "noisy").predict(WORDS)
    assert package.load(tmp_path / "noisy.zip").predict(WORDS) == expected


def test_neither_a_run_folder_nor_a_packed_run_holds_an_absolute_path(toy_run, packed):
    data = RunFolder.open(toy_run).recipe().data
    assert data.train.is_absolute()
    assert '"/' not in (toy_run / "recipe.toml").read_text()
    assert RunFolder.open(packed).recipe().data.train is None
    assert b"train.tsv" not in packed.read_bytes()


def test_the_unpacked_files_are_private_shared_and_removed(packed, folder_for_temporary_files):
    run = RunFolder.open(packed)
    assert RunFolder.open(packed).path == run.path
    assert stat.S_IMODE(run.path.stat().st_mode) == 0o700
    assert is_unfinished(run.path)
    del run
    assert list(folder_for_temporary_files.iterdir()) == []


def test_a_packed_run_that_is_refused_leaves_nothing(packed, tmp_path, folder_for_temporary_files):
    entries = entries_of(packed) | {"model.safetensors": b"other"}
    with pytest.raises(RunError, match="damaged"):
        RunFolder.open(write_zip(tmp_path / "bad.zip", entries.items()))
    assert list(folder_for_temporary_files.iterdir()) == []


@pytest.mark.parametrize("name", ["../escaped", "/escaped", "a/../../escaped", "..\\escaped"])
def test_paths_that_leave_the_folder_are_refused(packed, tmp_path, name):
    bad = write_zip(tmp_path / "bad.zip", [*entries_of(packed).items(), (name, b"!")])
    with pytest.raises(RunError, match="a path that leaves the folder of the run"):
        RunFolder.open(bad)
    assert not list(tmp_path.rglob("escaped"))


def test_links_are_refused(packed, tmp_path):
    link = zipfile.ZipInfo("rules.tsv")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    bad = write_zip(tmp_path / "bad.zip", [*entries_of(packed).items(), (link, b"/etc/passwd")])
    with pytest.raises(RunError, match=r"'rules\.tsv' in it is not a regular file"):
        RunFolder.open(bad)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_duplicates_are_refused(packed, tmp_path):
    bad = write_zip(tmp_path / "bad.zip", [*entries_of(packed).items(), ("recipe.toml", b"[data]")])
    with pytest.raises(RunError, match=r"holds recipe\.toml twice"):
        RunFolder.open(bad)


def test_files_that_the_manifest_does_not_list_are_refused(packed, tmp_path):
    bad = write_zip(tmp_path / "bad.zip", [*entries_of(packed).items(), ("run.py", b"print()")])
    with pytest.raises(RunError, match=r"its files differ from those that its manifest lists \('run\.py'\)"):
        RunFolder.open(bad)


def test_files_that_are_missing_are_refused(packed, tmp_path):
    entries = entries_of(packed)
    del entries["source.vocab"]
    with pytest.raises(RunError, match=r"\('source\.vocab'\)"):
        RunFolder.open(write_zip(tmp_path / "bad.zip", entries.items()))


def test_compressed_files_are_refused_before_they_are_read(packed, tmp_path, folder_for_temporary_files):
    entries = entries_of(packed) | {"model.safetensors": bytes(10**7)}
    bad = write_zip(tmp_path / "bad.zip", entries.items(), compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(RunError, match="is compressed or encrypted"):
        RunFolder.open(bad)
    assert list(folder_for_temporary_files.iterdir()) == []


def test_a_file_that_says_it_is_larger_than_it_is_is_refused(packed, tmp_path):
    """Many entries that name the same bytes would unpack to more than the file."""
    content = packed.read_bytes()
    with zipfile.ZipFile(packed) as archive:
        weights = archive.getinfo("model.safetensors")
        central = archive.start_dir
    at = content.index(b"model.safetensors", central) - 46
    size = weights.file_size.to_bytes(4, "little")
    assert content[at + 20 : at + 28] == size * 2
    (tmp_path / "bad.zip").write_bytes(content[: at + 20] + (2**31).to_bytes(4, "little") * 2 + content[at + 28 :])
    with pytest.raises(RunError, match=r"unpacks to 2,147,\d+,\d+ bytes, more than the"):
        RunFolder.open(tmp_path / "bad.zip")


def answer_or_sentence(path):
    try:
        return package.load(path).predict(["badu"])
    except RunError as error:
        return str(error).startswith(str(path))


def test_errors_of_loading_name_the_packed_file(toy_run, tmp_path):
    run = shutil.copytree(toy_run, tmp_path / "run")
    recipe = (run / "recipe.toml").read_text()
    (run / "recipe.toml").write_text(recipe.replace("hidden_size = 48", "hidden_size = 24"))
    seal_again(run)
    pack_run(run, tmp_path / "other.zip")
    with pytest.raises(RunError) as error:
        package.load(tmp_path / "other.zip")
    assert str(error.value).startswith(f"{tmp_path / 'other.zip'}/model.safetensors: not the weights of this run's")


def test_any_flipped_byte_is_noticed_or_harmless(packed, tmp_path):
    """A byte of a file is found by its digest, one of the zip's own tables at the latest by what it leads to."""
    content, expected = packed.read_bytes(), package.load(packed).predict(["badu"])
    for place in [*range(0, len(content), len(content) // 20), *range(len(content) - 600, len(content), 20)]:
        flipped = bytes([content[place] ^ 0x41])
        (tmp_path / "bad.zip").write_bytes(content[:place] + flipped + content[place + 1 :])
        assert answer_or_sentence(tmp_path / "bad.zip") in (expected, True)


def test_a_file_cut_short_and_one_that_is_no_zip_are_refused(packed, tmp_path):
    (tmp_path / "short.zip").write_bytes(packed.read_bytes()[:-100])
    (tmp_path / "text.txt").write_text("badu\n")
    for name in ("short.zip", "text.txt"):
        with pytest.raises(RunError, match="not a packed run, or damaged"):
            RunFolder.open(tmp_path / name)
    pack_folder(Path(write_zip(tmp_path / "e.zip", [("a", b"")])).parent / "temporary", tmp_path / "empty.zip")
    with pytest.raises(RunError, match=r"no manifest\.json in it"):
        RunFolder.open(tmp_path / "empty.zip")


def test_a_packed_run_is_never_changed(packed):
    before = packed.read_bytes()
    with pytest.raises(RunError, match="a packed run, which is never changed"), open_for_writing(packed):
        pass
    assert packed.read_bytes() == before


def test_packing_overwrites_nothing_without_force_and_nothing_but_packed_runs_with_it(
    antiphon, toy_run, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    out = tmp_path / f"{toy_run.name}.zip"
    out.write_text("mine")
    for options in ([], ["--force"]):
        refused = antiphon("pack", toy_run, *options)
        assert refused.status == 2
        assert "a file that is no packed run, expected a new file, or a packed run to replace" in refused.err
        assert out.read_text() == "mine"
    out.unlink()
    assert antiphon("pack", toy_run).status == 0
    refused = antiphon("pack", toy_run)
    assert refused.status == 2
    assert "exists already, expected a new file; --force replaces it" in refused.err
    assert antiphon("pack", toy_run, "--force").status == 0
    assert antiphon("predict", f"{toy_run.name}.zip", stdin=b"badu\n").out == "baaduun\n"
    assert [path.name for path in tmp_path.iterdir() if is_unfinished(path)] == []


def test_a_stopped_run_is_packed_with_its_weights_and_a_note(antiphon, toy_run, tmp_path):
    run = shutil.copytree(toy_run, tmp_path / "run")
    with open_for_writing(run) as folder, folder.changed(remove=["metrics.json"]) as new:
        new.checkpoint.write_text("a checkpoint")
    result = antiphon("pack", run, "--out", tmp_path / "run.zip")
    assert result.status == 0, result.err
    assert "its training has not ended" in result.err
    assert "last.ckpt" not in zipfile.ZipFile(tmp_path / "run.zip").namelist()
    assert package.load(tmp_path / "run.zip").predict(["badu"]) == package.load(toy_run).predict(["badu"])
    assert RunFolder.open(tmp_path / "run.zip").state() == "stopped before its training ended"


def test_a_pipe_is_no_place_for_a_packed_run(antiphon, toy_run, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    result = antiphon("pack", toy_run, "--out", tmp_path / "pipe", "--force")
    assert result.status == 2
    assert "pipe: a pipe or a device, expected the name of a new file" in result.err


def test_a_run_without_weights_is_not_packed(toy_run, tmp_path):
    run = shutil.copytree(toy_run, tmp_path / "run")
    with open_for_writing(run) as folder, folder.changed(remove=["metrics.json", "model.safetensors"]):
        pass
    with pytest.raises(RunError, match="expected a run with weights"):
        pack_run(run, tmp_path / "run.zip")
    assert not (tmp_path / "run.zip").exists()
