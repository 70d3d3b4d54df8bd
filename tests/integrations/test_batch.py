"""Frames of every library, and the callable that engines send to their workers."""

import pickle
import shutil

import numpy as np
import pandas
import polars
import pyarrow
import pytest

import antiphon as package
from antiphon.exceptions import InputError, RunError
from antiphon.integrations.batch import Predictor
from tests.toy import words

WORDS = [*words(20, seed=3), "", *words(20, seed=4)]
MADE = {
    "pandas": pandas.DataFrame,
    "polars": polars.DataFrame,
    "arrow": pyarrow.table,
    "lists": dict,
    "arrays": lambda columns: {name: np.array(values, object) for name, values in columns.items()},
}


@pytest.fixture(scope="module")
def model(toy_run):
    return package.load(toy_run)


@pytest.fixture(scope="module")
def expected(model):
    return model.predict(WORDS, nbest=3)


def column(frame, name):
    """The values of a column, with None for what is missing."""
    values = frame[name].to_pylist() if isinstance(frame, pyarrow.Table) else list(frame[name])
    return [None if isinstance(value, float) and np.isnan(value) else value for value in values]


@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
def test_a_frame_gets_the_answers_of_predict_beside_its_columns(model, expected, made):
    frame = made({"id": list(range(len(WORDS))), "word": WORDS})
    answered = model.predict_frame(frame, source="word", nbest=3)
    assert type(answered) is type(frame)
    assert column(answered, "id") == list(range(len(WORDS)))
    assert column(answered, "prediction") == [each.text for each in expected]
    wanted = [each.probability for each in expected]
    assert column(answered, "probability") == [each and pytest.approx(each) for each in wanted]
    assert [list(each) for each in column(answered, "nbest")] == [[one.text for one in each.nbest] for each in expected]
    assert len(column(answered, "nbest_probability")[0]) == 3


def test_one_output_needs_no_lists_and_a_prefix_names_the_columns(model):
    answered = model.predict_frame(pandas.DataFrame({"source": ["badu"]}), prefix="toy_")
    assert list(answered.columns) == ["source", "toy_prediction", "toy_probability"]
    assert answered["toy_prediction"][0] == "baaduun"


@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
def test_a_frame_without_rows_gets_columns_without_values(model, made):
    frame = (
        made({"source": []}) if made is not pyarrow.table else pyarrow.table({"source": pyarrow.array([], "string")})
    )
    answered = model.predict_frame(frame, nbest=2)
    assert [len(answered[name]) for name in ("prediction", "probability", "nbest")] == [0, 0, 0]


@pytest.mark.parametrize(
    ("frame", "options", "said"),
    [
        (pandas.DataFrame({"text": ["a"]}), {}, "frame: no column 'source', expected it among text"),
        (pandas.DataFrame(), {}, "frame: no column 'source', expected it among "),
        (pandas.DataFrame({"source": ["a"]}), {"features": "tag"}, "frame: no column 'tag', expected it among source"),
        (pandas.DataFrame({"source": ["a", None]}), {}, "column 'source', row 1: nan, expected text; drop or fill"),
        (polars.DataFrame({"source": ["a", None]}), {}, "column 'source', row 1: None, expected text"),
        ({"source": np.array([1, 2])}, {}, "column 'source', row 0: 1, expected text"),
        (pandas.DataFrame({"source": ["a"], "prediction": ["b"]}), {}, "frame: a column 'prediction' already"),
        (["a"], {}, "frame: a list, expected a frame of pandas or polars"),
    ],
)
def test_frames_that_cannot_be_answered_are_refused(model, frame, options, said):
    with pytest.raises(InputError) as error:
        model.predict_frame(frame, **options)
    assert str(error.value).startswith(said)


def test_a_model_that_reads_features_finds_them_in_their_column(tmp_path):
    rows = [f"{word}\t{word}{'s' if tag == 'PL' else ''}\tN;{tag}" for word in words(30) for tag in ("SG", "PL")]
    (tmp_path / "pairs.tsv").write_text("\n".join(rows) + "\n")
    files = {"data.train": str(tmp_path / "pairs.tsv"), "data.dev": str(tmp_path / "pairs.tsv")}
    model = package.train("toy", tmp_path / "run", settings={"model.kind": "suffix_rule", **files})
    tags = ["N;PL", "N;SG"]
    for column_of_tags in (tags, [["N", "PL"], ["N", "SG"]], [np.array(["N", "PL"]), np.array(["N", "SG"])]):
        frame = pandas.DataFrame({"source": ["badu", "badu"], "features": column_of_tags})
        assert list(model.predict_frame(frame)["prediction"]) == ["badus", "badu"]
    with pytest.raises(InputError, match="no column 'features'"):
        model.predict_frame(pandas.DataFrame({"source": ["badu"]}))
    with pytest.raises(InputError, match=r"feature X was never seen"):
        model.predict_frame(pandas.DataFrame({"source": ["badu"], "features": ["X"]}))


def test_the_callable_travels_as_a_path_and_answers_as_the_model_does(toy_run, expected):
    sent = pickle.dumps(Predictor(toy_run, nbest=3))
    assert len(sent) < 2000
    predictor = pickle.loads(sent)
    backwards = predictor({"source": np.array(WORDS[::-1], object)})
    assert list(backwards["prediction"])[::-1] == [each.text for each in expected]


def test_an_iterator_of_frames_gives_an_iterator_of_frames(toy_run):
    frames = (pandas.DataFrame({"source": some}) for some in (["badu"], [], ["dagibu"]))
    answered = Predictor(toy_run)(frames)
    assert [list(frame["prediction"]) for frame in answered] == [["baaduun"], [], ["daagiibuun"]]


def test_a_run_is_loaded_once_in_a_process(toy_run, monkeypatch):
    loads, load = [], package.load
    monkeypatch.setattr(
        "antiphon.integrations.batch.load", lambda *given, **more: loads.append(1) or load(*given, **more)
    )
    predictor = pickle.dumps(Predictor(toy_run, prefix="other_", threads=2))
    for _ in range(3):
        pickle.loads(predictor)({"source": ["badu"]})
    assert len(loads) == 1


def test_a_copy_is_the_same_run(toy_run, tmp_path):
    copy = Predictor(shutil.copytree(toy_run, tmp_path / "copy"))
    assert copy.digest == Predictor(toy_run).digest
    assert list(copy({"source": ["badu"]})["prediction"]) == ["baaduun"]


def test_a_run_that_was_replaced_since_the_job_started_is_refused(toy_run, tmp_path):
    run = shutil.copytree(toy_run, tmp_path / "run")
    predictor = Predictor(run)
    package.train("toy", run, settings={"model.kind": "suffix_rule"}, force=True)
    with pytest.raises(RunError, match="not the run that the job was started with"):
        predictor({"source": ["badu"]})


def test_runs_and_options_are_checked_where_the_job_is_started(toy_run, tmp_path):
    with pytest.raises(RunError, match="no such folder"):
        Predictor(tmp_path / "none")
    with pytest.raises(InputError, match="nbest = 0"):
        Predictor(toy_run, nbest=0)
