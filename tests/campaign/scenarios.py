"""Commands that write folders and files, on data so small that a training takes a moment, and what they start from."""

import hashlib
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import MagicMock

from antiphon import lite
from antiphon.api.model import load
from antiphon.report import plots
from antiphon.runs.run_folder import RunFolder
from antiphon.settings_search import search
from antiphon.storage.manifest import holds_run
from tests.campaign.forks import call, in_fork
from tests.toy import write_pairs, write_questions, write_vectors

_DATA = '[data]\ntrain = "train.tsv"\ndev = "dev.tsv"\n'
_SIZES = (
    "[model]\nhidden_size = 4\ndropout = 0.1\n"
    '[train]\nmax_epochs = 2\npasses = 1\nbatch_size = 16\ndev_metric = "perplexity"\n'
)
_COUNTED = '[model]\nkind = "suffix_rule"\n[train]\ndev_metric = "accuracy"\n'
_QUESTIONS = '[data]\ntrain = "questions.tsv"\ndev = "questions.tsv"\n'
_MATCHER = ["--set", "data.vectors=vectors.txt", "--set", "model.hidden_size=4", "--set", "train.max_epochs=1"]
_TRAIN = ["train", "recipe.toml", "--out", "run"]
_COMBINE = ["combine", "--direct", "direct", "--channel", "channel", "--lm", "lm", "--out", "both"]
_SET_CHANNEL = ["--set", "data.swap=true", "--set", "model.encoder=unidirectional"]
_SET_LM = ["--set", "model.kind=language_model", "--set", "data.vocab_from=direct"]
_EXPORT = ["export", "direct", "--out", "lite"]
_STABLE = (".safetensors", ".vocab", "rules.tsv", "recipe.toml", ".onnx", "lite.json", ".zip", ".txt")
"""Files that are the same, bit by bit, whenever a command is repeated."""


def open_run(path):
    """Whether there is a run, which is loaded if it is trained."""
    if not holds_run(path):
        return False
    run = RunFolder.open(path)
    if run.metrics():
        load(run.path)
    return True


def open_exported(path):
    """Whether there is an exported run, which is loaded."""
    return (path / "lite.json").exists() and bool(lite.load(path))


@dataclass(frozen=True)
class Scenario:
    """A command, the folder that it starts from, and what it writes: a run, or what ``is_there`` finds and loads.

    ``resume`` are options with which it goes on once that is there; without them, the same command is repeated.
    ``repeatable`` commands end the same however often they are given.
    """

    command: list[str]
    before: str
    written: str = "run"
    resume: tuple[str, ...] = ()
    repeatable: bool = True
    is_there: Callable[[Path], bool] = open_run

    def next_command(self, is_there):
        """What a user types after a crash."""
        return [*self.command, *(self.resume if is_there else ())]


SCENARIOS = {
    "train": Scenario(_TRAIN, "data", resume=("--resume",)),
    "train --force": Scenario([*_TRAIN, "--force", "--set", "train.seed=2"], "trained"),
    "train --resume": Scenario([*_TRAIN, "--resume"], "begun"),
    "train, counting": Scenario(["train", "counted.toml", "--out", "run", "--resume"], "data"),
    "combine": Scenario(_COMBINE, "parts", "both", ("--force",)),
    "combine --force": Scenario([*_COMBINE, "--force", "--weights", "1,1,1,1"], "combined", "both"),
    "tune": Scenario(["tune", "both", "dev.tsv", "--rounds", "2", "--nbest", "2"], "combined", "both", (), False),
    "grid": Scenario(
        ["grid", "counted.toml", "--grid", "data.min_count=1,2", "--out", "grid"],
        "data",
        "grid/data.min_count=1",
    ),
    "export": Scenario(_EXPORT, "combined", "lite", ("--help",), is_there=open_exported),  # nothing is left to do
}


