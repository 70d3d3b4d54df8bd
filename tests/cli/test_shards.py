"""``predict --shard`` and ``join``: together, part files are what ``predict`` writes, however they came about."""

import gzip
import signal
import subprocess
import sys

import pytest

from antiphon.data.part_files import PartFolder
from tests.shared_folders import filled_once, run_command
from tests.toy import words, write_pairs

LINES = [*words(60, seed=5), "", *words(70, seed=6)]


@pytest.fixture(scope="module")
def rules(tmp_path_factory):
    """A run of suffix rules, which answers at once."""

    def train(folder):
        run_command("train", "toy", "--set", "model.kind=suffix_rule", "--out", folder / "rules")

    return filled_once(tmp_path_factory, "rules", train) / "rules"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "inputs.txt"
    path.write_text("".join(f"{line}\n" for line in LINES))
    return path


@pytest.fixture
def parts(tmp_path):
    return tmp_path / "parts"


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("options", [(), ("--nbest", "2"), ("--format", "jsonl")])
def test_the_parts_of_all_shards_are_what_predict_writes(antiphon, toy_run, file, parts, monkeypatch, options):
    monkeypatch.setattr("antiphon.torch_free.prediction.LINES_AT_ONCE", 20)
    for shard in ("2/3", "1/3", "3/3"):
        assert (
            antiphon("predict", toy_run, file, *options, "--shard", shard, "--out", parts, "--part-lines", 40).status
            == 0
        )
    joined = antiphon("join", parts)
    assert joined.status == 0
    assert joined.out == antiphon("predict", toy_run, file, *options).out


def test_several_processes_fill_the_same_parts(antiphon, rules, file, parts):
    command = ["predict", rules, file, "--part-lines", 30]
    assert antiphon(*command, "--processes", 2, "--out", parts).status == 0
    assert antiphon("join", parts).out == antiphon("predict", rules, file).out


def test_parts_are_dealt_to_shards_and_skipped_when_they_are_there(antiphon, rules, file, parts):
    command = ["predict", rules, file, "--out", parts, "--part-lines", 30]
    first = antiphon(*command, "--shard", "1/2")
    assert names(parts) == ["part-000001.txt", "part-000003.txt", "part-000005.txt", "parts.json"]
    assert "3 parts written, 0 there before; 2 of 5 missing" in first.err
    (parts / "part-000003.txt").unlink()
    before = (parts / "part-000001.txt").stat()
    again = antiphon(*command, "--shard", "1/1")
    assert "3 parts written, 2 there before; all there: antiphon join" in again.err
    assert (parts / "part-000001.txt").stat() == before
    assert antiphon(*command).err.startswith(f"antiphon: {parts}: 0 parts written, 5 there before")


def test_a_packed_run_and_a_zipped_file_are_the_same_run_and_the_same_input(antiphon, rules, file, parts, tmp_path):
    antiphon("pack", rules, "--out", tmp_path / "rules.zip")
    (tmp_path / "inputs.txt.gz").write_bytes(gzip.compress(file.read_bytes()))
    more = ["--out", parts, "--part-lines", 30]
    assert antiphon("predict", rules, file, "--shard", "1/2", *more).status == 0
    second = antiphon("predict", tmp_path / "rules.zip", tmp_path / "inputs.txt.gz", "--shard", "2/2", *more)
    assert second.status == 0, second.err
    assert antiphon("join", parts).out == antiphon("predict", rules, file).out


KILLED = """
import os, signal, sys
from antiphon.cli import main, prediction_job

shown, write = [], prediction_job.OutputFormat.write
def write_and_die(output_format, line, prediction, file=None):
    shown.append(line)
    if len(shown) == 70:
        file.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    write(output_format, line, prediction, file)
prediction_job.OutputFormat.write = write_and_die
sys.argv[0] = "antiphon"
main()
"""


def test_a_killed_shard_loses_only_the_part_in_hand(antiphon, rules, file, parts):
    command = ["predict", rules, file, "--out", parts, "--part-lines", 30]
    done = subprocess.run([sys.executable, "-c", KILLED, *map(str, command)], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL
    assert [name for name in names(parts) if not name.startswith(".")] == [
        "part-000001.txt",
        "part-000002.txt",
        "parts.json",
    ]
    refused = antiphon("join", parts)
    assert (refused.status, refused.out) == (2, "")
    assert "3 of 5 parts missing (part-000003.txt, part-000004.txt, part-000005.txt), expected all" in refused.err
    assert "3 parts written, 2 there before" in antiphon(*command).err
    assert antiphon("join", parts).out == antiphon("predict", rules, file).out
    assert not [name for name in names(parts) if name.startswith(".")]


def test_two_processes_may_write_the_same_part(tmp_path):
    (tmp_path / "parts").mkdir()
    folder = PartFolder(tmp_path / "parts", 1, 1, 1, "txt", True, {})
    folder.start()
    with folder.writing(0) as first:
        with folder.writing(0) as second:
            second.write("same\n")
        first.write("same\n")
    assert "".join(folder.chunks()) == "same\n"
    assert names(folder.path) == ["part-000001.txt", "parts.json"]


def test_a_wrong_line_is_named_and_whole_parts_before_it_stay(antiphon, rules, file, parts):
    file.write_text("a\n" * 45 + "a\tb\tc\td\n")
    failed = antiphon("predict", rules, file, "--out", parts, "--part-lines", 20)
    assert failed.status == 2
    assert f"{file}:46: 4 columns" in failed.err
    assert names(parts) == ["part-000001.txt", "part-000002.txt", "parts.json"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("--nbest", "2"), "parts of another setting nbest (none, not 2)"),
        (("--part-lines", "31"), "parts of another setting part-lines (30, not 31)"),
        (("--format", "jsonl"), "parts of another setting format (text, not jsonl)"),
    ],
)
def test_parts_of_other_settings_are_refused(antiphon, rules, file, parts, change, said):
    antiphon("predict", rules, file, "--out", parts, "--part-lines", 30, "--shard", "1/2")
    before = names(parts)
    refused = antiphon("predict", rules, file, "--out", parts, "--part-lines", 30, "--shard", "2/2", *change)
    assert refused.status == 2
    assert f"{parts}: {said}, expected those of this command; choose another --out" in refused.err
    assert names(parts) == before


