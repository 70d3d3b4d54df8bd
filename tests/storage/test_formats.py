"""Runs of older formats are read as they were meant, or refused in one sentence."""

import json
import shutil

import pytest
from safetensors.torch import load_file, save_file

import antiphon as package
from antiphon.exceptions import RunError
from antiphon.runs.noisy_channel_run import combine_runs
from antiphon.runs.run_folder import RunFolder, open_for_writing
from antiphon.storage.migrations import FORMAT, migrate
from tests.sealing import seal_again

OF_COPYING = ("counterparts", "transition.written.weight", "transition.written.bias")
OF_OTHER_KINDS = {
    "data": ['encoder = "an_encoder"', "more_words = 7", "unpaired = []"],
    "model": ['sentence = "lstm"', "frozen = true", 'baseline = "bm25"'],
}
"""What runs spelt out once, though their kind had no use for it."""
RECIPE = {
    "data": {"features": False, "feature_order": "sorted"},
    "model": {"kind": "transducer", "forget_bias": 1.0},
    "train": {},
}


def _as_in_format_2(line):
    return line.replace("ema_decay", "average").replace("final_learning_rate_ratio", "final_learning_rate")


def make_format_2(run):
    """Turns a run into what format 2 would have left: old names, and every setting of every kind."""
    lines = [_as_in_format_2(line) for line in (run / "recipe.toml").read_text().splitlines()]
    for section, more in OF_OTHER_KINDS.items():
        place = lines.index(f"[{section}]") + 1
        lines[place:place] = more
    (run / "recipe.toml").write_text("\n".join(lines) + "\n")
    seal_again(run, format=2)


def make_old(run, features="false"):
    """Turns a run into what format 1 would have left: no copying, and an order of features."""
    lines = (run / "recipe.toml").read_text().splitlines()
    lines = [_as_in_format_2(line) for line in lines if line.split(" ")[0] not in ("tie", "features", "forget_bias")]
    lines.insert(lines.index("[data]") + 1, f'features = {features}\nfeature_order = "sorted"')
    lines.insert(lines.index("[model]") + 1, "forget_bias = 0.5")
    (run / "recipe.toml").write_text("\n".join(lines) + "\n")
    weights = load_file(run / "model.safetensors")
    save_file({name: weights[name] for name in weights if name not in OF_COPYING}, run / "model.safetensors")
    seal_again(run, format=1)


@pytest.fixture
def old_run(toy_run, tmp_path):
    run = shutil.copytree(toy_run, tmp_path / "old")
    make_old(run)
    return run


def test_a_recipe_of_format_1_loses_the_order_of_features_and_copies_nothing():
    migrated = migrate(RECIPE, 1)
    assert migrated == {
        "data": {"features": False},
        "model": {"kind": "transducer", "forget_bias": 1.0, "tie": "none"},
        "train": {},
    }
    assert RECIPE["data"]["feature_order"] == "sorted"
    other = {"data": {}, "model": {"kind": "attention"}, "train": {}}
    assert migrate(other, 1) == other


def test_weights_of_format_1_load_and_predict(old_run):
    model = package.load(old_run)
    assert model.recipe.model.tie == "none"
    assert model.recipe.model.forget_bias == 0.5
    assert model.predict(["badu"])[0].text


def test_a_run_of_format_1_with_features_is_refused_in_one_sentence(antiphon, toy_run, tmp_path):
    run = shutil.copytree(toy_run, tmp_path / "old")
    make_old(run, features="true")
    with pytest.raises(RunError, match=r"old: a run with features of format 1, expected .* train it again$"):
        package.load(run)
    result = antiphon("predict", run, stdin=b"badu\tN\n")
    assert result.status == 2
    assert result.err.count("\n") == 1


@pytest.mark.parametrize("damage", ["data = 3\nmodel = 4\ntrain = 5\nsearch = 6\n", "[data]\n[model]\n"])
def test_a_damaged_recipe_of_format_1_is_one_sentence(old_run, damage):
    (old_run / "recipe.toml").write_text(damage)
    seal_again(old_run, format=1)
    with pytest.raises(RunError, match=r"recipe.toml: damaged"):
        package.load(old_run)