class Workshop:
    """A folder ``work`` for commands, always at the same path, that can be put back to what it was."""

    def __init__(self, root):
        self.work, self.kept = Path(root) / "work", Path(root) / "kept"
        self.work.mkdir(parents=True)

    def keep(self, name):
        """Remembers the folder as it is."""
        shutil.copytree(self.work, self.kept / name)

    def restore(self, name):
        """Makes the folder what it was."""
        shutil.rmtree(self.work)
        shutil.copytree(self.kept / name, self.work)

    def call(self, arguments, before=lambda: None):
        """Gives a command in the folder, in a forked process; ``before`` is called in it first."""

        def work():
            os.chdir(self.work)
            before()
            return call(*arguments)

        return in_fork(work)

    def must(self, *commands):
        """Gives commands that have to succeed."""
        for command in commands:
            status, said = self.call(command)
            assert status == 0, f"{command}: {said}"

    def stable_files(self):
        """Every file, with the digest of those that are the same whenever a command is repeated."""
        paths = (path for path in self.work.rglob("*") if path.is_file())
        return {str(path.relative_to(self.work)): _digest(path) for path in paths}


def _digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.name.endswith(_STABLE) else ""


def open_workshop(root):
    """A workshop that knows the folders that all commands start from."""
    make_cheap()
    shop = Workshop(root)
    write_pairs(shop.work / "train.tsv", 40, 1)
    write_pairs(shop.work / "dev.tsv", 6, 2)
    (shop.work / "recipe.toml").write_text(_DATA + _SIZES)
    (shop.work / "counted.toml").write_text(_DATA + _COUNTED)
    shop.keep("data")
    warm_up(shop)
    assert shop.call(_TRAIN, stop_after_an_epoch)[0] == 3
    shop.keep("begun")
    shop.must([*_TRAIN, "--resume"])
    shop.keep("trained")
    shop.restore("data")
    once = ["train", "recipe.toml", "--set", "train.max_epochs=1", "--out"]
    shop.must([*once, "direct"], [*once, "channel", *_SET_CHANNEL], [*once, "lm", *_SET_LM])
    shop.keep("parts")
    shop.must(_COMBINE)
    shop.keep("combined")
    return shop


def warm_up(shop):
    """Imports in this process all that the forked ones need, by training, exporting and predicting in it once."""
    before = Path.cwd()
    os.chdir(shop.work)
    assert call(*_TRAIN)[0] == 0
    assert call("export", "run", "--out", "lite")[0] == 0
    lite.load("lite")
    load("run")
    os.chdir(before)
    shop.restore("data")


def stop_after_an_epoch():
    """Ends this process when a second epoch of training begins."""
    from antiphon.training.loop import TrainingLoop

    train_epoch = TrainingLoop._train_epoch
    TrainingLoop._train_epoch = lambda self, *args: os._exit(3) if self.history.rows else train_epoch(self, *args)


def make_cheap():
    """Replaces what takes long and is no matter here: drawing."""
    figure = MagicMock()
    figure.subplots.return_value.__iter__.side_effect = lambda: iter((MagicMock(), MagicMock()))
    figure.savefig.side_effect = lambda path, **_: Path(path).write_bytes(b"a picture")
    plots._figure = lambda *_: figure
    search._GRACE_SECONDS = 1  # until a trial of a killed process is trained again


def make_runs_of_every_kind(shop):
    """Finished runs of every kind, and one in training, in the workshop."""
    shop.restore("combined")
    write_questions(shop.work / "questions.tsv", 12, 1)
    write_vectors(shop.work / "vectors.txt")
    (shop.work / "questions.toml").write_text(_QUESTIONS)
    ask = ["train", "questions.toml", "--out"]
    pieces = ["--set", "data.source_tokens=sentencepiece", "--set", "data.sentencepiece_size=24"]
    shop.must(
        ["train", "recipe.toml", "--out", "transducer", *pieces],
        ["train", "recipe.toml", "--out", "attention", "--set", "model.kind=attention"],
        ["train", "recipe.toml", "--out", "transformer", "--set", "model.kind=transformer"],
        ["train", "recipe.toml", "--out", "encoder_decoder", "--set", "model.kind=encoder_decoder"],
        ["train", "counted.toml", "--out", "suffix_rule"],
        [*ask, "matcher", "--set", "model.kind=matcher", "--set", "model.overlap=true", *_MATCHER],
        [*ask, "overlap", "--set", "model.kind=overlap", "--set", "train.dev_metric=map"],
    )
    assert shop.call(["train", "recipe.toml", "--out", "in training"], stop_after_an_epoch)[0] == 3
    names = [
        "transducer",
        "attention",
        "transformer",
        "encoder_decoder",
        "lm",
        "suffix_rule",
        "both",
        "matcher",
        "overlap",
    ]
    return [shop.work / name for name in (*names, "in training")]
