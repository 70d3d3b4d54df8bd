import csv
import errno
import json
import pickle
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

from antiphon.api.model import load
from antiphon.exceptions import InputError, RecipeError, RunError
from antiphon.metrics.output_metrics import RATIO_METRICS
from antiphon.recipe.recipe_file import find_recipe, load_recipe
from antiphon.runs.build import build_limits
from antiphon.runs.run_folder import RunFolder
from antiphon.storage.manifest import read_manifest
from antiphon.torch_free.readers import Pair
from antiphon.training.fit import train
from antiphon.training.loop import Interrupted
from antiphon.training.task import EpochBatches
from tests.campaign.crashes import fingerprint
from tests.sealing import seal_again
from tests.shared_folders import filled_once
from tests.toy import write_pairs, write_recipe

SMALL = [
    "model.hidden_size=12",
    "model.dropout=0.3",
    "train.max_epochs=4",
    "train.passes=2",
    "train.learning_rate=0.01",
    "train.final_learning_rate_ratio=0.1",
    "train.ema_decay=0.9",
    "train.dev_metric=accuracy",
    "train.patience=10",
]


def small_recipe(folder):
    """Gives a function that loads a recipe with small settings and with others."""
    path = write_recipe(folder, 120, 20)
    return lambda *settings: load_recipe(path, [*SMALL, *settings])


