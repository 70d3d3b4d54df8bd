"""The Python API takes what is plainly meant and refuses the rest in a sentence."""

import json
import math
import re

import numpy as np
import pytest
import torch

import antiphon as package
from antiphon.data.batch import Batch
from antiphon.recipe.recipe_file import find_recipe, load_recipe
from antiphon.torch_free.readers import Pair, Source
from antiphon.training.fit import train
from tests.toy import words


@pytest.fixture(scope="module")
def model(toy_run):
    return package.load(toy_run)


@pytest.fixture(scope="module")
def with_features(tmp_path_factory):
    """Suffix rules that were trained with features."""

    folder = tmp_path_factory.mktemp("features")
    rows = [
        f"{word}\t{word}{ending}\t{tag}\n" for word in words(50) for ending, tag in (("s", "N;PL;DAT"), ("", "N;SG"))
    ]
    (folder / "pairs.tsv").write_text("".join(rows))
    settings = ["model.kind=suffix_rule", *(f"data.{part}={folder / 'pairs.tsv'}" for part in ("train", "dev"))]
    train(load_recipe(find_recipe("inflection"), settings), folder / "run")
    return package.load(folder / "run")


def test_a_bare_string_is_refused_in_a_sentence(model):
    with pytest.raises(package.AntiphonError, match=r"a single input 'abc', expected a list such as \['abc'\]"):
        list(model.predict("abc"))
    with pytest.raises(
        package.AntiphonError, match=r"a single input 'abcabc.*\.\.\., expected a list such as"
    ) as refused:
        model.predict("abc" * 10_000)
    assert len(str(refused.value)) < 600


@pytest.mark.parametrize("name", ["score", "align", "evaluate", "errors", "suspicious", "word_links"])
def test_a_string_in_place_of_pairs_has_to_be_a_file(model, name):
    with pytest.raises(package.AntiphonError, match=f"{name}: 'abc' is not a file, expected a file of pairs, or "):
        list(getattr(model, name)("abc"))


def test_pairs_are_also_read_from_a_file(model, tmp_path):
    file = tmp_path / "pairs.tsv"
    file.write_text("badu\tbaaduun\n\ntem\tteemen\n")
    pairs = [("badu", "baaduun"), ("tem", "teemen")]
    assert model.evaluate(str(file)) == model.evaluate(pairs)
    assert model.score(file) == model.score(pairs)
    assert [mistake.where for mistake in model.errors(file).mistakes] == [f"{file}:3"]


def test_a_model_shows_its_kind(model, with_features):
    assert repr(model) == "<NeuralModel: a transducer>"
    assert repr(with_features).endswith(": a suffix_rule that reads features>")


def test_no_probability_is_above_one(model):
    candidates = [each for prediction in model.predict(["badu", "tem", "dagibu"], nbest=3) for each in prediction.nbest]
    assert max(value for each in candidates for value in each.token_probabilities) <= 1


@pytest.mark.parametrize(("option", "value"), [("beam", 0), ("nbest", 0), ("beam", -1), ("nbest", 1.5), ("beam", True)])
def test_widths_that_cannot_be_are_refused(model, option, value):
    with pytest.raises(package.AntiphonError, match=f"{option} = {value}: expected a whole number, at least 1"):
        model.predict(["badu"], **{option: value})


@pytest.mark.parametrize("option", ["beam", "nbest", "sample"])
def test_widths_that_no_memory_holds_are_refused(model, option):
    with pytest.raises(package.InputError, match=f"{option}: too large, expected a whole number, at most 1,000,000"):
        model.predict(["badu"], **{option: 10**30})


@pytest.mark.parametrize("option", ["align", "allow_unknown_features"])
def test_what_is_neither_true_nor_false_is_refused(model, option):
    with pytest.raises(package.InputError, match=rf"{option} = array\(\[1, 2\]\): expected True or False"):
        model.predict(["badu"], **{option: np.array([1, 2])})


