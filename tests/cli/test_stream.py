"""Writing while reading, from the command line and in Python."""

import io
import json
import shutil
import signal
import subprocess
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import antiphon as package
from antiphon.cli.stream import without_blanks
from antiphon.exceptions import RunError
from antiphon.torch_free.readers import decode_lines
from tests.interrupts import hear_ctrl_c
from tests.shared_folders import filled_once, run_command
from tests.toy import words, write_pairs


@pytest.fixture(scope="module")
def online_run(tmp_path_factory):
    """The toy recipe, trained to read from the left alone."""
    settings = ["--set", "model.encoder=unidirectional", "--set", "train.max_epochs=12"]
    return (
        filled_once(
            tmp_path_factory, "online", lambda folder: run_command("train", "toy", *settings, "--out", folder / "run")
        )
        / "run"
    )


@pytest.fixture(scope="module")
def model(online_run):
    return package.load(online_run, device="cpu", threads=1)


def start(run, *options):
    command = [sys.executable, "-m", "antiphon", "stream", str(run), "--threads", "1", *options]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(command, bufsize=0, preexec_fn=hear_ctrl_c, **pipes)


def receive(process, count):
    return b"".join(process.stdout.read(1) for _ in range(count))


def test_tokens_are_written_before_the_line_has_ended(online_run):
    process = start(online_run, "--policy", "greedy")
    process.stdin.write(b"dagibu")
    assert receive(process, 3) == b"daa"
    process.stdin.write(b"\nmo")
    rest, errors = process.communicate(b"s\n", timeout=60)
    assert process.returncode == 0, errors
    assert b"daa" + rest == b"daagiibuun\nmoosem\n"


def test_interrupting_ends_the_line_cleanly(online_run):
    process = start(online_run, "--policy", "greedy")
    process.stdin.write(b"dagi")
    assert receive(process, 6) == b"daagii"
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert rest == b"n\n"
    assert errors == b""


def test_events_say_what_was_read_and_written_and_when(online_run, antiphon):
    result = antiphon("stream", online_run, "--format", "jsonl", stdin=b"da\nbo\n")
    events = [json.loads(line) for line in result.out.splitlines()]
    assert [event["token"] for event in events if event["event"] == "read"] == [*"dabo"]
    assert "".join(event["token"] for event in events if event["event"] == "write") == "daanboon"
    assert [event["position"] for event in events if event["event"] == "write"] == [1, 2, 3, 4, 1, 2, 3, 4]
    assert all(event.keys() - {"unknown"} == {"event", "token", "position", "time"} for event in events)
    assert all((event["event"] == "read") == ("unknown" in event) for event in events)
    for first, last in ((0, 6), (6, 12)):
        times = [event["time"] for event in events[first:last]]
        assert times == sorted(times)


def test_symbols_that_training_never_saw_are_named_at_the_end(online_run, antiphon):
    result = antiphon("stream", online_run, "--format", "jsonl", stdin="dQa\nbo\nQéQ".encode())
    unknown = [json.loads(line).get("unknown", []) for line in result.out.splitlines()]
    assert [symbol for symbols in unknown for symbol in symbols] == ["Q", "Q", "é", "Q"]
    assert result.err == "antiphon: 4 symbols in 2 inputs that training never saw: 'Q' (3), 'é' (1)\n"
    assert antiphon("stream", online_run, stdin=b"da\n").err == ""


def test_an_empty_line_gets_an_empty_output(online_run, antiphon):
    assert antiphon("stream", online_run, stdin=b"\nda\n\n").out == "\ndaan\n\n"


def test_a_stream_ends_with_what_predict_finds(model, online_run, antiphon):
    inputs = words(60, seed=9)
    predicted = antiphon("predict", online_run, stdin="\n".join(inputs).encode()).out.split()
    streamed = antiphon("stream", online_run, stdin="\n".join(inputs).encode()).out.split()
    assert sum(one == other for one, other in zip(predicted, streamed, strict=True)) >= 59


def test_streams_in_python_give_new_tokens_and_then_the_rest(model):
    stream = model.stream(policy="greedy")
    written = [stream.read(letter) for letter in "dagi"]
    assert "".join(token for tokens in written for token in tokens).startswith("daa")
    assert "".join(token for tokens in [*written, stream.finish()] for token in tokens) == "daagiin"
    with pytest.raises(ValueError, match="has ended"):
        stream.read("a")
    with pytest.raises(ValueError, match="has ended already"):
        stream.finish()


def test_a_group_of_streams_can_be_at_different_places(model):
    group = model.streams([(), ()])
    written = [group.read(["da", None]), group.read(["gi", "mos"])]
    ended = group.finish([0])
    written.append(group.read([None, "a"]))
    (last,) = group.finish()
    first = [token for tokens, _ in written for token in tokens] + ended[0]
    second = [token for _, tokens in written for token in tokens] + last
    assert ("".join(first), "".join(second)) == ("daagiin", "moosaan")
    with pytest.raises(ValueError, match="expected one for each"):
        group.read(["a"])