@pytest.fixture
def recipe(tmp_path):
    return small_recipe(tmp_path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run of the recipe, trained without an interruption."""
    folder = filled_once(tmp_path_factory, "whole", lambda folder: train(small_recipe(folder)(), folder / "run"))
    return RunFolder(folder / "run")


def log_without_times(run):
    with run.log.open() as file:
        rows = list(csv.DictReader(file))
    return [{name: value for name, value in row.items() if "second" not in name} for row in rows]


def assert_same_run(one, other):
    weights, others = load_file(one.weights), load_file(other.weights)
    assert weights.keys() == others.keys()
    assert all(torch.equal(weights[name], others[name]) for name in weights)
    assert log_without_times(one) == log_without_times(other)


class KilledError(Exception):
    pass


@pytest.fixture
def kill_in_epoch(monkeypatch):
    """Makes training die in the middle of an epoch, as a killed process would."""

    def arrange(epoch, update=2):
        shard = EpochBatches.shard

        def dying_shard(self, now, index, indices):
            if (now, index) == (epoch, update):
                raise KilledError
            return shard(self, now, index, indices)

        monkeypatch.setattr(EpochBatches, "shard", dying_shard)
        return lambda: monkeypatch.setattr(EpochBatches, "shard", shard)

    return arrange


def test_one_seed_gives_one_result_and_another_seed_another(recipe, tmp_path, whole):
    assert_same_run(whole, train(recipe(), tmp_path / "again"))
    other = train(recipe("train.seed=2"), tmp_path / "other")
    assert log_without_times(whole) != log_without_times(other)


@pytest.mark.parametrize("epoch", [0, 2])
def test_a_killed_run_resumed_ends_where_an_uninterrupted_one_ends(recipe, tmp_path, kill_in_epoch, epoch, whole):
    come_back = kill_in_epoch(epoch)
    with pytest.raises(KilledError):
        train(recipe(), tmp_path / "killed")
    come_back()
    resumed = train(recipe(), tmp_path / "killed", resume=True)
    assert_same_run(whole, resumed)
    assert resumed.metrics()["best_epoch"] == whole.metrics()["best_epoch"]


@pytest.mark.parametrize("kind", ["encoder_decoder", "attention", "transformer", "language_model", "transducer"])
def test_every_kind_resumes_where_it_was_killed(recipe, tmp_path, kill_in_epoch, kind):
    settings = [f"model.kind={kind}", "train.dev_metric=perplexity", "model.layers=2"]
    whole = train(recipe(*settings), tmp_path / "whole")
    come_back = kill_in_epoch(1)
    with pytest.raises(KilledError):
        train(recipe(*settings), tmp_path / "killed")
    come_back()
    assert_same_run(whole, train(recipe(*settings), tmp_path / "killed", resume=True))


def test_patience_ends_training_and_the_best_weights_are_kept(recipe, tmp_path):
    run = train(
        recipe("train.patience=2", "train.max_epochs=50", "train.learning_rate=1e-9", "train.ema_decay=0"),
        tmp_path / "run",
    )
    assert run.metrics()["epochs"] == run.metrics()["best_epoch"] + 2 < 50


def test_a_finished_run_holds_what_prediction_needs_and_nothing_that_executes(recipe, tmp_path):
    run = train(recipe("search.rule_weight=0"), tmp_path / "run")
    names = {path.name for path in run.path.iterdir()}
    assert names == {
        "manifest.json",
        "recipe.toml",
        "source.vocab",
        "target.vocab",
        "model.safetensors",
        "metrics.json",
        "log.csv",
        "training.png",
        "last.ckpt",
    }
    metrics = json.loads((run.path / "metrics.json").read_text())
    assert metrics["epochs"] == 4
    assert metrics["seed"] == 1
    assert metrics["pairs_per_second"] > 0


def test_a_folder_that_holds_a_run_is_refused_unless_forced(recipe, tmp_path):
    run = train(recipe(), tmp_path / "run")
    (run.path / "notes.txt").write_text("mine")
    with pytest.raises(RunError, match=r"holds a run already .* --resume .* --force"):
        train(recipe(), tmp_path / "run")
    train(recipe("train.max_epochs=1"), tmp_path / "run", force=True)
    assert run.metrics()["epochs"] == 1
    assert (run.path / "notes.txt").read_text() == "mine"


def test_resuming_a_finished_run_changes_nothing(recipe, tmp_path):
    run = train(recipe(), tmp_path / "run")
    before = run.weights.read_bytes()
    said = []
    train(recipe(), tmp_path / "run", say=said.append, resume=True)
    assert "ended already" in "\n".join(said)
    assert run.weights.read_bytes() == before


def test_resuming_with_other_settings_is_refused_by_name(recipe, tmp_path):
    train(recipe(), tmp_path / "run")
    with pytest.raises(
        RecipeError, match=r"train\.learning_rate is 0\.01 in the run, .* 0\.5 was asked for; .*recipe\.toml"
    ):
        train(recipe("train.learning_rate=0.5"), tmp_path / "run", resume=True)


def test_a_finished_run_made_longer_ends_where_one_of_that_length_ends(recipe, tmp_path, kill_in_epoch):
    constant = "train.final_learning_rate_ratio=1"
    whole = train(recipe(constant), tmp_path / "whole")
    run = train(recipe(constant, "train.max_epochs=2"), tmp_path / "run")
    assert run.metrics()["epochs"] == 2
    come_back = kill_in_epoch(2)
    with pytest.raises(KilledError):
        train(recipe(constant), tmp_path / "run", resume=True)
    come_back()
    resumed = train(recipe(constant), tmp_path / "run", resume=True)
    assert resumed.recipe().train.max_epochs == 4
    assert resumed.metrics()["epochs"] == 4
    assert_same_run(whole, resumed)


def test_a_run_that_ended_is_not_made_shorter_nor_longer_than_its_patience(recipe, tmp_path):
    said = []
    before = train(recipe("train.max_epochs=2"), tmp_path / "run").metrics()
    after = train(recipe("train.max_epochs=1"), tmp_path / "run", resume=True, say=said.append).metrics()
    assert before == after
    assert said == [f"{tmp_path / 'run'}: training has ended already, nothing to resume"]
    impatient = ["train.patience=1", "train.learning_rate=1e-9", "train.ema_decay=0"]
    train(recipe(*impatient), tmp_path / "other")
    with pytest.raises(RunError, match=r"ended before train\.max_epochs, so more epochs would change nothing"):
        train(recipe(*impatient, "train.max_epochs=9"), tmp_path / "other", resume=True)


@pytest.mark.parametrize("kind", ["transducer", "language_model"])
def test_a_test_file_is_read_before_training(recipe, tmp_path, kind):
    (tmp_path / "broken.tsv").write_text("good\tpair\nfour\tcolumns\tare\tmany\n")
    for name, message in (("missing.tsv", "no such file"), ("broken.tsv", "broken.tsv:2: 4 columns")):
        settings = recipe(f"data.test={tmp_path / name}", f"model.kind={kind}", "train.dev_metric=perplexity")
        with pytest.raises(InputError, match=message):
            train(settings, tmp_path / "run")
        assert not (tmp_path / "run").exists()


def test_dev_metrics_while_training_are_those_of_evaluate(recipe, tmp_path):
    """Also where the dev targets hold words that training never saw, which evaluate never counts as right."""
    short = ["search.max_length_ratio=1", "search.max_length_extra=2"]  # an endless output would count as a missing one
    words = ["data.target_tokens=words", "data.source_tokens=chars", "train.dev_metric=symbol_error_rate"]
    for name, seed in (("train", 1), ("dev", 2)):
        path = write_pairs(tmp_path / f"{name}.tsv", 60, seed)
        rows = [line.split("\t") for line in path.read_text().splitlines()]
        path.write_text("".join(f"{source}\t{' '.join(target)}\n" for source, target in rows))
    path.write_text(path.read_text() + "bad\tq q a n\nbad\tx a x d\n")
    run = train(recipe(*words, "data.min_count=8", *short), tmp_path / "run")
    model = load(run.path)
    pairs = [Pair(*line.split("\t"), (), "") for line in path.read_text().splitlines()]
    measured = model.evaluate(pairs, beam=1).metrics
    for name, score in measured.items():
        assert run.metrics()[f"dev_{name}"] == pytest.approx(score.value, rel=1e-5), name


@pytest.mark.parametrize(
    ("saved", "kept"), [(0, "no checkpoint was saved yet"), (2, "the last checkpoint is complete")]
)
def test_a_full_disk_leaves_the_last_checkpoint_whole(recipe, tmp_path, monkeypatch, whole, saved, kept):
    save = torch.save

    def fill_the_disk(checkpoint, file):
        if checkpoint["epochs"] <= saved:
            return save(checkpoint, file)
        file.write(b"half a checkpoint")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(torch, "save", fill_the_disk)
    with pytest.raises(RunError, match=f"the disk is full; {kept}"):
        train(recipe(), tmp_path / "full")
    monkeypatch.undo()
    assert not list((tmp_path / "full").glob(".antiphon-*"))
    assert_same_run(whole, train(recipe(), tmp_path / "full", resume=True))


def test_a_dev_metric_without_its_library_is_refused_before_training(recipe, tmp_path, monkeypatch):
    monkeypatch.delitem(RATIO_METRICS, "rouge1")
    words = "train.dev_metric=rouge1", "data.source_tokens=words", "data.target_tokens=words"
    with pytest.raises(RecipeError, match=r"train\.dev_metric = rouge1: rouge-score is missing"):
        train(recipe(*words), tmp_path / "run")


def test_a_listwise_loss_of_a_transducer_is_refused_before_training(recipe, tmp_path):
    with pytest.raises(
        RecipeError, match=r"listwise_weight = 1: kind transducer ranks no candidates, .* kind matcher$"
    ):
        train(recipe("train.listwise_weight=1"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_label_smoothing_of_a_matcher_is_refused_before_training(tmp_path):
    questions = tmp_path / "questions.tsv"
    questions.write_text("question_id\tquestion\tcandidate_id\tsentence\tlabel\nq1\twho\ta1\tyou\t1\n")
    settings = [f"data.train={questions}", f"data.dev={questions}", "train.label_smoothing=0.2"]
    with pytest.raises(
        RecipeError, match=r"label_smoothing = 0\.2: kind matcher predicts no tokens, expected 0 or one"
    ):
        train(load_recipe(find_recipe("answer-selection"), settings), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_disk_that_is_full_from_the_start_is_said_in_one_sentence(recipe, tmp_path):
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))\nfrom antiphon.cli import main; main()"
    )
    command = [sys.executable, "-c", code, "train", tmp_path / "recipe.toml", "--out", tmp_path / "full"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    message = "full: the disk is full; nothing is lost, make room and give the command again"
    assert message in done.stderr.splitlines()[-1]
    assert not (tmp_path / "full").exists()


def test_ctrl_c_leaves_a_run_that_can_be_resumed(recipe, tmp_path, monkeypatch, whole):
    shard = EpochBatches.shard

    def press_ctrl_c(self, epoch, index, indices):
        if epoch == 2:
            raise KeyboardInterrupt
        return shard(self, epoch, index, indices)

    monkeypatch.setattr(EpochBatches, "shard", press_ctrl_c)
    with pytest.raises(Interrupted, match="continue with --resume"):
        train(recipe(), tmp_path / "stopped")
    monkeypatch.undo()
    assert_same_run(whole, train(recipe(), tmp_path / "stopped", resume=True))


def test_force_keeps_the_old_run_until_the_new_one_has_weights(recipe, tmp_path, monkeypatch):
    out = tmp_path / "run"
    train(recipe(), out)
    before, shard = digests_of(out), EpochBatches.shard

    def press_ctrl_c(self, epoch, index, indices):
        assert (digests_of(out) == before) == (epoch == 0)
        assert load(out).predict(["badu"])[0].text
        if (epoch, index) == stop:
            raise KeyboardInterrupt
        return shard(self, epoch, index, indices)

    monkeypatch.setattr(EpochBatches, "shard", press_ctrl_c)
    stop = (0, 2)
    with pytest.raises(Interrupted, match="run: stopped; the old run is unchanged; start again with --force"):
        train(recipe("train.seed=7"), out, force=True)
    assert digests_of(out) == before
    assert not list(out.glob(".antiphon-*"))
    stop = (1, 0)
    with pytest.raises(Interrupted, match="continue with --resume"):
        train(recipe("train.seed=7"), out, force=True)
    monkeypatch.undo()
    resumed = train(recipe("train.seed=7"), out, resume=True)
    assert_same_run(train(recipe("train.seed=7"), tmp_path / "whole"), resumed)


def digests_of(run):
    """The digests of the files of a run, as its manifest has them."""
    return read_manifest(run).files


def test_a_damaged_checkpoint_is_named(recipe, tmp_path, kill_in_epoch, recwarn):
    come_back = kill_in_epoch(1)
    with pytest.raises(KilledError):
        train(recipe(), tmp_path / "run")
    come_back()
    (tmp_path / "run" / "last.ckpt").write_bytes(b"nonsense")
    with pytest.raises(RunError, match=r"last\.ckpt: damaged, or changed by hand .* --force"):
        train(recipe(), tmp_path / "run", resume=True)
    seal_again(tmp_path / "run")
    before = fingerprint(tmp_path)
    with pytest.raises(RunError, match=r"last\.ckpt: damaged .* --force starts again"):
        train(recipe(), tmp_path / "run", resume=True)
    assert fingerprint(tmp_path) == before
    (tmp_path / "run" / "last.ckpt").write_bytes(pickle.dumps(print, protocol=4))
    seal_again(tmp_path / "run")
    with pytest.raises(RunError, match=r"last\.ckpt: damaged \(UnpicklingError\)"):
        train(recipe(), tmp_path / "run", resume=True)
    assert not [each for each in recwarn if "pickle protocol" in str(each.message)]


def test_a_checkpoint_of_another_model_is_refused_before_a_run_gets_another_length(recipe, tmp_path, kill_in_epoch):
    come_back = kill_in_epoch(1)
    with pytest.raises(KilledError):
        train(recipe(), tmp_path / "run")
    come_back()
    checkpoint = torch.load(tmp_path / "run/last.ckpt", weights_only=True)
    name, weight = next(iter(checkpoint["model"].items()))
    checkpoint["model"][name] = weight[:-1]
    torch.save(checkpoint, tmp_path / "run/last.ckpt")
    seal_again(tmp_path / "run")
    before = fingerprint(tmp_path)
    with pytest.raises(RunError, match=r"last\.ckpt: does not fit the model"):
        train(recipe("train.max_epochs=9"), tmp_path / "run", resume=True)
    assert fingerprint(tmp_path) == before


def test_what_training_leaves_out_is_reported(recipe, tmp_path):
    said = []
    train(recipe("data.max_source_length=3", "train.max_epochs=1"), tmp_path / "run", say=said.append)
    assert "source too long" in "\n".join(said)


def test_limits_of_length_are_of_the_columns_of_the_file_whichever_the_model_reads(recipe):
    limits = [
        build_limits(recipe("data.max_source_length=3", "data.max_target_length=5", f"data.swap={swap}"))
        for swap in ("false", "true")
    ]
    assert [(each.max_source_length, each.max_target_length) for each in limits] == [(3, 5), (5, 3)]


def test_rare_tokens_become_unknown(recipe, tmp_path):
    run = train(recipe("data.min_count=40", "train.max_epochs=1"), tmp_path / "run")
    few = (run.path / "source.vocab").read_text().split("\n")
    everything = train(recipe("train.max_epochs=1"), tmp_path / "all")
    assert len(few) < len((everything.path / "source.vocab").read_text().split("\n"))


@pytest.mark.parametrize("swap", [False, True])
def test_sentencepiece_models_are_trained_and_travel_with_the_run(recipe, tmp_path, swap):
    settings = ["data.source_tokens=sentencepiece", "data.sentencepiece_size=40", "train.max_epochs=1"]
    run = train(recipe(*settings, f"data.swap={str(swap).lower()}"), tmp_path / "run")
    assert (run.path / ("target.spm" if swap else "source.spm")).exists()
    again = train(
        recipe(*settings, f"data.swap={str(swap).lower()}", f"data.vocab_from={run.path}"), tmp_path / "again"
    )
    name = "target.spm" if swap else "source.spm"
    assert (again.path / name).read_bytes() == (run.path / name).read_bytes()


def test_a_language_model_needs_no_sentencepiece_model_of_its_empty_source(recipe, tmp_path):
    pieces = ["data.source_tokens=sentencepiece", "data.target_tokens=sentencepiece", "data.sentencepiece_size=40"]
    settings = ["model.kind=language_model", "train.max_epochs=1", "train.dev_metric=perplexity"]
    run = train(recipe(*settings, *pieces), tmp_path / "run")
    assert not (run.path / "source.spm").exists()
    assert load(run.path).score([("", "baaduun")])[0] < 0


def test_a_weight_for_suffix_rules_that_there_are_not_is_refused_before_training(recipe, tmp_path):
    with pytest.raises(RecipeError, match=r"search\.rule_weight = 0\.3: no suffix rules here, expected 0"):
        train(recipe("search.rule_weight=0.3", "train.dev_metric=perplexity"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_training_without_data_says_how_to_give_it(recipe, tmp_path):
    (tmp_path / "bare.toml").write_text("")
    with pytest.raises(RecipeError, match=r"data\.train: unset, .* --set data\.train=FILE"):
        train(load_recipe(tmp_path / "bare.toml"), tmp_path / "run")