def test_no_pairs_have_no_metrics(model):
    for name in ("evaluate", "evaluate_online"):
        with pytest.raises(package.InputError, match=f"{name}: no pairs, expected at least one"):
            getattr(model, name)([])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"emit_bais": 1.0}, "unknown option emit_bais, did you mean emit_bias?"),
        ({"wibble": 1.0}, "unknown option wibble, expected policy, emit_bias, beam, margin"),
        ({"policy": "gredy"}, "policy = 'gredy': expected greedy or beam"),
        ({"beam": 0}, "beam = 0: expected a whole number"),
        ({"margin": -1.0}, "margin = -1.0: expected a number, at least 0"),
        ({"emit_bias": float("nan")}, "emit_bias = nan: expected a number"),
        ({"emit_bias": "high"}, "emit_bias = 'high': expected a number"),
        ({"emit_bias": 10**30}, "expected a number, at least -1000, at most 1000"),
        ({"policy": np.array([1, 2])}, "policy = array([1, 2]): expected greedy or beam"),
        ({"margin": np.array([1, 2])}, "margin = array([1, 2]): expected a number, at least 0"),
        ({"features": np.array([1, 2])}, "features array([1, 2]), expected a string such as 'N;DAT;PL'"),
    ],
)
def test_options_of_streams_that_are_misspelt_or_impossible_are_refused(model, options, message):
    with pytest.raises(package.AntiphonError) as refused:
        model.stream(**options)
    assert message in str(refused.value)


@pytest.mark.parametrize("pair", [("badu", "baaduun"), Pair("badu", "baaduun", (), "x:1"), (Source("badu"), "baaduun")])
def test_evaluate_takes_the_pairs_that_score_takes(model, pair):
    assert model.evaluate([pair]).metrics["accuracy"].value == 100.0
    assert model.score([pair])[0] < 0.0
    assert len(list(model.align([pair]))) == 1


@pytest.mark.parametrize("pair", [("badu",), ("a", "b", "N", "PL"), "badu", ("badu", None), None, {"a": "b"}])
def test_what_is_no_pair_is_refused(model, pair):
    with pytest.raises(package.AntiphonError, match="expected \\(source, target\\)"):
        model.evaluate([pair])


@pytest.mark.parametrize("source", [5, None, ("badu",), ("badu", "N", "PL"), ["badu"]])
def test_what_is_no_input_is_refused(model, source):
    with pytest.raises(package.AntiphonError, match="neither a text nor"):
        model.predict([source])


@pytest.mark.parametrize("features", ["N;PL;DAT", "N;DAT;PL", "DAT,PL,N", ("PL", "N", "DAT"), ["DAT", "N", "PL"]])
def test_features_are_a_set_however_they_are_written(with_features, features):
    assert with_features.predict([("badu", features)])[0].text == "badus"


def test_a_repeated_feature_is_another_one_and_refused_if_training_had_none(with_features):
    with pytest.raises(package.AntiphonError, match=r"feature N\*2 was never seen in training, did you mean N\?"):
        with_features.predict([("badu", ["DAT", "N", "PL", "N"])])


def test_missing_features_are_refused_and_none_can_be_meant(with_features):
    with pytest.raises(package.AntiphonError, match="no features, but the run was trained with them"):
        with_features.predict(["badu"])
    assert with_features.predict([("badu", ())])[0].text == "badu"
    assert with_features.predict([""])[0].text is None


def test_features_that_a_model_does_not_read_are_refused(model):
    with pytest.raises(package.AntiphonError, match="the run was trained without"):
        model.predict([("badu", "N;PL")])


def test_symbols_that_training_never_saw_are_named(with_features, model):
    allowed = with_features.predict([("Badu", "N;DUAL")], allow_unknown_features=True)
    assert allowed[0].unknown == ("B", "DUAL")
    assert model.predict(["badu"])[0].unknown == ()


@pytest.mark.parametrize(("feature", "nearest"), [("DUAL", "DAT"), ("dat", "DAT"), ("SGL", "SG"), ("P", "PL")])
def test_a_feature_that_training_never_saw_is_refused_with_the_nearest(with_features, feature, nearest):
    message = f"input 'badu': feature {feature} was never seen in training, did you mean {nearest}?"
    with pytest.raises(package.InputError, match=re.escape(message)):
        with_features.predict([("badu", f"N;{feature}")])
    assert with_features.evaluate([(("badu", f"N;{feature}"), "badu")]).unknown_source == 1


def test_a_stream_refuses_features_that_training_never_saw(with_features, model):
    with pytest.raises(
        package.InputError, match=r"^stream: feature dat was never seen in training, did you mean DAT\?$"
    ):
        with_features.stream(features="N;dat")
    with pytest.raises(package.InputError, match="stream: feature N was never seen in training, training saw no"):
        model.stream(features="N")


