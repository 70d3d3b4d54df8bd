"""A setting that a kind of model does not have is never ignored in silence."""

import tomllib
from dataclasses import fields
from inspect import Parameter, signature

import pytest

from antiphon.exceptions import RecipeError
from antiphon.models.transducer import TransducerSettings
from antiphon.nn.recurrent import LSTMSizes
from antiphon.recipe.kinds import KINDS
from antiphon.recipe.recipe_file import find_recipe, load_recipe, recipe_names, save_recipe
from antiphon.recipe.schema import Recipe, section_fields


@pytest.fixture
def recipe(tmp_path):
    def write(text):
        (tmp_path / "recipe.toml").write_text(text)
        return tmp_path / "recipe.toml"

    return write


@pytest.mark.parametrize("kind", [name for name, kind in KINDS.items() if kind.network is not None])
def test_a_section_has_the_settings_that_its_model_is_built_with(kind):
    from_data = {"source_size", "target_size", "feature_size", "write_probability"}
    decides_the_network = {"right_to_left"}
    sizes = TransducerSettings if kind == "transducer" else LSTMSizes
    assert set(arguments_of(KINDS[kind].network(), sizes)) - from_data == settings_in(kind) - decides_the_network


def arguments_of(model, sizes):
    """The names of the arguments of a constructor; further ones are the fields of a dataclass."""
    for name, parameter in signature(model).parameters.items():
        is_further = parameter.kind is Parameter.VAR_KEYWORD
        yield from [field.name for field in fields(sizes)] if is_further else [name]


def settings_in(kind):
    return set(KINDS[kind].section.model_fields) - {"kind"}


def test_every_mark_of_the_kinds_that_have_a_setting_is_found():
    """A mark inside a union is not: the setting would belong to all kinds."""
    for section in ("data", "train", "search"):
        for name, field in section_fields(section, KINDS["transducer"]).items():
            assert "UsedBy" not in repr(field.annotation), f"{section}.{name}"


@pytest.mark.parametrize(
    ("kind", "setting", "message"),
    [
        ("attention", "model.encoder=unidirectional", "model.encoder: kind attention has no such setting; it has hid"),
        ("attention", "model.encoder=bidirectional", "model.encoder: kind attention has no such setting"),
        ("encoder_decoder", "model.transition=geometric", "kind encoder_decoder has no such setting; it has hidden"),
        (
            "transformer",
            "model.forget_bias=1",
            "kind transformer has no such setting; it has hidden_size, layers, heads",
        ),
        ("language_model", "model.final_write=forced", "kind language_model has no such setting"),
        ("suffix_rule", "model.hidden_size=9", "kind suffix_rule has no such setting; it has none in the section"),
        ("suffix_rule", "data.max_cells=9", "it belongs to transducer, encoder_decoder"),
        ("noisy_channel", "model.sentence=lstm", "kind noisy_channel has no such setting; it has none"),
        ("matcher", "model.encoder=unidirectional", "kind matcher has no such setting; it has hidden"),
        ("matcher", "data.swap=true", "data.swap: kind matcher has no such setting"),
        ("overlap", "model.dropout=0.1", "kind overlap has no such setting; it has baseline"),
        ("transducer", "model.baseline=bm25", "kind transducer has no such setting"),
        ("transducer", "data.unpaired=more.txt", "data.unpaired: .* it belongs to language_model"),
    ],
)
def test_a_setting_that_the_kind_does_not_have_is_refused_by_name(recipe, kind, setting, message):
    with pytest.raises(RecipeError, match=message):
        load_recipe(recipe(""), [f"model.kind={kind}", setting])
    section, _, assignment = setting.partition(".")
    name, _, value = assignment.partition("=")
    quoted = value if value[0].isdigit() or value == "true" else f'"{value}"'
    text = f'[model]\nkind = "{kind}"\n{"" if section == "model" else "[data]" + chr(10)}{name} = {quoted}\n'
    with pytest.raises(RecipeError, match=message):
        load_recipe(recipe(text))


