"""A trained run is searched with other settings: the outputs are those of a run whose recipe has them."""

import shutil

import pytest

from antiphon import load
from antiphon.exceptions import InputError, RecipeError
from antiphon.recipe.schema import Recipe
from antiphon.runs.combined_runs import combine_runs
from antiphon.runs.run_folder import RunFolder
from tests.lite.drawn_runs import write_run
from tests.sealing import seal_again

WORDS = "fade\nbeg\nhgfedcba\ncab\n"
LENGTHS = ["--set", "search.length_bias=2.5", "--set", "search.max_length_extra=3"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return write_run(tmp_path_factory.mktemp("drawn") / "run", "unidirectional")


@pytest.fixture
def words(tmp_path):
    (tmp_path / "words.txt").write_text(WORDS)
    return tmp_path / "words.txt"


def with_search(run, folder, **search):
    """A copy of a run whose recipe has other settings of the search."""
    copy = RunFolder(shutil.copytree(run, folder))
    table = copy.recipe().model_dump()
    copy.save_recipe(Recipe.model_validate(table | {"search": table["search"] | search}))
    seal_again(folder)
    return folder


def test_predict_searches_with_other_settings_and_leaves_the_run_as_it_is(antiphon, run, words, tmp_path):
    before = (run / "recipe.toml").read_bytes()
    changed = antiphon("predict", run, words, *LENGTHS)
    assert changed.status == 0, changed.err
    other = with_search(run, tmp_path / "other", length_bias=2.5, max_length_extra=3)
    assert changed.out == antiphon("predict", other, words).out != antiphon("predict", run, words).out
    assert (run / "recipe.toml").read_bytes() == before


def test_a_noisy_channel_is_searched_with_other_weights(antiphon, run, words, tmp_path):
    channel = write_run(tmp_path / "channel", "unidirectional", swap=True, seed=1)
    lm = write_run(tmp_path / "lm", "language_model", seed=2)
    weights = {"first": (1.0, 0.7, 0.4, 0.5), "second": (0.2, 1.0, 1.0, 2.0)}
    for name, given in weights.items():
        combine_runs(run, channel, lm, tmp_path / name, {"weights": given}, force=False)
    changed = antiphon("predict", tmp_path / "first", words, "--set", "search.weights=[0.2, 1, 1, 2]")
    first, second = (antiphon("predict", tmp_path / name, words).out for name in weights)
    assert changed.out == second != first


def test_evaluate_and_stream_search_with_other_settings(antiphon, run, words, tmp_path):
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("".join(f"{word}\tA B\n" for word in WORDS.split()))
    other = with_search(run, tmp_path / "other", length_bias=2.5, max_length_extra=3)
    changed, expected, before = (
        antiphon("evaluate", *given, "--json") for given in ([run, pairs, *LENGTHS], [other, pairs], [run, pairs])
    )
    assert changed.out == expected.out != before.out
    margin, option = (
        antiphon("stream", run, *given, stdin=WORDS.encode())
        for given in (["--set", "search.commit_margin=0.01"], ["--margin", "0.01"])
    )
    assert margin.out == option.out
    assert margin.status == 0


@pytest.mark.parametrize("command", ["predict", "evaluate", "stream"])
@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("train.seed=7", "--set: train.seed: needs another training, expected a setting of the search"),
        ("search.beem=7", "--set: search.beem: unknown key, did you mean beam?"),
        ("search.beam=0", "--set: search.beam = 0: input should be greater than 0"),
        (
            "search.weights=[1,1,1,1]",
            "search.weights: kind transducer has no such setting; it belongs to noisy_channel",
        ),
        ("search.direct_outputs=5", "search.direct_outputs: kind transducer has no such setting"),
        ("search.rule_weight=0.5", "rules.tsv: missing, expected the suffix rules of the run"),
        ("beam=7", "--set beam=7: expected section.key=value"),
    ],
)
def test_other_settings_are_refused_in_a_sentence(antiphon, run, words, command, setting, message):
    files = [] if command == "stream" else [words]
    done = antiphon(command, run, *files, "--set", setting)
    assert done.status == 2
    assert message in done.err
    assert len(done.err.splitlines()) == 1


def test_models_are_loaded_with_other_settings(run):
    settings = {"search.length_bias": 2.5, "search.max_length_extra": 3}
    assert load(run, settings=settings).predict(["fade"]) == load(run, settings=LENGTHS[1::2]).predict(["fade"])
    with pytest.raises(RecipeError, match=r"settings: model\.layers: needs another training"):
        load(run, settings={"model.layers": 2})
    with pytest.raises(InputError, match=r"settings = 'search.beam=20': expected a dict such as \{'search.beam': 20\}"):
        load(run, settings="search.beam=20")
