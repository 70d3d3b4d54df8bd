"""Settings are described as they are."""

import pytest

from antiphon.recipe.kinds import KINDS
from antiphon.recipe.schema import Recipe, all_settings


def described():
    return {setting.key: setting for setting in all_settings()}


def test_every_setting_has_a_type_in_plain_words_and_a_meaning():
    settings = described()
    recipes = [Recipe(model=kind.section()) for kind in KINDS.values()]
    assert settings.keys() == {
        f"{section}.{name}" for recipe in recipes for section, values in recipe.model_dump().items() for name in values
    }
    for setting in settings.values():
        assert setting.meaning
        assert not any(sign in setting.type for sign in ("typing", "class", "Annotated", "None")), setting


@pytest.mark.parametrize(
    ("key", "type_", "default"),
    [
        ("model.dropout", "number (>= 0, <= 0.99)", "0.5"),
        ("data.swap", "true or false", "false"),
        ("data.source_tokens", "chars | words | sentencepiece", "chars"),
        ("data.train", "path | list of 2 paths", "unset"),
        ("data.unpaired", "list of paths", "()"),
    ],
)
def test_types_and_defaults_are_those_of_the_recipe(key, type_, default):
    assert (described()[key].type, described()[key].default) == (type_, default)


def test_settings_of_some_kinds_say_which(antiphon):
    assert described()["model.encoder"].kinds == ("transducer",)
    assert described()["data.unpaired"].kinds == ("language_model",)
    assert described()["data.nfc"].kinds == ()
    assert "of transducer" in antiphon("settings", "model.encoder").out
    assert "of " not in antiphon("settings", "train.seed").out.partition("whole number")[2]


def test_settings_are_listed_by_section_and_key(antiphon, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert "train.ema_decay" in antiphon("settings").out
    one = antiphon("settings", "train.seed").out
    assert "train.seed" in one
    assert "train.ema_decay" not in one
    section = antiphon("settings", "search").out
    assert "search.beam" in section
    assert "train.seed" not in section
    assert all(len(line) <= 80 for line in antiphon("settings").out.splitlines())


def test_a_word_lists_all_settings_whose_key_contains_it(antiphon):
    found = antiphon("settings", "beam").out
    assert "search.beam" in found
    assert "train.dev_beam" in found
    assert "`" not in antiphon("settings").out


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("train.sed", "did you mean train.seed"),
        ("model.hiden_size", "did you mean model.hidden_size or model.embedding_size"),
        ("x", "expected a key"),
    ],
)
def test_a_key_that_there_is_not_is_answered_with_the_nearest(antiphon, key, hint):
    result = antiphon("settings", key)
    assert result.status == 2
    assert hint in result.err
