"""The same outputs as PyTorch, for every kind."""

import pytest

import antiphon as package
from antiphon import lite
from antiphon.export.exported_run import export_run
from antiphon.runs.combined_runs import ensemble_runs
from tests.lite.drawn_runs import PREDICTING, TEXTS, inputs, write_run

CLOSE = 1e-4


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


def test_ensembles_are_those_of_pytorch(tmp_path):
    names = ["transducer", "attention", "context"]
    members = [write_run(tmp_path / name, name, seed=seed) for seed, name in enumerate(names)]
    ensemble_runs(members, tmp_path / "all", force=False)
    theirs, ours = exported(tmp_path / "all")
    assert_same(ours.predict(TEXTS, nbest=3), theirs.predict(TEXTS, nbest=3))


def test_an_ensemble_of_networks_that_copy_words_is_that_of_pytorch(tmp_path):
    members = [
        write_run(tmp_path / name, name) for name in ("copied_words_online", "attention_between_words", "copied_words")
    ]
    ensemble_runs(members, tmp_path / "all", force=False)
    theirs, ours = exported(tmp_path / "all")
    sentences = inputs("copied_words")
    assert_same(ours.predict(sentences, nbest=3), theirs.predict(sentences, nbest=3))