def test_a_lexicon_answers_before_the_model(with_features):
    listed = [(("badu", "N;DUAL"), "zwei"), (("badu", "N;SG"), "eins"), (("badu", "SG;N"), "ein"), (("x", ()), "y")]
    found = with_features.predict([("badu", "N;DUAL"), ("badu", "N;SG"), ("x", ()), ("ki", "N;SG")], lexicon=listed)
    assert [each.text for each in found] == ["zwei", "eins", "y", "ki"]
    assert [each.origin for each in found] == ["lexicon", "lexicon", "lexicon", "model"]
    assert [candidate.text for candidate in found[1].nbest] == ["eins", "ein"]
    assert found[0].probability is None
    assert found[0].unknown == ()
    assert found[0].to_dict()["origin"] == "lexicon"
    again = with_features.predict([("badu", "N;SG")], lexicon=with_features.lexicon(listed))
    assert again[0].text == "eins"


def test_mistakes_and_improbable_pairs_come_as_objects(model, with_features):
    pairs = [("badu", "baaduun"), Pair("ki", "kX", (), "x.tsv:7")]
    report = model.errors(pairs)
    assert (report.pairs, report.right, report.accuracy) == (2, 1, 50.0)
    (mistake,) = report.mistakes
    assert (mistake.where, mistake.output, mistake.reference) == ("x.tsv:7", "kiin", "kX")
    assert mistake.unseen == ("X",)
    assert mistake.reference_probability < 1e-3 < mistake.probability
    assert json.loads(json.dumps(report.to_dict()))["mistakes"][0]["alignment"] == mistake.alignment
    suspects = model.suspicious(pairs, most=1)
    assert [(suspect.source, suspect.output) for suspect in suspects] == [("ki", "kiin")]
    assert {group.by for group in model.errors(pairs, by=["length"]).groups} == {"length"}
    assert model.errors(pairs, against=model).against.counts() == {
        "both_right": 1,
        "only_this": 0,
        "only_other": 0,
        "neither": 1,
    }
    with pytest.raises(package.AntiphonError, match="suffix_rule cannot score"):
        with_features.suspicious([(("badu", "N;SG"), "badu")])
    with pytest.raises(package.AntiphonError, match="by features: the run was trained without features"):
        model.errors(pairs, by=["features"])


def test_what_comes_back_can_be_written_as_json(model):
    (prediction,) = model.predict(["baXdu"], nbest=2)
    shown = json.loads(json.dumps(prediction.to_dict()))
    assert shown["text"] == prediction.text
    assert shown["unknown"] == ["X"]
    assert len(shown["nbest"]) == 2
    (alignment,) = model.align([("badu", "baaduun")])
    assert json.loads(json.dumps(alignment.to_dict()))["log_probability"] == alignment.log_probability
    assert json.loads(json.dumps(model.evaluate([("badu", "baaduun")]).to_dict()))["examples"] == 1


def test_every_neural_kind_has_its_module_and_others_say_so(model, with_features):
    assert isinstance(model.module, torch.nn.Module)
    with pytest.raises(package.AntiphonError, match=r"suffix_rule cannot give a torch\.nn\.Module"):
        _ = with_features.module


def test_loading_leaves_the_number_of_threads_alone_unless_asked(toy_run):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        package.load(toy_run)
        assert torch.get_num_threads() == 2
        package.load(toy_run, threads=1)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_a_path_is_no_model_to_compare_mistakes_with(model):
    with pytest.raises(package.InputError, match="against = 'runs/toy': expected a model as"):
        model.errors([("badu", "baaduun")], against="runs/toy")


@pytest.mark.parametrize("given", [None, 5, b"badu", {"badu": "x"}])
@pytest.mark.parametrize("name", ["predict", "score", "align", "evaluate", "errors", "suspicious", "evaluate_online"])
def test_what_is_no_list_is_refused(model, name, given):
    with pytest.raises(package.InputError, match=f"{name}: .* is not a list of inputs"):
        getattr(model, name)(given)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cover": "all"}, "cover = 'all': expected a probability"),
        ({"cover": 0}, "cover = 0: expected a probability"),
        ({"cover": 1.5}, "cover = 1.5: expected a probability"),
        ({"cover": True}, "cover = True: expected a probability"),
        ({"sample": 0}, "sample = 0: expected a whole number, at least 1"),
        ({"sample": 2, "nbest": 2}, "sample: draws outputs at random"),
        ({"sample": 2, "seed": -1}, "seed = -1: expected a whole number, at least 0"),
        ({"seed": None}, "seed = None: expected a whole number"),
        ({"beam": "5"}, "beam = '5': expected a whole number"),
        ({"lexicon": 5}, "lexicon: 5 is not a list of inputs"),
    ],
)
def test_options_of_predict_that_cannot_be_are_refused(model, options, message):
    with pytest.raises(package.InputError, match=re.escape(message)):
        model.predict(["badu"], **options)


