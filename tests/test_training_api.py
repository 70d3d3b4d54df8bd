"""``antiphon.train``: recipes in every form, callbacks, silence, and no trace in the process."""

import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars
import pytest
import torch

import antiphon
from antiphon.recipe.recipe_file import as_table, find_recipe, load_recipe
from tests.toy import words, write_pairs

SMALL = {
    "model.hidden_size": 8,
    "model.layers": 1,
    "train.max_epochs": 2,
    "train.passes": 1,
    "train.final_learning_rate_ratio": 1,  # so that a longer training begins like a shorter one
    "search.beam": 2,
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("training")
    return {
        "data.train": write_pairs(folder / "train.tsv", 60),
        "data.dev": write_pairs(folder / "dev.tsv", 10, seed=1),
    }


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """A small model, trained by the Python API."""
    return antiphon.train("toy", tmp_path_factory.mktemp("runs") / "small", settings=SMALL | data)


def weights_of(model):
    return {name: tensor.clone() for name, tensor in model.module.state_dict().items()}


def assert_same_weights(one, other):
    torch.testing.assert_close(weights_of(one), weights_of(other), rtol=0, atol=0)


def test_a_name_a_path_a_dict_and_a_recipe_train_the_same_model(trained, data, tmp_path):
    own = find_recipe("toy")
    whole = load_recipe(own, [f"{key}={value}" for key, value in (SMALL | data).items()])
    forms = {"path": own, "string": str(own), "dict": as_table(whole), "recipe": whole}
    for name, recipe in forms.items():
        settings = SMALL | data if name in ("path", "string") else {}
        assert_same_weights(antiphon.train(recipe, tmp_path / name, settings=settings), trained)


def test_the_model_that_comes_back_is_the_one_in_the_folder(trained, data, tmp_path):
    model = antiphon.train(
        "toy", tmp_path / "run", settings=[f"{key}={value}" for key, value in (SMALL | data).items()]
    )
    assert_same_weights(antiphon.load(tmp_path / "run"), model)
    assert_same_weights(model, trained)


def test_training_says_nothing_unless_asked(data, tmp_path, capfd):
    antiphon.train("toy", tmp_path / "quiet", settings=SMALL | data)
    assert capfd.readouterr() == ("", "")
    antiphon.train("toy", tmp_path / "loud", settings=SMALL | data, progress=True)
    shown = capfd.readouterr()
    assert "epoch 2/2" in shown.err
    assert shown.out == ""


def test_callbacks_hear_of_every_epoch(data, tmp_path):
    class Epochs(antiphon.Callback):
        heard = ()

        def on_epoch_end(self, epoch, metrics, model):
            assert isinstance(model, torch.nn.Module)
            self.heard += ((epoch, metrics["train_loss"] > 0),)

    epochs = Epochs()
    antiphon.train("toy", tmp_path / "run", settings=SMALL | data, callbacks=[epochs])
    assert epochs.heard == ((1, True), (2, True))


def test_a_callback_ends_training_and_keeps_the_best_epoch(data, tmp_path):
    class Enough(antiphon.Callback):
        def on_epoch_end(self, epoch, metrics, model):
            self.stop_training = epoch == 2

    settings = SMALL | data | {"train.max_epochs": 4}
    model = antiphon.train("toy", tmp_path / "run", settings=settings, callbacks=[Enough()])
    metrics = json.loads((tmp_path / "run/metrics.json").read_text())
    assert metrics["epochs"] == 2
    assert model.predict(["badu"])[0].text is not None
    longer = antiphon.train("toy", tmp_path / "run", settings=settings | {"train.max_epochs": 5}, resume=True)
    assert json.loads((tmp_path / "run/metrics.json").read_text())["epochs"] == 5
    assert_same_weights(longer, antiphon.train("toy", tmp_path / "whole", settings=settings | {"train.max_epochs": 5}))


def rows_of(file):
    return [line.split("\t") for line in file.read_text().splitlines()]


@pytest.mark.parametrize("form", ["lists", "tuples", "pandas", "polars", "mapping"])
def test_pairs_train_what_their_file_trains(trained, data, tmp_path, form, monkeypatch):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    pairs = {}
    for name in ("train", "dev"):
        rows = rows_of(data[f"data.{name}"])
        columns = dict(zip(("source", "target"), map(list, zip(*rows, strict=True)), strict=True))
        if form in ("pandas", "polars"):
            columns = pytest.importorskip(form).DataFrame(columns)
        pairs[f"{name}_pairs"] = {"lists": rows, "tuples": list(map(tuple, rows))}.get(form, columns)
    assert_same_weights(antiphon.train("toy", tmp_path / "run", settings=SMALL, **pairs), trained)
    assert not list(scratch.iterdir())


def test_pairs_with_features_are_written_in_the_columns_of_the_recipe(tmp_path):
    pairs = [(word, f"{word}{tag[-1].lower()}", tag) for word in words(20) for tag in ("N;SG", "N;PL")]
    settings = {"model.kind": "suffix_rule", "data.columns": "features source target"}
    model = antiphon.train("inflection", tmp_path / "run", settings=settings, train_pairs=pairs, dev_pairs=pairs[:4])
    assert model.evaluate(pairs).metrics["accuracy"].value == 100


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([], "train_pairs: no pairs, expected at least one"),
        ("pairs", "train_pairs: a single input 'pairs', expected a list"),
        ([("a\tb", "c")], "train_pairs: pair .*: a tab or a line break, expected none"),
        ([("a", "\ud800")], "train_pairs: .* is no character, expected text"),
        ([("a", "b", "N"), ("a", "b")], "no features, but the run was trained with them"),
        ([5], "pair 5: expected"),
        ({"source": ["a"]}, "frame: no column 'target', expected it among source"),
    ],
)
def test_pairs_that_cannot_be_trained_on_are_refused_in_a_sentence(data, tmp_path, pairs, message):
    with pytest.raises(antiphon.AntiphonError, match=message):
        antiphon.train("toy", tmp_path / "run", settings=SMALL | data, train_pairs=pairs)
    assert not (tmp_path / "run").exists()


