"""The recipes with the thesis's own settings: what a run has been trained with, as its folder says."""

import tomllib

import pytest

from tests.toy import inflect, words

NONE_OF_OURS = {
    "model": {
        "right_to_left": False,
        "final_write": "learned",
        "context": "none",
        "copy_unknown": False,
        "copy_words": False,
        "tie_output": False,
        "forget_bias": 0.0,
    },
    "train": {
        "optimiser": "adam",
        "final_learning_rate_ratio": 1.0,
        "warmup_updates": 0,
        "l2": 0.0,
        "l2_of": "mean",
        "label_smoothing": 0.0,
        "hallucination": 0.0,
        "hidden_sources": 0.0,
        "listwise_weight": 0.0,
        "ema_decay": 0.0,
        "clip": 5.0,
        "batch_size": 32,
    },
    "search": {
        "over": "paths",
        "threshold": 1e6,
        "rule_weight": 0.0,
        "length_normalisation": 0.0,
        "length_bias": 0.0,
    },
}
PRINTED = {
    "thesis-inflection": {"hidden_size": 128, "layers": 1, "dropout": 0.5, "learning_rate": 0.001, "beam": 30},
    "thesis-summarisation": {"hidden_size": 256, "layers": 1, "dropout": 0.2, "learning_rate": 0.001, "beam": 1},
    "thesis-translation": {"hidden_size": 512, "layers": 1, "dropout": 0.5, "learning_rate": 0.001, "beam": 10},
    "thesis-lm": {"hidden_size": 1024, "layers": 2, "dropout": 0.5, "learning_rate": 0.0001},
}
NO_CHANGE_OF_THE_MODEL = {
    "model": {"kind", "encoder", "transition"},
    "train": {
        *("seed", "max_epochs", "max_updates", "min_passes", "passes", "patience", "dev_metric", "dev_beam"),
        *("max_batch_cells", "precision", "checkpoint_minutes"),
    },
}
GEOMETRIC = {"model.transition": "geometric"}
ONE_WAY = {"model.encoder": "unidirectional"}
CASES = [
    *((recipe, {}) for recipe in PRINTED),
    *((recipe, GEOMETRIC) for recipe in PRINTED if recipe != "thesis-lm"),
    ("thesis-inflection", ONE_WAY),
    ("thesis-inflection", ONE_WAY | GEOMETRIC),
    ("thesis-inflection", {"model.kind": "attention"}),
    ("thesis-inflection", {"model.kind": "encoder_decoder"}),
]


@pytest.fixture
def train(antiphon, tmp_path):
    """Trains a recipe for one pass over toy pairs; the recipe that the run was saved with."""

    def train(recipe, settings):
        is_inflection = recipe == "thesis-inflection"
        lines = [(word, inflect(word)) for word in words(60)]
        pairs = [(one, other) if is_inflection else (" ".join(one), " ".join(other)) for one, other in lines]
        (tmp_path / "pairs.tsv").write_text("".join(f"{one}\t{other}\n" for one, other in pairs))
        files = {f"data.{name}": tmp_path / "pairs.tsv" for name in ("train", "dev")}
        given = {**files, "train.max_epochs": 1, "train.passes": 1, **settings}
        options = [part for key, value in given.items() for part in ("--set", f"{key}={value}")]
        result = antiphon("train", recipe, *options, "--out", tmp_path / "run")
        assert result.status == 0, result.err
        return tomllib.loads((tmp_path / "run/recipe.toml").read_text())

    return train


@pytest.mark.parametrize(("recipe", "settings"), CASES, ids=lambda case: case if isinstance(case, str) else str(case))
def test_a_run_of_a_thesis_recipe_has_what_the_thesis_prints_and_nothing_of_ours(train, recipe, settings):
    saved = train(recipe, settings)
    if saved["model"]["kind"] != "transducer":  # others have no alignments to search for
        assert saved["search"].pop("over") == "outputs"
    searches = saved["model"]["kind"] != "language_model"
    for section, expected in NONE_OF_OURS.items():
        found = {
            key: value for key, value in saved[section].items() if key in expected and (searches or section != "search")
        }
        assert found == {key: expected[key] for key in found}
    printed = PRINTED[recipe]
    found = {key: value for section in ("model", "train", "search") for key, value in saved[section].items()}
    assert {key: found[key] for key in printed} == printed
    assert all(saved["model"][key.removeprefix("model.")] == value for key, value in settings.items())


@pytest.mark.parametrize("recipe", PRINTED)
def test_every_setting_of_a_run_is_printed_or_known_to_change_nothing(train, recipe):
    saved = train(recipe, {})
    for section, neutral in NO_CHANGE_OF_THE_MODEL.items():
        assert saved[section].keys() <= neutral | NONE_OF_OURS[section].keys() | PRINTED[recipe].keys()
