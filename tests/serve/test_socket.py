"""The socket through a real client: events are those of a stream in Python, whatever else goes on."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.serve.processes import eventually, hear, say
from tests.toy import words


def streamed(model, text, **options):
    """What a stream of the Python API writes, and how much it had read before each token."""
    stream, written, read = model.stream(**options), [], []
    for position, letter in enumerate(text, 1):
        new = stream.read(letter)
        written += new
        read += [position] * len(new)
    rest = stream.finish()
    return [*written, *rest], [*read, *[len(text)] * len(rest)]


def converse(socket, text, kind="reset", **options):
    """The events of one input that is read letter by letter."""
    say(socket, event=kind, **options)
    events = hear(socket, "started")
    for letter in text:
        say(socket, event="read", token=letter)
        events += hear(socket, "read")
    say(socket, event="end")
    return events + hear(socket, "end")


@pytest.mark.parametrize("policy", ["greedy", "beam"])
@pytest.mark.parametrize("emit_bias", [0.0, 1.5, -1.5])
def test_a_stream_reads_and_writes_as_in_python(server, models, policy, emit_bias):
    with server.socket() as socket:
        kind = "start"
        for word in words(3, seed=4):
            events = converse(socket, word, kind, run="online", policy=policy, emit_bias=emit_bias)
            kind = "reset"
            tokens, read = streamed(models["online"], word, policy=policy, emit_bias=emit_bias)
            assert (events[-1]["tokens"], events[-1]["read"]) == (tokens, read)
            assert [event["token"] for event in events if event["event"] == "write"] == tokens
            assert [event["position"] for event in events if event["event"] == "read"] == [*range(1, len(word) + 1)]
            times = [event["time"] for event in events if "time" in event]
            assert times == sorted(times)


def test_events_have_the_format_of_the_command_line(server):
    with server.socket() as socket:
        events = converse(socket, "dagiß", "start", run="online")
    read = [event for event in events if event["event"] == "read"]
    assert set(read[0]) == {"event", "token", "position", "time", "unknown"}
    assert (read[0]["unknown"], read[-1]["unknown"]) == ([], ["ß"])
    assert all(set(event) == {"event", "token", "position", "time"} for event in events if event["event"] == "write")


def test_a_piece_of_several_tokens_counts_as_several(server):
    with server.socket() as socket:
        say(socket, event="start", run="online")
        for piece in ("dag", "ibu"):
            say(socket, event="read", token=piece)
        say(socket, event="end")
        events = hear(socket, "end")
    assert [event["position"] for event in events if event["event"] == "read"] == [3, 6]
    assert set(events[-1]["read"]) <= {3, 6}


def test_text_is_read_in_pieces_and_an_empty_input_writes_nothing(server, models):
    with server.socket() as socket:
        say(socket, event="start", run="online")
        say(socket, event="end")
        assert hear(socket, "end")[-1] | {"time": 0} == {
            "event": "end", "text": "", "tokens": [], "read": [], "AL": None, "time": 0
        }  # fmt: skip
        say(socket, event="reset")
        say(socket, event="read", text="dagibumotige")
        say(socket, event="end")
        assert hear(socket, "end")[-1]["tokens"] == streamed(models["online"], "dagibumotige")[0]


def test_streams_with_features_prefixes_and_noisy_channels(server, models):
    with server.socket() as socket:
        events = converse(socket, "dagi", "start", run="features", features="V;PL")
        assert events[-1]["tokens"] == streamed(models["features"], "dagi", features="V;PL")[0]
        events = converse(socket, "dagi", run="noisy", features="")
        assert events[-1]["tokens"] == streamed(models["noisy"], "dagi")[0]
        for policy in ("greedy", "beam"):
            events = converse(socket, "dagi", run="online", policy=policy, prefix=["k", "u"])
            assert events[-1]["tokens"][:2] == ["k", "u"]
        assert converse(socket, "dagi", prefix=[])[-1]["tokens"] == streamed(models["online"], "dagi")[0]


def test_a_watched_stream_shows_its_lattice_after_every_piece(server):
    with server.socket() as socket:
        say(socket, event="start", run="online", watch=True)
        for count in range(1, 5):
            say(socket, event="read", token="dagi"[count - 1])
            lattice = hear(socket, "lattice")[-1]
            assert lattice["source"] == [*"dagi"[:count]]
            assert not lattice["ended"]
            assert lattice["target"] == lattice["candidates"][0]["tokens"]
            assert lattice["written"] <= len(lattice["target"])
        whole = server.ask("lattice", run="online", input="dagi", ended=False, top=5)
        assert lattice["target"] == whole["target"]
        assert lattice["posterior"][0] == pytest.approx(whole["posterior"][0], abs=1e-4)
        alive = {tuple(each["tokens"]) for each in lattice["candidates"]}
        assert not alive & {tuple(each["tokens"]) for each in lattice["dropped"]}


def test_average_lagging_is_that_of_the_metrics(server):
    from antiphon.metrics.delay import Delays, average_lagging

    with server.socket() as socket:
        end = converse(socket, "dagi", "start", run="online", policy="greedy")[-1]
    assert end["AL"] == pytest.approx(average_lagging(Delays(end["read"], 4, len(end["tokens"]))))


def test_streams_advance_together_and_each_is_as_if_alone(server, models):
    inputs = words(24, seed=5)

    def one(index):
        with server.socket() as socket:
            policy, bias = ("greedy", "beam")[index % 2], (0.0, 0.7)[index % 3 == 0]
            events = converse(socket, inputs[index], "start", run="online", policy=policy, emit_bias=bias)
            return events[-1]["tokens"] == streamed(models["online"], inputs[index], policy=policy, emit_bias=bias)[0]

    before = server.metric("antiphon_batch_items_count")
    with ThreadPoolExecutor(24) as pool:
        assert all(pool.map(one, range(24)))
    steps = sum(len(word) + 1 for word in inputs)
    assert server.metric("antiphon_batch_items_count") - before < steps + 24


def test_mistakes_are_answered_and_the_stream_goes_on(server):
    with server.socket() as socket:
        for message, said in (
            ('{"event": "read", "token": "a"}', "start"),
            ('{"event": "reset"}', "start"),
            ("{", "JSON"),
            ("[]", "object"),
            ('"\\ud800"', "JSON"),
            ('{"event": "fly"}', "unknown"),
            ('{"event": "start", "run": "offline"}', "cannot"),
            ('{"event": "start", "run": "nobody"}', "nobody"),
            ('{"event": "start", "run": "online", "policy": "slow"}', "policy"),
            ('{"event": "start", "run": "noisy", "policy": "greedy"}', "policy"),
            ('{"event": "start", "run": "online", "emit_bias": NaN}', "emit_bias"),
            ('{"event": "start", "run": "online", "prefix": ["?"]}', "prefix"),
            ('{"event": "start", "run": "features", "features": "DU"}', "never seen"),
        ):
            socket.send(message)
            assert said in hear(socket, "error")[-1]["error"], message
        socket.send(b"\x00\xff")
        assert "JSON" in hear(socket, "error")[-1]["error"]
        assert converse(socket, "da", "start", run="online")[-1]["event"] == "end"
        for event in ({"event": "read", "token": "a"}, {"event": "end"}, {"event": "start", "run": "online"}):
            socket.send(json.dumps(event))
            assert hear(socket, "error")[-1]["error"]
        say(socket, event="reset")
        for event in ({"event": "read"}, {"event": "read", "token": 3}, {"event": "read", "token": "a", "text": "b"}):
            socket.send(json.dumps(event))
            assert hear(socket, "error")[-1]["error"]
        assert converse(socket, "dagi")[-1]["event"] == "end"


def test_closed_streams_leave_nothing_behind(server):
    for _ in range(3):
        with server.socket() as socket:
            say(socket, event="start", run="online")
            say(socket, event="read", text="dag")
            hear(socket, "read")
    assert eventually(lambda: server.metric("antiphon_open_streams") == 0)
