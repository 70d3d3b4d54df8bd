"""Several seeds in one command: an ensemble, whose members are trained one after another."""

import json

import pytest

import antiphon as package
from antiphon.exceptions import AntiphonError
from antiphon.recipe.recipe_file import load_recipe
from antiphon.runs.combined_runs import ensemble_runs, run_digest
from antiphon.runs.run_folder import RunFolder
from antiphon.training.fit import train
from antiphon.training.seeds import train_seeds
from tests.toy import write_recipe

RECIPE = """
[model]
hidden_size = 12
[train]
max_epochs = 2
learning_rate = 0.01
seed = 7
"""


@pytest.fixture
def recipe(tmp_path):
    path = write_recipe(tmp_path, 60, 20, RECIPE)
    return lambda *settings: load_recipe(path, settings)


def test_seeds_give_what_training_with_each_and_an_ensemble_of_them_give(recipe, tmp_path):
    runs = [train(recipe(f"train.seed={seed}"), tmp_path / str(seed)) for seed in (7, 8)]
    by_hand = ensemble_runs([run.path for run in runs], tmp_path / "by-hand", force=False)
    before = sorted(tmp_path.iterdir())
    run = train_seeds(recipe(), tmp_path / "run", 2)
    assert run_digest(run) == run_digest(by_hand)
    assert sorted(tmp_path.iterdir()) == sorted([*before, run.path])


def test_members_that_were_trained_before_it_was_stopped_are_kept(recipe, tmp_path):
    train(recipe(), tmp_path / "run-member-1")
    said = []
    run = train_seeds(recipe(), tmp_path / "run", 2, say=said.append, resume=True)
    assert f"{tmp_path / 'run-member-1'}: training has ended already, nothing to resume" in said
    assert [part.recipe().train.seed for part in run.parts().values()] == [7, 8]
    train_seeds(recipe(), tmp_path / "run", 2, say=said.append, resume=True)
    assert said[-1] == f"{tmp_path / 'run'}: training has ended already, nothing to resume"


def test_files_of_others_beside_a_member_stay(recipe, tmp_path):
    notes = tmp_path / "run-member-2/notes.txt"
    notes.parent.mkdir()
    notes.write_text("mine")
    train_seeds(recipe(), tmp_path / "run", 2)
    assert [path.name for path in notes.parent.iterdir()] == ["notes.txt"]
    assert not (tmp_path / "run-member-1").exists()


def test_a_run_where_a_member_belongs_is_never_replaced(recipe, tmp_path):
    mine = train(recipe(), tmp_path / "run-member-2")
    before = run_digest(mine)
    with pytest.raises(AntiphonError, match="run-member-2: holds a run already"):
        train_seeds(recipe(), tmp_path / "run", 2, force=True)
    assert run_digest(mine) == before
    assert not (tmp_path / "run-member-1").exists()


@pytest.mark.parametrize(
    ("settings", "options", "message"),
    [
        (["model.kind=language_model"], {}, "--seeds: a run of kind language_model, expected one that predicts"),
        (["model.kind=suffix_rule"], {}, "--seeds: a run of kind suffix_rule, expected one that predicts"),
        ([], {"seeds": 1}, "seeds = 1: expected a whole number, at least 2"),
        ([], {"seeds": 17}, "seeds: too large, expected a whole number, at most 16"),
    ],
)
def test_what_cannot_become_an_ensemble_is_refused_before_training(recipe, tmp_path, settings, options, message):
    before = sorted(tmp_path.iterdir())
    with pytest.raises(AntiphonError, match=message):
        train_seeds(recipe(*settings), tmp_path / "run", **({"seeds": 2} | options))
    assert sorted(tmp_path.iterdir()) == before


def test_a_run_is_neither_overwritten_nor_continued_as_one_with_other_members(recipe, tmp_path):
    train_seeds(recipe(), tmp_path / "run", 2)
    with pytest.raises(AntiphonError, match="holds a run already"):
        train_seeds(recipe(), tmp_path / "run", 2)
    with pytest.raises(AntiphonError, match="a run with 2 members, expected 3"):
        train_seeds(recipe(), tmp_path / "run", 3, resume=True)
    assert len(train_seeds(recipe(), tmp_path / "run", 3, force=True).parts()) == 3


def test_the_command_leaves_one_run_with_its_dev_metrics(antiphon, recipe, tmp_path):
    arguments = (tmp_path / "recipe.toml", "--seeds", "2", "--out", tmp_path / "run")
    estimate = antiphon("train", *arguments, "--dry-run")
    assert "with --seeds 2, 2 such models, one after another" in estimate.err
    assert not (tmp_path / "run").exists()
    assert antiphon("train", *arguments).status == 0
    evaluated = json.loads(antiphon("evaluate", tmp_path / "run", tmp_path / "dev.tsv", "--json").out)
    assert RunFolder(tmp_path / "run").metrics()["dev"]["metrics"] == evaluated["metrics"]
    assert antiphon("export", tmp_path / "run", "--out", tmp_path / "exported").status == 0
    outputs = {antiphon("predict", tmp_path / name, tmp_path / "dev.tsv").out for name in ("run", "exported")}
    assert len(outputs) == 1
    again = antiphon("train", *arguments)
    assert again.status == 2
    assert again.err.count("\n") == 1


def test_minutes_are_those_of_all_members_together(antiphon, recipe, tmp_path):
    antiphon("train", tmp_path / "recipe.toml", "--seeds", "2", "--minutes", "1", "--out", tmp_path / "run")
    parts = RunFolder(tmp_path / "run").parts().values()
    assert [part.recipe().train.minutes for part in parts] == [0.5, 0.5]


def test_python_trains_several_seeds_too(recipe, tmp_path):
    model = package.train(recipe(), tmp_path / "run", seeds=2)
    assert model.kind == "ensemble"
    assert len(RunFolder(tmp_path / "run").parts()) == 2