def test_errors_speak_of_arguments_instead_of_options(trained, data, tmp_path):
    out = tmp_path / "run"
    antiphon.train("toy", out, settings=SMALL | data)
    for call in (
        lambda: antiphon.train("toy", out, settings=SMALL | data),
        lambda: antiphon.train("g2p", tmp_path / "other"),
        lambda: antiphon.train("toy", tmp_path / "other", settings=data, device="cuda:x"),
        lambda: antiphon.load(out, device="tpu"),
    ):
        with pytest.raises(antiphon.AntiphonError) as caught:
            call()
        assert "--" not in str(caught.value)
    with pytest.raises(antiphon.RunError, match="resume=True continues a training, force=True replaces the run"):
        antiphon.train("toy", out, settings=SMALL | data)


def test_lists_are_pairs_too(trained):
    assert trained.evaluate([["badu", "baaduun"]]).to_dict() == trained.evaluate([("badu", "baaduun")]).to_dict()


def test_a_run_can_be_made_longer_and_is_replaced_only_by_force(trained, data, tmp_path):
    out, settings = tmp_path / "run", SMALL | data
    antiphon.train("toy", out, settings=settings)
    with pytest.raises(antiphon.RunError, match="holds a run already"):
        antiphon.train("toy", out, settings=settings)
    longer = settings | {"train.max_epochs": 3}
    resumed = antiphon.train("toy", out, settings=longer, resume=True)
    assert_same_weights(resumed, antiphon.train("toy", tmp_path / "whole", settings=longer))
    assert_same_weights(antiphon.train("toy", out, settings=settings, force=True), trained)


def test_ctrl_c_raises_keyboard_interrupt_and_resuming_gives_the_same_model(trained, data, tmp_path):
    class Stop(antiphon.Callback):
        def on_epoch_end(self, epoch, metrics, model):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match="resume"):
        antiphon.train("toy", tmp_path / "run", settings=SMALL | data, callbacks=[Stop()])
    assert_same_weights(antiphon.train("toy", tmp_path / "run", settings=SMALL | data, resume=True), trained)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"recipe": "toi"}, "toi: no such recipe"),
        ({"recipe": 5}, "recipe = 5: expected a path"),
        ({"recipe": None}, "recipe = None: expected a path"),
        ({"recipe": {"modle": {}}}, "modle"),
        ({"out": None}, "out = None: expected a path"),
        ({"out": ""}, "out = '': expected a path"),
        ({"settings": "train.seed=1"}, "settings = 'train.seed=1': expected a dict"),
        ({"recipe": [("a", "b")] * 80, "settings": ["seed"]}, "seed: expected section.key=value"),
        ({"recipe": [("a", "b")] * 80, "settings": [7]}, "settings: 7, expected 'section.key=value'"),
        ({"settings": {"seed": 1}}, "settings: 'seed', expected section.key such as train.seed"),
        ({"settings": {"train.sead": 1}}, "did you mean seed"),
        ({"settings": {"train.max_epochs": "many"}}, "train.max_epochs = "),
        ({"threads": 0}, "threads = 0: expected a whole number, at least 1"),
        ({"device": "tpu"}, "device tpu: expected auto, cpu or cuda"),
        ({"callbacks": [antiphon.Callback]}, "expected a list of antiphon.Callback objects"),
        ({"callbacks": antiphon.Callback()}, "expected a list of antiphon.Callback objects"),
    ],
)
def test_what_cannot_be_trained_is_refused_in_a_sentence(changes, message, tmp_path):
    arguments = {"recipe": "toy", "out": tmp_path / "run"} | changes
    with pytest.raises(antiphon.AntiphonError) as refused:
        antiphon.train(**arguments)
    assert message in str(refused.value)
    assert not (tmp_path / "run").exists()


