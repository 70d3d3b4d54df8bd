import tomllib

import pytest

from antiphon.config import load_recipe, parse_recipe, save_recipe
from antiphon.errors import RecipeError


def write(tmp_path, text):
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    return path


def test_settings_go_on_top_of_the_file(tmp_path):
    path = write(tmp_path, "[model]\nhidden_size = 64\nlayers = 2\n[train]\nseed = 3\n")
    recipe = load_recipe(path, ["model.hidden_size=32", "train.learning_rate=0.01", "model.encoder=unidirectional"])
    assert (recipe.model.hidden_size, recipe.model.layers, recipe.train.seed) == (32, 2, 3)
    assert recipe.train.learning_rate == 0.01
    assert recipe.model.encoder == "unidirectional"


def test_paths_in_a_file_start_there_and_paths_in_settings_here(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    path = write(tmp_path, '[data]\ntrain = "train.tsv"\ndev = ["dev.fr", "dev.en"]\n')
    monkeypatch.chdir(tmp_path / "here")
    data = load_recipe(path, ["data.test=test.tsv"]).data
    assert data.train == tmp_path / "train.tsv"
    assert data.dev == (tmp_path / "dev.fr", tmp_path / "dev.en")
    assert data.test == tmp_path / "here" / "test.tsv"


def test_everything_wrong_is_said_at_once_with_the_nearest_name(tmp_path):
    path = write(tmp_path, "[model]\nhiden_size = 3\ndropout = 1.5\n[trian]\nseed = 1\n[data]\ntrain = 3\n")
    with pytest.raises(RecipeError) as caught:
        load_recipe(path, ["train.seed=x"])
    message = str(caught.value)
    assert "model.hiden_size: unknown key, did you mean hidden_size?" in message
    assert "model.dropout = 1.5: input should be less than or equal to 0.99" in message
    assert "trian: unknown key, did you mean train?" in message
    assert "train.seed = 'x': input should be a valid integer" in message
    assert "data.train = 3:" in message
    assert len(message.splitlines()) == 5


@pytest.mark.parametrize("setting", ["seed=3", "train.seed", "=", "train.=3"])
def test_a_setting_without_section_or_value_is_refused(tmp_path, setting):
    with pytest.raises(RecipeError, match=r"expected section\.key=value"):
        load_recipe(write(tmp_path, ""), [setting])


def test_what_is_no_toml_is_named(tmp_path):
    with pytest.raises(RecipeError, match=r"recipe\.toml: not TOML \(.*line 1"):
        load_recipe(write(tmp_path, "[model\n"))
    with pytest.raises(RecipeError, match=r"none\.toml: no such file"):
        load_recipe(tmp_path / "none.toml")


def test_a_sentencepiece_model_needs_sentencepiece_tokens(tmp_path):
    with pytest.raises(RecipeError, match=r'expected data\.source_tokens = "sentencepiece"'):
        load_recipe(write(tmp_path, '[data]\nsource_sentencepiece = "x.model"\n'))


def test_a_saved_recipe_is_the_same_recipe(tmp_path):
    recipe = load_recipe(write(tmp_path, '[data]\ntrain = "a.tsv"\n[train]\naverage = 0.9\n'))
    save_recipe(recipe, tmp_path / "saved.toml")
    assert parse_recipe(tomllib.loads((tmp_path / "saved.toml").read_text()), "saved") == recipe
