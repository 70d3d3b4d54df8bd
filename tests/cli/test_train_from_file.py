"""``antiphon train FILE``: what is found is said, then it is learnt."""

import re
from types import SimpleNamespace

import pytest

from antiphon.cli.train import hints
from tests.toy import inflect, words

SMALL = ["--set", "model.hidden_size=8", "--set", "train.max_epochs=1", "--set", "train.passes=1"]


def write_csv(path):
    path.write_text("input;output\n" + "".join(f"{word};{inflect(word)}\n" for word in words(80)), encoding="utf-16")
    return path


def test_a_file_of_pairs_is_learnt(tmp_path, antiphon):
    done = antiphon("train", write_csv(tmp_path / "toy.csv"), "--out", tmp_path / "run", *SMALL)
    assert done.status == 0, done.err
    assert "80 rows, semicolon between columns, columns input, output; UTF-16" in done.err
    assert "20 pairs of 20 sources select the best epoch" in done.err
    assert "recipe    letters" in done.err
    assert re.search(r"^held out: \d+ of 20 right, with beam", done.err, re.MULTILINE)
    assert done.err.index("most frequent mistakes:") < done.err.index("what would help:")
    assert len((tmp_path / "run-pairs/train.tsv").read_text().splitlines()) == 60
    again = antiphon("train", tmp_path / "toy.csv", "--out", tmp_path / "run", "--resume", *SMALL)
    assert again.status == 0, again.err


@pytest.mark.parametrize(
    ("learnt_right", "hint"),
    [(98, "98 are right: more pairs would help most"), (60, "60 are right, hardly more: train longer")],
)
def test_training_pairs_tell_whether_pairs_or_training_are_missing(learnt_right, hint):
    mistake = SimpleNamespace(source="a", features=(), unseen=())
    held_out = SimpleNamespace(pairs=50, right=25, wrong=25, mistakes=[mistake] * 25)
    learnt = SimpleNamespace(pairs=100, right=learnt_right, wrong=100 - learnt_right)
    assert hint in list(hints(held_out, [], learnt))[-1]


@pytest.mark.parametrize("wrong", [("--set", "model.nonsense=1"), ("--device", "cuda:7"), ("--out", "taken")])
def test_a_refused_training_leaves_no_pairs(tmp_path, antiphon, monkeypatch, wrong):
    monkeypatch.chdir(tmp_path)
    write_csv(tmp_path / "toy.csv")
    (tmp_path / "taken").write_text("mine")
    assert antiphon("train", "toy.csv", *SMALL, *wrong).status == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["taken", "toy.csv"]


def test_force_replaces_the_pairs_of_the_run_and_no_others(tmp_path, antiphon):
    write_csv(tmp_path / "toy.csv")
    (tmp_path / "run-pairs").mkdir()
    (tmp_path / "run-pairs/train.tsv").write_text("mine\tmine\n")
    train = "train", tmp_path / "toy.csv", "--out", tmp_path / "run", "--force", *SMALL
    refused = antiphon(*train)
    assert (refused.status, "train.tsv: other pairs" in refused.err) == (2, True)
    (tmp_path / "run-pairs/train.tsv").unlink()
    assert antiphon(*train).status == 0
    before = (tmp_path / "run-pairs/train.tsv").read_text()
    (tmp_path / "toy.csv").write_text("".join(f"{word}x;{inflect(word)}\n" for word in words(80)))
    assert antiphon(*train).status == 0
    assert (tmp_path / "run-pairs/train.tsv").read_text() != before


def test_the_current_folder_takes_a_run_and_the_one_beside_it_its_pairs(tmp_path, antiphon, monkeypatch):
    write_csv(tmp_path / "toy.csv")
    (tmp_path / "run").mkdir()
    monkeypatch.chdir(tmp_path / "run")
    assert antiphon("train", "../toy.csv", "--out", ".", *SMALL).status == 0
    assert (tmp_path / "run-pairs/dev.tsv").exists()
    assert "has no folder beside it" in antiphon("train", "../toy.csv", "--out", "/", *SMALL).err


def test_a_dry_run_writes_nothing(tmp_path, antiphon):
    done = antiphon("train", write_csv(tmp_path / "toy.csv"), "--out", tmp_path / "run", "--dry-run", *SMALL)
    assert done.status == 0, done.err
    assert [path.name for path in tmp_path.iterdir()] == ["toy.csv"]


def test_files_of_further_pairs_may_have_any_form_too(tmp_path, antiphon):
    train = write_csv(tmp_path / "toy.csv")
    dev = tmp_path / "dev.tsv"
    dev.write_text("target\tsource\n" + "".join(f"{inflect(word)}\t{word}\n" for word in words(40, seed=1)))
    files = ["--set", f"data.dev={dev}", "--set", f"data.test={train}"]
    done = antiphon("train", train, "--out", tmp_path / "run", "--dry-run", *files, *SMALL)
    assert done.status == 0, done.err
    assert "dev     40 pairs" in done.err
    assert "test    80 of these pairs are learnt too" in done.err
    assert "held out" not in done.err


@pytest.mark.parametrize("words", [("g2p", "my.tsv"), ("g2p", "--train", "my.tsv"), ("--data", "my.tsv")])
def test_a_file_in_the_wrong_place_is_told_the_right_one(antiphon, words):
    done = antiphon("train", *words)
    assert done.status == 2
    assert done.err.count("\n") == 1
    assert "antiphon train FILE, or after a recipe as --set data.train=FILE" in done.err


def test_a_file_that_is_not_there_is_no_unknown_recipe(antiphon):
    done = antiphon("train", "my.tsv")
    assert (done.status, done.err[:31]) == (2, "antiphon: my.tsv: no such file,")


def test_a_stopped_run_is_ended_with_its_best_epoch(tmp_path, antiphon, monkeypatch):
    def stop(callback, epoch, metrics, model):
        if epoch == 2:
            raise KeyboardInterrupt

    long = ["train", "toy", "--out", tmp_path / "run", "--set", "model.hidden_size=8", "--minutes", "5"]
    with monkeypatch.context() as patch:
        patch.setattr("antiphon.training.callback.ProgressBar.on_epoch_end", stop)
        stopped = antiphon(*long)
    assert stopped.status == 130
    assert f"antiphon train {tmp_path / 'run'} --finish" in stopped.err
    done = antiphon("train", tmp_path / "run", "--finish")
    assert done.status == 0, done.err
    assert "in epoch 2 of 2" in done.err or "in epoch 1 of 2" in done.err
    assert not (tmp_path / "run-pairs").exists()
