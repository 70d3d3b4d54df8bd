"""Streams write the same tokens at the same time as those of PyTorch."""

import pytest

import antiphon as package
from antiphon import lite
from antiphon.exceptions import InputError, RunError
from antiphon.export.exported_run import export_run
from antiphon.runs.combined_runs import combine_runs
from antiphon.torch_free.inputs import as_source
from antiphon.torch_free.streams import run_streams
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


def test_a_noisy_channel_streams_only_with_pytorch(tmp_path):
    runs = [
        write_run(tmp_path / "direct", "unidirectional"),
        write_run(tmp_path / "channel", "unidirectional", swap=True, seed=1),
        write_run(tmp_path / "lm", "language_model", seed=2),
    ]
    combine_runs(*runs, tmp_path / "all", {}, force=False)
    with pytest.raises(RunError, match=r"noisy_channel cannot be exported, expected a single .* model in .*/direct"):
        export_run(tmp_path / "all", tmp_path / "lite")
    assert not (tmp_path / "lite").exists()
    export_run(tmp_path / "all/direct", tmp_path / "lite")
    assert lite.load(tmp_path / "lite").stream().read("abc") is not None
    assert package.load(tmp_path / "all", device="cpu").stream().read("abc") is not None