@pytest.mark.parametrize("features", [5, None, ["N", 5], [None], {"N": 1}])
def test_features_that_are_no_text_are_refused(with_features, features):
    with pytest.raises(package.InputError, match="expected a string such as 'N;DAT;PL' or a list of strings"):
        with_features.predict([("badu", features)])
    with pytest.raises(package.InputError, match="expected a string such as 'N;DAT;PL' or a list of strings"):
        with_features.evaluate([("badu", "badus", features)])


@pytest.mark.parametrize("pair", [("badu", "badus", "N;PL;DAT"), (("badu", ("N", "PL", "DAT")), "badus")])
def test_pairs_have_their_features_beside_the_source_or_last(with_features, pair):
    assert with_features.evaluate([pair]).metrics["accuracy"].value == 100.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"by": ["colour"]}, "by: unknown 'colour', expected features, length, unseen"),
        ({"by": "length"}, "by = 'length': expected a list of features, length, unseen"),
        ({"more_references": [["a"], ["b"]]}, "more_references: 2 lists for 1 pairs, expected one for each"),
    ],
)
def test_options_of_evaluate_that_cannot_be_are_refused(model, options, message):
    with pytest.raises(package.InputError, match=re.escape(message)):
        model.evaluate([("badu", "baaduun")], **options)


@pytest.mark.parametrize(
    ("run", "options", "message"),
    [
        (None, {}, "run = None: expected a path"),
        (5, {}, "run = 5: expected a path"),
        ("", {}, "run = '': expected a path"),
        ("toy", {"threads": 0}, "threads = 0: expected a whole number, at least 1"),
        ("toy", {"threads": 10**9}, "threads: too large, expected a whole number, at most 1,024"),
        ("toy", {"threads": True}, "threads = True: expected a whole number, at least 1"),
    ],
)
def test_what_cannot_be_loaded_is_refused(run, options, message):
    with pytest.raises(package.InputError, match=re.escape(message)):
        package.load(run, **options)


def test_settings_that_are_no_text_are_refused(toy_run):
    with pytest.raises(package.RecipeError, match=r"settings: 3, expected 'section\.key=value', such as"):
        package.load(toy_run, settings=[3])


def test_probabilities_are_those_of_the_scores(model):
    (prediction,) = model.predict(["badu"], nbest=2)
    best, second = prediction.nbest
    (log_probability,) = model.score([("badu", best.text)])
    assert prediction.probability == best.probability == pytest.approx(math.exp(log_probability), rel=1e-4)
    assert 0 < second.probability < best.probability < 1


def test_a_module_can_be_called_with_a_batch(model):
    batch = Batch.of_text(model.codec, [Source("badu"), Source("ki")], ["baaduun", "kiin"])
    with torch.inference_mode():
        called = model.module(batch)
    assert called.tolist() == pytest.approx(model.score([("badu", "baaduun"), ("ki", "kiin")]), rel=1e-5)


def test_every_result_has_a_dict_that_json_can_hold(model):
    pairs = [("badu", "baaduun"), ("ki", "kX")]
    report, evaluation = model.errors(pairs, against=model), model.evaluate(pairs, by=["length"])
    (prediction,), (alignment,) = model.predict(["badu"], nbest=2), model.align(pairs[:1])
    ranked = package.Ranked("a b", 0, 0.5, 0.6, (("a", 0.25), ("b", 0.75)))
    parts = [report, report.against, *report.mistakes, *report.groups, *report.edits, *model.suspicious(pairs)]
    for result in [*parts, evaluation, *evaluation.metrics.values(), prediction, *prediction.nbest, alignment, ranked]:
        assert json.loads(json.dumps(result.to_dict()))
