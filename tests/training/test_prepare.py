"""Vocabularies and corpora of text files."""

import pytest

from antiphon.recipe.recipe_file import load_recipe
from antiphon.runs.run_folder import RunFolder
from antiphon.torch_free.vocab import END, UNKNOWN
from antiphon.training.prepare import encoded_dev_pairs, prepare, prepare_again
from tests.sealing import seal_again
from tests.toy import write_recipe


@pytest.fixture
def recipe(tmp_path):
    path = write_recipe(tmp_path, 60, 10, "[model]\nhidden_size = 8\n")
    return lambda *settings: load_recipe(path, [*settings, "train.max_epochs=1", "train.passes=1"])


@pytest.fixture
def fresh_run(tmp_path):
    def make(name="run"):
        (tmp_path / name).mkdir()
        return RunFolder(tmp_path / name)

    return make


def prepare_run(recipe, run, say):
    """Prepared data in a folder that has become a run."""
    settings, prepared = prepare(recipe, run, say)
    run.save_recipe(settings.recipe)
    seal_again(run.path)
    return settings.recipe, prepared


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


def test_a_run_that_goes_on_reads_changed_text_with_its_vocabulary(recipe, fresh_run, tmp_path):
    run, said = fresh_run(), []
    decided, before = prepare_run(recipe(), run, said.append)
    (tmp_path / "train.tsv").write_text("ab\tQQ\n")
    again = prepare_again(decided, run, said.append)
    assert said == ["train: 60 pairs", "dev: 10 pairs", "train: 1 pair", "dev: 10 pairs"]
    assert again.codec.target.vocab == before.codec.target.vocab
    assert again.train.batch([0]).target.tolist() == [[UNKNOWN, UNKNOWN, END]]


def test_no_file_of_a_run_in_training_tells_where_its_data_are(recipe, fresh_run, tmp_path):
    run = fresh_run()
    prepare_run(recipe(), run, print)
    files = {path.name: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    assert {"recipe.toml", "source.vocab", "manifest.json"} <= files.keys()
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