def test_a_change_of_kind_drops_the_settings_of_the_other_kind_and_says_so(recipe):
    path = recipe('[model]\nkind = "transducer"\nencoder = "unidirectional"\nhidden_size = 7\n')
    said = []
    changed = load_recipe(path, ["model.kind=attention"], said.append)
    assert said == [f"{path}: dropped for kind attention: model.encoder"]
    assert changed.model.hidden_size == 7
    assert not hasattr(changed.model, "encoder")
    same = load_recipe(path, ["model.kind=transducer"], said.append)
    assert same.model.encoder == "unidirectional"
    assert len(said) == 1


def test_what_is_wrong_in_several_places_is_said_together(recipe):
    with pytest.raises(RecipeError) as refused:
        load_recipe(recipe(""), ["model.kind=overlap", "model.layers=2", "model.dropout=0.1"])
    assert len(str(refused.value).splitlines()) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_recipe_holds_what_its_kind_has_and_loads_again(tmp_path, kind):
    recipe = Recipe(model=KINDS[kind].section())
    save_recipe(recipe, tmp_path / "saved.toml")
    saved = tomllib.loads((tmp_path / "saved.toml").read_text())["model"]
    unset = {name for name in settings_in(kind) if getattr(recipe.model, name) is None}
    assert saved.keys() - {"kind"} == settings_in(kind) - unset
    assert load_recipe(tmp_path / "saved.toml") == recipe


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "noisy_channel"])
def test_every_shipped_recipe_can_be_made_one_of_any_kind(kind):
    for name in recipe_names():
        assert load_recipe(find_recipe(name), [f"model.kind={kind}"]).model.kind == kind


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            ["model.heads=3"],
            r"model\.hidden_size = 256 with model\.heads = 3: heads of unequal size, expected a hidden",
        ),
        (
            ["model.hidden_size=8192"],
            r"model\.feedforward_size = 32768 and model\.layers = 4: about 7\.52 billion weights",
        ),
    ],
)
def test_a_transformer_that_cannot_be_is_refused(recipe, settings, message):
    with pytest.raises(RecipeError, match=message):
        load_recipe(recipe(""), ["model.kind=transformer", *settings])


@pytest.mark.parametrize(
    ("settings", "heads", "inner"),
    [
        ([], 4, 1024),
        (["model.hidden_size=50"], 2, 200),
        (["model.hidden_size=7", "model.feedforward_size=5"], 1, 5),
        (["model.hidden_size=48", "model.heads=6"], 6, 192),
    ],
)
def test_a_transformer_has_as_many_heads_and_units_as_fit_its_size(recipe, settings, heads, inner):
    given = load_recipe(recipe(""), ["model.kind=transformer", *settings]).model.arguments()
    assert (given["heads"], given["feedforward_size"]) == (heads, inner)


def test_a_learning_rate_chosen_for_lstms_is_dropped_for_a_transformer(recipe):
    path, said = recipe("[train]\nlearning_rate = 0.003\nwarmup_updates = 5\nclip = 2.0\n"), []
    changed = load_recipe(path, ["model.kind=transformer"], said.append)
    assert said == [f"{path}: chosen for LSTMs, dropped for a transformer: train.learning_rate, train.warmup_updates"]
    assert (changed.train.learning_rate, changed.train.warmup_updates, changed.train.clip) == (None, None, 2.0)
    asked = load_recipe(path, ["model.kind=transformer", "train.learning_rate=0.004"])
    assert (asked.train.learning_rate, asked.train.warmup_updates) == (0.004, None)
    assert load_recipe(path, ["model.kind=attention"]).train.learning_rate == 0.003
    own = recipe('[model]\nkind = "transformer"\n[train]\nlearning_rate = 0.003\n')
    assert load_recipe(own, ["model.kind=transformer"]).train.learning_rate == 0.003
