"""Data that were encoded once are used again, and only while they are what they were."""

import pytest

from antiphon.exceptions import InputError, RecipeError
from antiphon.recipe.recipe_file import load_recipe
from antiphon.runs.run_folder import RunFolder
from antiphon.torch_free.vocab import END, UNKNOWN
from antiphon.training import prepare as preparation
from antiphon.training.fit import train
from antiphon.training.prepare import encoded_dev_pairs, prepare, prepare_again
from tests.sealing import seal_again
from tests.toy import write_pairs


@pytest.fixture
def recipe(tmp_path):
    write_pairs(tmp_path / "train.tsv", 60, 1)
    write_pairs(tmp_path / "dev.tsv", 10, 2)
    (tmp_path / "recipe.toml").write_text('[data]\ntrain = "train.tsv"\ndev = "dev.tsv"\n[model]\nhidden_size = 8\n')

    def with_settings(*settings):
        return load_recipe(tmp_path / "recipe.toml", [*settings, "train.max_epochs=1", "train.passes=1"])

    return with_settings


@pytest.fixture
def cached(recipe, tmp_path):
    return lambda *settings: recipe(f"data.cache={tmp_path / 'cache'}", *settings)


@pytest.fixture
def fresh_run(tmp_path):
    def make(name="run"):
        (tmp_path / name).mkdir()
        return RunFolder(tmp_path / name)

    return make


@pytest.fixture
def text_is_out_of_reach(monkeypatch):
    """From here on reading pairs is an error."""

    def forbid():
        def read(*_, **__):
            raise AssertionError("text was read again")

        for name in ("read_pairs", "read_targets"):
            monkeypatch.setattr(preparation, name, read)
        monkeypatch.setattr("antiphon.training.fit.warn_about_data", lambda *_: None)  # reads a limited number of pairs

    return forbid


def prepare_run(recipe, run, say):
    """Prepared data in a folder that has become a run."""
    settings, prepared = prepare(recipe, run, say)
    run.save_recipe(settings.recipe)
    seal_again(run.path)
    return settings.recipe, prepared


def entries(tmp_path):
    return sorted((tmp_path / "cache").iterdir())


def test_only_pairs_that_are_kept_are_counted(recipe, fresh_run, tmp_path):
    (tmp_path / "train.tsv").write_text("ab\tcd\nqqqqqqqq\tx\nab\tzzzzzzzz\n")
    run = fresh_run()
    prepare(recipe("data.max_source_length=4", "data.max_target_length=4"), run, print)
    assert run.vocab("source").tokens[4:] == ("a", "b")
    assert run.vocab("target").tokens[4:] == ("c", "d")


@pytest.mark.parametrize("swaps", [(False, True), (True, False), (True, True)])
def test_a_channel_model_takes_the_vocabularies_of_the_direct_model_the_other_way_round(
    recipe, fresh_run, tmp_path, swaps
):
    (tmp_path / "train.tsv").write_text("ab\tcd\n")
    direct, channel = fresh_run("direct"), fresh_run("channel")
    prepare_run(recipe(f"data.swap={str(swaps[0]).lower()}"), direct, print)
    (tmp_path / "train.tsv").write_text("abxx\tcdyy\n")
    prepare(recipe(f"data.swap={str(swaps[1]).lower()}", f"data.vocab_from={direct.path}"), channel, print)
    first, second = (("c", "d"), ("a", "b")) if swaps[1] else (("a", "b"), ("c", "d"))
    assert channel.vocab("source").tokens[4:] == first
    assert channel.vocab("target").tokens[4:] == second


def test_features_stay_however_rare(recipe, fresh_run, tmp_path):
    for name in ("train", "dev"):
        (tmp_path / f"{name}.tsv").write_text("aa\taa\tPL\naa\tab\tSG\naa\taa\tSG\n")
    run = fresh_run()
    prepare(recipe("data.min_count=2"), run, print)
    assert run.vocab("source").tokens[4:] == ("a",)
    assert run.vocab("features").tokens[4:] == ("SG", "PL")
    assert run.vocab("target").tokens[4:] == ("a",)


def test_a_run_that_goes_on_does_not_read_its_text_again(recipe, fresh_run, text_is_out_of_reach):
    run, said = fresh_run(), []
    settings, before = prepare(recipe(), run, said.append)
    text_is_out_of_reach()
    again = prepare_again(settings.recipe, run, said.append)
    assert said[:2] == said[2:] == ["train: 60 pairs", "dev: 10 pairs"]
    assert again.train.source_lengths.tolist() == before.train.source_lengths.tolist()


def test_a_run_that_goes_on_notices_changed_text_and_keeps_its_vocabulary(recipe, fresh_run, tmp_path):
    run, said = fresh_run(), []
    decided, before = prepare_run(recipe(), run, said.append)
    (tmp_path / "train.tsv").write_text("ab\tQQ\n")
    again = prepare_again(decided, run, said.append)
    assert said[2:] == [
        f"{tmp_path / 'train.tsv'} has changed: the data are encoded again",
        "train: 1 pair",
        "dev: 10 pairs",
    ]
    assert again.codec.target.vocab == before.codec.target.vocab
    assert again.train.batch([0]).target.tolist() == [[UNKNOWN, UNKNOWN, END]]