def test_parts_of_another_run_or_input_are_refused(antiphon, rules, file, parts, tmp_path):
    write_pairs(tmp_path / "train.tsv", 50, seed=9)
    other = tmp_path / "other"
    settings = ["--set", "model.kind=suffix_rule", "--set", f"data.train={tmp_path / 'train.tsv'}"]
    antiphon("train", "toy", *settings, "--out", other)
    antiphon("predict", rules, file, "--out", parts)
    assert f"{parts}: parts of another run, expected" in antiphon("predict", other, file, "--out", parts).err
    file.write_text(file.read_text() + "badu\n")
    refused = antiphon("predict", rules, file, "--out", parts)
    assert refused.status == 2
    assert f"{parts}: parts of another input file, expected" in refused.err


@pytest.mark.parametrize(
    ("shard", "said"),
    [
        ("0/8", "expected 1/8 to 8/8, shards are counted from 1; in a job array of Slurm, --array=1-8"),
        ("9/8", "expected 1/8 to 8/8"),
        ("1/0", "expected I/N such as 2/8"),
        ("2", "expected I/N such as 2/8"),
        ("-1/8", "expected I/N such as 2/8"),
        ("a/b", "expected I/N such as 2/8"),
    ],
)
def test_a_shard_out_of_range_is_refused(antiphon, rules, file, parts, shard, said):
    refused = antiphon("predict", rules, file, "--shard", shard, "--out", parts)
    assert refused.status == 2
    assert f"--shard {shard}: {said}" in refused.err
    assert not parts.exists()


def test_what_shards_cannot_read_or_write_is_refused(antiphon, rules, file, parts):
    assert "no --out, expected a folder" in antiphon("predict", rules, file, "--shard", "1/2").err
    assert "expected a file, which every shard can read" in antiphon("predict", rules, "-", "--out", parts).err
    many = antiphon("predict", rules, file, "--out", parts, "--part-lines", "5000")
    assert "--part-lines 5000: expected at most 2048, or a multiple of it" in many.err
    assert not parts.exists()


def test_a_folder_for_parts_has_no_name_of_a_file(antiphon, rules, file, tmp_path):
    refused = antiphon("predict", rules, file, "--out", tmp_path / "x.txt")
    assert (refused.status, list(tmp_path.glob("x*"))) == (2, [])
    assert "x.txt: the name of a file, expected a folder" in refused.err
    (tmp_path / "x.txt").mkdir()
    assert antiphon("predict", rules, file, "--out", tmp_path / "x.txt").status == 0


def test_folders_that_are_no_parts_are_not_joined(antiphon, rules, parts, tmp_path):
    assert "no parts.json in it, expected a folder of antiphon predict --out" in antiphon("join", rules).err
    assert antiphon("join", tmp_path / "none").status == 2
    parts.mkdir()
    (parts / "parts.json").write_text("{}")
    assert "parts.json: damaged" in antiphon("join", parts).err


def test_a_part_that_was_cut_short_is_not_joined(antiphon, rules, file, parts, tmp_path):
    antiphon("predict", rules, file, "--out", parts, "--part-lines", 100)
    (parts / "part-000002.txt").write_text("one line\n")
    refused = antiphon("join", parts, "--out", tmp_path / "all.txt")
    assert refused.status == 2
    assert "part-000002.txt: 1 lines, expected 31; delete it and start its shard again" in refused.err
    assert not (tmp_path / "all.txt").exists()


def test_join_overwrites_nothing_without_force(antiphon, rules, file, parts, tmp_path):
    antiphon("predict", rules, file, "--out", parts)
    out = tmp_path / "all.txt"
    out.write_text("mine")
    assert "exists already, expected a new file; --force replaces it" in antiphon("join", parts, "--out", out).err
    assert out.read_text() == "mine"
    assert antiphon("join", parts, "--out", out, "--force").status == 0
    assert out.read_text() == antiphon("predict", rules, file).out


def test_parts_are_never_joined_into_one_of_themselves(antiphon, rules, file, parts, tmp_path):
    antiphon("predict", rules, file, "--out", parts)
    before = {path.name: path.read_bytes() for path in parts.iterdir()}
    for name in ("part-000001.txt", "parts.json", "all.txt"):
        refused = antiphon("join", parts, "--out", parts / name, "--force")
        assert refused.status == 2
        assert f"{parts / name}: in the folder of the parts, expected a file outside of it" in refused.err
    for out in (tmp_path, tmp_path / "no" / "all.txt"):
        refused = antiphon("join", parts, "--out", out, "--force")
        assert refused.status == 2
        assert f"{out}: a folder, or in one that does not exist, expected the name of a new file" in refused.err
    assert {path.name: path.read_bytes() for path in parts.iterdir()} == before


def test_an_empty_file_has_no_parts(antiphon, rules, file, parts):
    file.write_text("")
    assert antiphon("predict", rules, file, "--out", parts).status == 0
    assert antiphon("join", parts) == (0, "", "")
