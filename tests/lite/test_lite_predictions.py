"""The same outputs as PyTorch, for every kind."""

import math

import pytest

import antiphon as package
from antiphon import lite
from antiphon.export.exported_run import export_run
from antiphon.runs.combined_runs import combine_runs, ensemble_runs
from tests.lite.drawn_runs import PREDICTING, TEXTS, inputs, write_run

CLOSE = 1e-4


@pytest.fixture(autouse=True)
def wide_bands(monkeypatch):
    """Long inputs are decoded by PyTorch in a band of rows, which drops what is negligible for a trained model.

    Exported models sum over all rows. Drawn weights can give most of the probability to what a band has dropped.
    """
    monkeypatch.setattr("antiphon.models.transducer._log_negligible", lambda dtype: -500.0)


def exported(run, **options):
    """The run in PyTorch, and exported."""
    out = run.with_name(f"{run.name}-lite")
    export_run(run, out, **options)
    return package.load(run, device="cpu"), lite.load(out)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A run of every kind, with its exported model; each is made when it is first asked for."""
    folder, made = tmp_path_factory.mktemp("runs"), {}

    def find(name):
        if name not in made:
            made[name] = exported(write_run(folder / name, name))
        return made[name]

    return find


def assert_same(found, wanted):
    """The same predictions: texts, tokens and alignments, and probabilities up to rounding."""
    assert len(found) == len(wanted)
    for ours, theirs in zip(found, wanted, strict=True):
        assert [each.text for each in ours.nbest] == [each.text for each in theirs.nbest]
        assert (ours.source_symbols, ours.unknown, ours.reason) == (
            theirs.source_symbols,
            theirs.unknown,
            theirs.reason,
        )
        for one, other in zip(ours.nbest, theirs.nbest, strict=True):
            assert (one.tokens, one.rows) == (other.tokens, other.rows)
            assert one.score == pytest.approx(other.score, abs=CLOSE)
            assert one.log_probability == pytest.approx(other.log_probability, abs=CLOSE)
            assert one.token_probabilities == pytest.approx(other.token_probabilities, abs=CLOSE)
            assert one.parts == pytest.approx(other.parts, abs=CLOSE)


@pytest.mark.parametrize("name", PREDICTING)
@pytest.mark.parametrize("options", [{"beam": 1}, {"nbest": 4}], ids=str)
def test_predictions_are_those_of_pytorch(models, name, options):
    ours, theirs = models(name)[::-1]
    assert_same(ours.predict(inputs(name), **options), theirs.predict(inputs(name), **options))


@pytest.mark.parametrize("name", [*PREDICTING, "language_model"])
def test_scores_are_those_of_pytorch(models, name):
    theirs, ours = models(name)
    pairs = [(source, target) for source, target in zip(inputs(name), ["A B", "K", "E E D", "F"], strict=False)]
    assert ours.score(pairs) == pytest.approx(theirs.score(pairs), abs=CLOSE)


@pytest.mark.parametrize(
    "options", [{"prefix": ["K", "A"]}, {"cover": 0.5, "nbest": 8}, {"lexicon": [("a", "B B")]}], ids=str
)
def test_prefixes_covering_lists_and_lexicons_are_those_of_pytorch(models, options):
    theirs, ours = models("transducer")
    assert_same(ours.predict(TEXTS, **options), theirs.predict(TEXTS, **options))


def test_suffix_rules_alone_are_exported(models):
    theirs, ours = models("suffix_rule")
    assert [each.text for each in ours.predict(inputs("suffix_rule"))] == [
        each.text for each in theirs.predict(inputs("suffix_rule"))
    ]


@pytest.mark.parametrize("mean", ["probabilities", "logs"])
def test_ensembles_are_those_of_pytorch(tmp_path, mean):
    names = ["transducer", "attention", "context"]
    members = [write_run(tmp_path / name, name, seed=seed) for seed, name in enumerate(names)]
    ensemble_runs(members, tmp_path / "all", mean, force=False)
    theirs, ours = exported(tmp_path / "all")
    assert_same(ours.predict(TEXTS, nbest=3), theirs.predict(TEXTS, nbest=3))


def test_an_ensemble_of_networks_that_copy_words_is_that_of_pytorch(tmp_path):
    members = [write_run(tmp_path / name, name) for name in ("copied_words_online", "replaced_words", "copied_words")]
    ensemble_runs(members, tmp_path / "all", "probabilities", force=False)
    theirs, ours = exported(tmp_path / "all")
    sentences = inputs("copied_words")
    assert_same(ours.predict(sentences, nbest=3), theirs.predict(sentences, nbest=3))


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """The models of a noisy channel."""
    folder = tmp_path_factory.mktemp("parts")
    return {
        "direct": write_run(folder / "direct", "transducer"),
        "channel": write_run(folder / "channel", "unidirectional", swap=True, seed=1),
        "lm": write_run(folder / "lm", "language_model", seed=2),
    }


@pytest.mark.parametrize(
    ("weights", "missing", "reading"),
    [
        ((1.0, 0.7, 0.4, 0.5), None, "last"),
        ((0.0, 1.0, 1.0, 0.0), "lm", "anywhere"),
        ((1.0, -0.5, 1.0, 0.0), "channel", "last"),
    ],
)
def test_noisy_channels_are_those_of_pytorch(parts, tmp_path, weights, missing, reading):
    given = [None if name == missing else run for name, run in parts.items()]
    search = {"weights": weights, "proposals": 8, "channel_prefix": reading}
    combine_runs(*given, tmp_path / "all", search, force=False)
    theirs, ours = exported(tmp_path / "all")
    assert_same(ours.predict(TEXTS[:5], nbest=3), theirs.predict(TEXTS[:5], nbest=3))


def test_noisy_channels_give_up_on_long_inputs_as_in_pytorch(parts, tmp_path, monkeypatch):
    combine_runs(*parts.values(), tmp_path / "all", {"weights": (1.0, 0.7, 0.4, 9.0)}, force=False)
    theirs, ours = exported(tmp_path / "all")
    for module in ("antiphon.lite.search", "antiphon.decode.beam_search"):
        monkeypatch.setattr(f"{module}.STUCK_AFTER", 2)
    for module in ("antiphon.lite.search", "antiphon.models.transducer"):
        monkeypatch.setattr(f"{module}.LONG_SOURCE", 4)
    assert_same(ours.predict(TEXTS[:5], nbest=3), theirs.predict(TEXTS[:5], nbest=3))


@pytest.mark.parametrize("weights", [(1.0, 0.7, 0.4, 0.5), (0.0, 0.0, 1.0, 0.5), (1.0, 0.0, 0.0, 0.0)])
def test_suffix_rules_of_the_direct_model_are_a_part_of_a_noisy_channel(tmp_path, weights):
    direct = write_run(tmp_path / "direct", "rules_beside")
    channel = write_run(tmp_path / "channel", "inflection", swap=True, seed=1)
    language = write_run(tmp_path / "lm", "language_model", seed=2, target_tokens="chars")
    combine_runs(direct, channel, language, tmp_path / "all", {"weights": weights, "proposals": 8}, force=False)
    theirs, ours = exported(tmp_path / "all")
    found = theirs.predict(inputs("rules_beside"), nbest=3)
    assert_same(ours.predict(inputs("rules_beside"), nbest=3), found)
    fade = next(prediction for prediction in found if prediction.source == "fade")
    assert fade.nbest[0].parts[0] >= math.log(0.3) or weights[0] == 0  # what its rules say has their weight at least


def test_every_output_of_a_noisy_channel_begins_with_the_prefix(parts, tmp_path):
    search = {"weights": (1.0, 0.2, 0.2, 0.0), "proposals": 8}
    combine_runs(*parts.values(), tmp_path / "all", search, force=False)
    theirs, ours = exported(tmp_path / "all")
    forced = theirs.predict(TEXTS[:4], nbest=8, prefix=["K", "A"])
    assert all(each.tokens[:2] == ("K", "A") for prediction in forced for each in prediction.nbest)
    assert_same(ours.predict(TEXTS[:4], nbest=8, prefix=["K", "A"]), forced)