def test_a_second_training_takes_data_from_the_cache_and_ends_the_same(recipe, cached, text_is_out_of_reach, tmp_path):
    plain = train(recipe(), tmp_path / "plain")
    first = train(cached(), tmp_path / "first")
    text_is_out_of_reach()
    second = train(cached(), tmp_path / "second", say=(said := []).append)
    assert "encoded before" in "\n".join(said)
    assert plain.weights.read_bytes() == first.weights.read_bytes() == second.weights.read_bytes()
    assert plain.vocab("source") == second.vocab("source")
    assert len(entries(tmp_path)) == 1


def test_a_cached_run_goes_on_without_reading_text(cached, fresh_run, text_is_out_of_reach):
    run = fresh_run()
    decided = prepare(cached(), run, print)[0].recipe
    assert not run.corpus.exists()
    text_is_out_of_reach()
    prepare_again(decided, run, print)


def test_a_cached_run_goes_on_with_its_own_vocabulary_if_the_cache_has_another(cached, fresh_run, tmp_path):
    run = fresh_run()
    decided, before = prepare_run(cached(), run, print)
    (tmp_path / "train.tsv").write_text("ab\tQQ\n")
    prepare(cached(), fresh_run("other"), print)
    again = prepare_again(decided, run, print)
    assert again.codec.target.vocab == before.codec.target.vocab
    assert again.train.batch([0]).target.tolist() == [[UNKNOWN, UNKNOWN, END]]


@pytest.mark.parametrize(
    ("settings", "number"),
    [
        (["data.lowercase=true"], 2),
        (["data.min_count=2"], 2),
        (["train.max_batch_cells=50"], 2),
        (["model.kind=language_model"], 2),
        (["model.hidden_size=9", "train.batch_size=3", "data.test=dev.tsv"], 1),
    ],
)
def test_settings_that_change_what_is_encoded_have_entries_of_their_own(cached, fresh_run, tmp_path, settings, number):
    prepare(cached(), fresh_run("one"), print)
    prepare(cached(*settings), fresh_run("other"), print)
    assert len(entries(tmp_path)) == number


@pytest.mark.parametrize("damage", ["text", "corpus", "contents"])
def test_a_cache_that_is_out_of_date_or_damaged_is_made_anew(cached, fresh_run, tmp_path, damage):
    prepare(cached(), fresh_run("one"), print)
    (entry,) = entries(tmp_path)
    victim = {
        "text": tmp_path / "dev.tsv",
        "corpus": entry / "corpus/train.arrow",
        "contents": entry / "corpus/contents.json",
    }[damage]
    content = victim.read_bytes()
    victim.write_bytes(content[: content.rindex(b"\n", 0, len(content) // 2) + 1])
    said = []
    _, prepared = prepare(cached(), fresh_run("other"), said.append)
    assert str(victim) in said[0]
    assert said[0].endswith("the data are encoded again")
    assert len(prepared.train) == 60
    assert entries(tmp_path) == [entry]
    prepare(cached(), fresh_run("third"), said.append)
    assert said[-3].startswith("encoded before")


def test_data_that_cannot_be_encoded_leave_nothing_in_the_cache(cached, fresh_run, tmp_path):
    (tmp_path / "dev.tsv").write_text("\n")
    with pytest.raises(InputError, match="no pairs to use"):
        prepare(cached(), fresh_run(), print)
    assert entries(tmp_path) == []


def test_of_two_trainings_at_once_the_first_to_finish_fills_the_cache(cached, fresh_run, tmp_path, monkeypatch):
    encode = preparation._encode_all

    def overtaken(*arguments):
        monkeypatch.setattr(preparation, "_encode_all", encode)
        prepare(cached(), fresh_run("faster"), print)
        encode(*arguments)

    monkeypatch.setattr(preparation, "_encode_all", overtaken)
    assert len(prepare(cached(), fresh_run("slower"), print)[1].train) == 60
    assert len(entries(tmp_path)) == 1


def test_a_cache_that_is_no_folder_is_refused(recipe, fresh_run, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RecipeError, match=r"data\.cache = .*file: .*, expected a folder to write into"):
        prepare(recipe(f"data.cache={tmp_path / 'file'}"), fresh_run(), print)


def test_no_file_of_a_run_in_training_tells_where_its_data_are(recipe, fresh_run, tmp_path):
    run = fresh_run()
    prepare_run(recipe(), run, print)
    files = {path.name: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    assert {"recipe.toml", "contents.json", "train.arrow"} <= files.keys()
    assert [name for name, content in files.items() if str(tmp_path).encode() in content] == []


def test_limits_leave_out_dev_pairs_only_where_asked(recipe, fresh_run):
    limit = "data.max_source_length=3"
    said, kept = [], {}
    for setting in ("false", "true"):
        settings = recipe(limit, f"data.limit_dev={setting}")
        resolution, prepared = prepare(settings, fresh_run(setting), said.append)
        kept[setting] = len(prepared.dev)
        assert len(encoded_dev_pairs(resolution.recipe, prepared.codec)) == kept[setting]
        assert bool(prepared.dev.source_lengths.max() <= 4) is (setting == "true")  # with the end symbol
    assert 0 < kept["true"] < kept["false"] == 10
    assert "source too long" in said[-1]