def test_a_run_that_is_changed_gets_todays_format(old_run):
    before = package.load(old_run).predict(["badu"])[0].text
    with open_for_writing(old_run) as run, run.changed() as new:
        new.save_metrics({"parameters": 1})
    assert json.loads((old_run / "manifest.json").read_text())["format"] == FORMAT
    assert "feature_order" not in (old_run / "recipe.toml").read_text()
    assert package.load(old_run).predict(["badu"])[0].text == before


def test_a_run_of_format_1_can_be_part_of_a_new_one(old_run, tmp_path):
    combine_runs(old_run, None, None, tmp_path / "combined", {}, force=False)
    model = package.load(tmp_path / "combined")
    assert model.predict(["badu"])[0].text == package.load(old_run).predict(["badu"])[0].text


def test_a_combined_run_of_format_1_is_changed_with_its_parts(toy_run, tmp_path):
    run = tmp_path / "combined"
    combine_runs(toy_run, None, None, run, {}, force=False)
    make_old(run / "direct")
    lines = [line for line in (run / "recipe.toml").read_text().splitlines() if not line.startswith("tie")]
    lines.insert(lines.index("[data]") + 1, 'feature_order = "sorted"')
    (run / "recipe.toml").write_text("\n".join(lines) + "\n")
    seal_again(run, format=1)
    before = package.load(run).predict(["badu"])[0].text
    with open_for_writing(run) as folder, folder.changed() as new:
        new.save_metrics({"parameters": 1})
    assert RunFolder.open(run).format == FORMAT
    assert package.load(run).predict(["badu"])[0].text == before


def test_a_run_of_format_2_loads_with_new_names_and_without_settings_of_other_kinds(toy_run, tmp_path):
    run = shutil.copytree(toy_run, tmp_path / "old")
    make_format_2(run)
    assert "\naverage = " in (run / "recipe.toml").read_text()
    old, new = package.load(run), package.load(toy_run)
    assert without_paths(old.recipe) == without_paths(new.recipe)
    assert old.predict(["badu"]) == new.predict(["badu"])
    with open_for_writing(run) as folder, folder.changed() as changed:
        changed.save_metrics({"parameters": 1})
    assert without_paths(RunFolder.open(run).recipe()) == without_paths(new.recipe)
    settings = [
        [
            line
            for line in (folder / "recipe.toml").read_text().splitlines()
            if not line.startswith(("train =", "dev ="))
        ]
        for folder in (run, toy_run)
    ]
    assert settings[0] == settings[1]


def without_paths(recipe):
    """The settings of a recipe without the names of its data, which are relative to the run folder."""
    return recipe.model_dump(exclude={"data": {"train", "dev"}})


def test_format_3_renames_settings_and_gives_a_matcher_its_encoder():
    train = {"average": 0.5, "final_learning_rate": 0.1, "seed": 3}
    old = {"data": {"encoder": "here"}, "model": {"kind": "matcher"}, "train": train}
    assert migrate(old, 2) == {
        "data": {},
        "model": {"kind": "matcher", "pretrained": "here"},
        "train": {"ema_decay": 0.5, "final_learning_rate_ratio": 0.1, "seed": 3},
    }
    other = migrate(old | {"model": {"kind": "attention"}}, 2)
    assert (other["data"], other["model"]) == ({}, {"kind": "attention"})
    channel = migrate(old | {"model": {"kind": "noisy_channel", "hidden_size": 7}}, 2)
    assert channel["model"] == {"kind": "noisy_channel"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("train.average=0.9", "train.ema_decay"),
        ("train.final_learning_rate=0.1", "train.final_learning_rate_ratio"),
        ("data.encoder=here", "model.pretrained"),
    ],
)
def test_an_old_name_of_a_setting_is_answered_with_the_new_one(antiphon, tmp_path, old, new):
    result = antiphon("train", "toy", "--set", old, "--out", tmp_path / "run")
    assert result.status == 2
    assert f"{old.partition('=')[0]}: renamed, expected {new}" in result.err
