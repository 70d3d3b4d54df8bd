import tomllib

import pytest

from antiphon.exceptions import RecipeError
from antiphon.recipe.recipe_file import change_search, find_recipe, load_recipe, parse_recipe, save_recipe
from antiphon.recipe.schema import Recipe


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
    with pytest.raises(RecipeError, match=r": a folder, expected a recipe in TOML or a file of pairs"):
        load_recipe(tmp_path)


def test_a_saved_recipe_is_the_same_recipe(tmp_path):
    recipe = load_recipe(write(tmp_path, '[data]\ntrain = "a.tsv"\n[train]\nema_decay = 0.9\n'))
    save_recipe(recipe, tmp_path / "saved.toml")
    assert parse_recipe(tomllib.loads((tmp_path / "saved.toml").read_text()), "saved") == recipe


@pytest.mark.parametrize(
    "setting",
    [
        *(
            "train.learning_rate=inf",
            "train.l2=inf",
            "train.clip=nan",
            "model.forget_bias=nan",
            "search.length_bias=-inf",
        ),
        *("search.weights=[1, 1, nan, 0]", "train.learning_rate=nan", "search.threshold=inf", "model.dropout=0.999"),
        *(
            "train.seed=18446744073709551615",
            "model.layers=100000",
            "search.beam=1000000000",
            "model.hidden_size=10**9",
        ),
        *("search.max_length_extra=1000000000", "train.batch_size=9223372036854775808", "search.batch_size=1000000"),
        *(
            "search.proposals=100000",
            "search.proposals=100000",
            "data.sentencepiece_size=1000000000",
            "train.dev_beam=10000",
        ),
    ],
)
def test_settings_are_finite_and_bounded(tmp_path, setting):
    key = setting.partition("=")[0]
    with pytest.raises(RecipeError, match=rf"{key} = .*: input should be"):
        load_recipe(write(tmp_path, ""), [setting])


def test_models_that_fit_into_no_memory_are_refused_by_their_size(tmp_path):
    with pytest.raises(RecipeError, match=r"model\.hidden_size = 20000 .* about 9\.6 billion weights \(38\.4 GB\)"):
        load_recipe(write(tmp_path, "[model]\nhidden_size = 20000\n"))
    with pytest.raises(RecipeError, match=r"model\.layers = 64: about 6\.44 billion weights"):
        load_recipe(write(tmp_path, "[model]\nhidden_size = 2048\nlayers = 64\n"))


def test_one_unpaired_file_needs_no_list(tmp_path):
    recipe = write(tmp_path, '[data]\nunpaired = "a.txt"\n[model]\nkind = "language_model"\n')
    assert load_recipe(recipe).data.unpaired == (tmp_path / "a.txt",)
    assert [path.name for path in load_recipe(recipe, ["data.unpaired=b.txt"]).data.unpaired] == ["b.txt"]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("x = " + "[" * 3000 + "]" * 3000, "nested too deeply"),
        ("a" + ".a" * 50_000 + " = 1", "nested too deeply"),
        ("[train]\nseed = 1" + "0" * 5000, "not TOML"),
        ("[train]\nseed = 0x" + "f" * 5000, r"train\.seed = a number of thousands of digits: input should be"),
        ('[data]\ntrain = "a\\u0000b"', r"data\.train = .*not UTF-8 or with NUL"),
        ("[model]\nkind = " + '"' + "x" * 10_000 + '"', r"model\.kind = 'x+\.\.\.x+': input should be"),
        ("#" * (2**24 + 1), "more than 16,777,216 bytes"),
    ],
)
def test_strange_recipes_are_refused_in_a_short_sentence(tmp_path, text, part):
    with pytest.raises(RecipeError, match=part) as caught:
        load_recipe(write(tmp_path, text))
    assert len(str(caught.value)) < 1000


def test_a_setting_may_be_as_strange_as_a_recipe(tmp_path):
    for value in ("[" * 3000 + "]" * 3000, "1" + "0" * 5000, "\x1b[31m", "\udcff"):
        with pytest.raises(RecipeError):
            load_recipe(write(tmp_path, ""), [f"model.layers={value}"])
    with pytest.raises(RecipeError, match="not UTF-8"):
        load_recipe(write(tmp_path, ""), ["data.train=\udcff"])


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("search.beam=true", "search.beam = true: input should be neither true nor false"),
        ("train.label_smoothing=false", "train.label_smoothing = false: input should be neither true nor false"),
        ("search.beam=2024-01-01", "search.beam = 2024-01-01: input should be a valid integer"),
        ("search.beam=3\nnfc = true", r"search.beam = '3\nnfc = true': input should be a valid integer"),
        ("data.train=3", "data.train = 3: input should be a path, or a list of two for parallel files"),
        ("data.nfc=maybe", "data.nfc = 'maybe': input should be true or false"),
        ("search.BEAM=3", "search.BEAM: unknown key, did you mean beam?"),
        ("train.lr=0.1", "train.lr: unknown key, did you mean learning_rate?"),
        ("model.type=attention", "model.type: unknown key, did you mean kind?"),
        ("search.xyzzy=3", "search.xyzzy: unknown key, expected one of antiphon settings"),
    ],
)
def test_values_of_another_type_are_refused_in_words_of_recipes(tmp_path, setting, message):
    with pytest.raises(RecipeError) as caught:
        load_recipe(write(tmp_path, ""), [setting])
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ("1", "search.weights = 1: input should be a list"),
        ("[]", "search.weights = []: input should be a longer list"),
        ("[1, 2, 3, 4, 5]", "search.weights = [1, 2, 3, 4, 5]: input should be a list of at most 4"),
        ("[true, 1, 1, 1]", "search.weights = [True, 1, 1, 1]: input should be neither true nor false"),
    ],
)
def test_a_list_of_another_length_is_refused(weights, message):
    recipe = Recipe.model_validate({"model": {"kind": "noisy_channel"}})
    with pytest.raises(RecipeError) as caught:
        change_search(recipe, [f"search.weights={weights}"])
    assert str(caught.value).startswith(f"--set: {message}")


def test_a_section_that_does_not_exist_needs_no_other_training():
    with pytest.raises(RecipeError, match=r"--set: SEARCH\.beam: no such section, expected search"):
        change_search(Recipe(), ["SEARCH.beam=3"])


def test_a_wrong_key_is_blamed_on_what_set_it(tmp_path):
    path = write(tmp_path, "[model]\nlayer = 2\n")
    with pytest.raises(RecipeError) as raised:
        load_recipe(path, ["data.trian=x.tsv"])
    lines = [
        f"{path}: model.layer: unknown key, did you mean layers?",
        "--set: data.trian: unknown key, did you mean train?",
    ]
    assert sorted(str(raised.value).splitlines()) == sorted(lines)
    with pytest.raises(RecipeError, match=r"^settings: data\.trian: "):
        load_recipe(write(tmp_path, ""), {"data.trian": "x.tsv"})


def test_a_recipe_of_the_package_is_called_by_its_name():
    said = []
    load_recipe(find_recipe("g2p"), ["model.kind=attention"], said.append)
    assert said == ["recipe g2p: dropped for kind attention: model.encoder, model.transition, model.right_to_left"]
    with pytest.raises(RecipeError, match=r"expected a TOML file or one of the package: g2p"):
        find_recipe("G2P")