def test_evaluation_online_gives_quality_and_delay(online_run, antiphon, tmp_path):
    test = write_pairs(tmp_path / "test.tsv", 60, seed=7)
    offline = json.loads(antiphon("evaluate", online_run, test, "--json").out)["metrics"]
    online = json.loads(antiphon("evaluate", online_run, test, "--json", "--online").out)["metrics"]
    assert online.keys() >= {"accuracy", "AL", "LAAL", "AP", "DAL"}
    assert online["accuracy"]["value"] == pytest.approx(offline["accuracy"]["value"], abs=3)
    assert 0 < online["AL"]["value"] < 6
    late = antiphon("evaluate", online_run, test, "--json", "--online", "--margin", "8").out
    assert json.loads(late)["metrics"]["AL"]["value"] > online["AL"]["value"]


def test_a_bias_trades_delay_for_quality(online_run, antiphon, tmp_path):
    command = ["evaluate", online_run, write_pairs(tmp_path / "test.tsv", 60, seed=7), "--online", "--policy", "greedy"]
    found = [json.loads(antiphon(*command, "--json", "--emit-bias", bias).out) for bias in (-3, 0, 3)]
    delays = [each["metrics"]["AL"]["value"] for each in found]
    assert delays == sorted(delays, reverse=True)
    assert len(set(delays)) == 3


def test_runs_that_cannot_stream_say_what_to_train(toy_run, antiphon):
    result = antiphon("stream", toy_run)
    assert result.status == 2
    assert "model.encoder=unidirectional" in result.err
    with pytest.raises(RunError, match="unidirectional"):
        package.load(toy_run).stream()


def test_text_that_is_not_utf8_is_refused(online_run, antiphon):
    assert "not UTF-8" in antiphon("stream", online_run, stdin=b"a\xff\n").err


def test_streams_leave_out_what_readers_of_lines_leave_out(online_run, antiphon):
    plain = antiphon("stream", online_run, stdin=b"da\n\nbo\n").out
    assert antiphon("stream", online_run, stdin="\ufeffda\r\n \t \r\nbo\r".encode()).out == plain
    assert antiphon("predict", online_run, stdin="\ufeffda\r\n \t \r\nbo\r".encode()).out == plain


def test_text_in_the_middle_of_a_line_stays_as_it_is():
    assert "".join(without_blanks(" a\rb \ufeff\r\n\r\n c")) == " a\rb \ufeff\n\n c"


@given(st.text(alphabet="ab \r\n\t\ufeff\u2028", max_size=12))
@example("a\n \t")
@example("\ufeff")
@example("\r")
def test_streams_cut_text_into_the_lines_that_predict_reads(text):
    decoded = decode_lines(io.BytesIO(text.encode()), "")
    streamed = "".join(without_blanks(text))
    lines = streamed.removesuffix("\n").split("\n") if streamed else []
    assert lines == [line if line.strip() else "" for line in decoded]


def test_an_input_without_text_has_no_score(online_run, antiphon):
    rows = [
        json.loads(line)
        for line in antiphon("predict", online_run, "--format", "jsonl", stdin=b"da\n \n").out.splitlines()
    ]
    assert rows[0]["score"] < 0
    assert (rows[1]["text"], rows[1]["score"], rows[1]["nbest"]) == (None, None, [])
    assert package.load(online_run).predict([" "])[0].probability is None


@pytest.mark.parametrize("option", ["--emit-bias", "--margin"])
@pytest.mark.parametrize("value", ["nan", "inf", "1e400"])
def test_options_are_finite(online_run, antiphon, option, value):
    result = antiphon("stream", online_run, option, value)
    assert result.status == 2
    assert option in result.err


def test_lines_that_are_not_utf8_are_numbered(online_run, antiphon):
    assert "standard input:3: not UTF-8" in antiphon("stream", online_run, stdin=b"da\nbo\nx\xff\n").err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--policy", "greedy"], "--policy: only for streams, expected it together with --online"),
        (["--emit-bias", "2"], "--emit-bias: only for streams, expected it together with --online"),
        (["--margin", "0"], "--margin: only for streams, expected it together with --online"),
    ],
)
def test_options_of_streams_that_would_be_ignored_are_refused(online_run, antiphon, tmp_path, options, message):
    result = antiphon("evaluate", online_run, write_pairs(tmp_path / "test.tsv", 2, seed=3), *options)
    assert result.status == 2
    assert result.err == f"antiphon: {message}\n"


def test_results_never_take_the_name_of_a_file_of_the_run(online_run, antiphon, tmp_path):
    run, pairs = shutil.copytree(online_run, tmp_path / "run"), write_pairs(tmp_path / "test.tsv", 2, seed=3)
    for arguments in (
        ["align", run, pairs, "--plot", run / "training.png"],
        ["errors", run, pairs, "--out", run / "overlap.tsv"],
    ):
        result = antiphon(*arguments)
        assert result.status == 2
        assert f"{arguments[-1]}: the name of a file of the run in that folder, expected another name" in result.err
    assert antiphon("align", run, pairs, "--plot", run / "first.png").status == 0
    assert antiphon("predict", run, stdin=b"badu\n").status == 0