SIDE_EFFECTS = """
import json, os, random, sys, warnings
import numpy, torch
import rich.console, sympy  # these two draw a random number and add a filter when they are imported

def state():
    return {
        "torch random numbers": torch.get_rng_state().tolist(),
        "numpy random numbers": repr(numpy.random.get_state()),
        "python random numbers": random.getstate(),
        "threads": torch.get_num_threads(),
        "matmul precision": torch.get_float32_matmul_precision(),
        "gradients": torch.is_grad_enabled(),
        "dtype": torch.get_default_dtype(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "warnings": list(warnings.filters),
    }

def check(name):
    changed = [part for part, value in state().items() if value != before[part]]
    assert not changed, (name, changed)

torch.manual_seed(5)
torch.set_num_threads(2)
before = state()
import antiphon
check("import")
model = antiphon.train("toy", "run", settings=json.loads(sys.argv[1]))
check("train")
antiphon.train("toy", "other", settings=json.loads(sys.argv[1]), threads=1)
check("train with threads")
model = antiphon.load("run")
check("load")
model.predict(["badu"], nbest=2)
model.predict(["badu"], sample=2)
model.score([("badu", "baaduun")])
model.evaluate([("badu", "baaduun")])
model.errors([("badu", "baaduun")])
list(model.align([("badu", "baaduun")]))
check("use")
"""


def test_importing_training_loading_and_predicting_leave_the_process_as_it_was(data, tmp_path):
    settings = json.dumps(
        {key: str(value) if isinstance(value, Path) else value for key, value in (SMALL | data).items()}
    )
    command = [sys.executable, "-c", SIDE_EFFECTS, settings]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_several_models_in_eight_threads_answer_as_one_does(trained, toy_run):
    models, inputs = (trained, antiphon.load(toy_run)), words(24, seed=9)

    def answer(task):
        model, start = task
        some = inputs[start : start + 3]
        predictions = [each.to_dict() for each in models[model].predict(some, nbest=2)]
        return predictions, models[model].score([(word, "baaduun") for word in some])

    tasks = [(model, start) for start in range(0, 24, 3) for model in (0, 1)]
    alone = list(map(answer, tasks))
    with ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            assert list(pool.map(answer, tasks)) == alone


def test_what_is_wrong_with_pairs_names_no_copy_of_them(tmp_path):
    with pytest.raises(antiphon.InputError, match=r"^pairs: 1 pair, expected 60 or more to learn from"):
        antiphon.train([("a", "b")], tmp_path / "run")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["list", "frame", "file"])
def test_pairs_alone_are_learnt_in_any_form(kind, tmp_path):
    pairs = [(word, word[::-1]) for word in words(80)]
    given = pairs if kind == "list" else polars.DataFrame(pairs, schema=["source", "target"], orient="row")
    if kind == "file":
        given = tmp_path / "pairs.csv"
        given.write_text("source,target\n" + "".join(f"{source},{target}\n" for source, target in pairs))
    model = antiphon.train(given, tmp_path / "run", settings=SMALL)
    assert model.recipe.data.source_tokens == "chars"
    held = (tmp_path / "run-pairs/dev.tsv").read_text().splitlines()
    assert len(held) == 20
    assert antiphon.train(
        given, tmp_path / "run", settings=[f"{key}={value}" for key, value in SMALL.items()], force=True
    )
