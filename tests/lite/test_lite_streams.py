"""Streams write the same tokens at the same time as those of PyTorch."""

import pytest

import antiphon as package
from antiphon import lite
from antiphon.exceptions import InputError, RecipeError, RunError
from antiphon.export.exported_run import export_run
from antiphon.runs.combined_runs import combine_runs
from antiphon.torch_free.inputs import as_source
from antiphon.torch_free.text_streams import run_streams
from tests.lite.drawn_runs import STREAMING, inputs, write_run


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Every run that streams, in PyTorch and exported."""
    folder, made = tmp_path_factory.mktemp("runs"), {}
    for name in [*STREAMING, "transducer"]:
        run = write_run(folder / name, name)
        export_run(run, folder / f"{name}-lite")
        made[name] = package.load(run, device="cpu"), lite.load(folder / f"{name}-lite")
    return made


@pytest.mark.parametrize("name", STREAMING)
@pytest.mark.parametrize(
    "options",
    [{"policy": "greedy"}, {"policy": "greedy", "emit_bias": 0.7}, {"policy": "beam"}, {"beam": 3, "margin": 4.0}],
    ids=str,
)
def test_streams_write_what_those_of_pytorch_write(models, name, options):
    theirs, ours = models[name]
    sources = [as_source(each, reads_features=ours.reads_features) for each in inputs(name)]
    tokens = [ours.codec.source.tokens(source.text) for source in sources]
    features = [source.features for source in sources]
    wanted = run_streams(theirs.streams(features, **options), tokens)
    assert run_streams(ours.streams(features, **options), tokens) == wanted
    assert any(each.tokens for each in wanted)


@pytest.mark.parametrize("policy", ["greedy", "beam"])
def test_streams_are_opened_and_closed_like_those_of_pytorch(models, policy):
    written = []
    for model in models["inflection"]:
        group = model.streams([("N",)], policy=policy)
        group.read(["abc"])
        first = group.open(["V", "PL"], emit_bias=0.5, prefix=(5, 6))
        heard = [group.advance({0: list("de"), first: list("hag")}), group.finish([0])]
        again = group.open(["SG"])
        assert again == 0
        heard.append(group.advance({again: list("bead")}))
        written.append((heard, group.outputs(again)[0][0], group.finish()))
    assert written[0] == written[1]


def test_no_streams_at_all_are_refused(models):
    for model in models["unidirectional"]:
        with pytest.raises(InputError, match="streams: none, expected the features of at least one"):
            model.streams([])


def test_a_single_stream_takes_text_piece_by_piece(models):
    theirs, ours = models["unidirectional"]
    heard = []
    for stream in (theirs.stream(), ours.stream()):
        heard.append([stream.read("ab"), stream.read("c"), stream.read("defgh"), stream.finish()])
    assert heard[0] == heard[1]


def test_a_bidirectional_run_cannot_stream(models):
    with pytest.raises(
        RunError, match="cannot stream without PyTorch, expected a transducer with a unidirectional LSTM"
    ):
        models["transducer"][1].stream()


@pytest.mark.parametrize(
    ("missing", "weights", "reading"),
    [
        (None, (1.0, 0.7, 0.4, 0.5), "last"),
        ("lm", (0.5, 1.0, 0.0, 0.0), "anywhere"),
        ("channel", (1.0, 0.0, 1.0, 0.3), "last"),
    ],
)
def test_a_noisy_channel_streams_as_in_pytorch(tmp_path, missing, weights, reading):
    parts = {
        "direct": write_run(tmp_path / "direct", "unidirectional"),
        "channel": write_run(tmp_path / "channel", "unidirectional", swap=True, seed=1),
        "lm": write_run(tmp_path / "lm", "language_model", seed=2),
    }
    given = [None if name == missing else run for name, run in parts.items()]
    search = {"weights": weights, "proposals": 8, "channel_prefix": reading}
    combine_runs(*given, tmp_path / "all", search, force=False)
    export_run(tmp_path / "all", tmp_path / "lite")
    tokens = [list(text) for text in inputs("unidirectional")[:5]]
    heard = [
        run_streams(model.streams([()] * len(tokens), margin=margin), tokens)
        for model in (package.load(tmp_path / "all", device="cpu"), lite.load(tmp_path / "lite"))
        for margin in (None, 1.0)
    ]
    assert heard[:2] == heard[2:]
    with pytest.raises(RecipeError, match="cannot stream with the policy greedy, expected beam"):
        lite.load(tmp_path / "lite").stream(policy="greedy")
