"""The process that serves: how it starts, is refused, is checked, and stops."""

import logging
import os
import signal
import socket as sockets
import subprocess
import sys
import threading

import pytest
from websockets.exceptions import ConnectionClosed

from tests.serve.processes import DEADLINE, eventually, hear, limited_server, say, start


def test_an_open_address_without_a_token_is_refused_in_a_sentence(antiphon, runs):
    result = antiphon("serve", runs / "online", "--host", "0.0.0.0")
    assert result.status == 2
    assert "--token" in result.err
    assert result.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--token", " "], "empty"),
        (["--token", "x", "--token-file", "y"], "two tokens"),
        (["--token-file", "nowhere.txt"], "nowhere.txt"),
        (["--port", "70000"], "65535"),
        (["--host", "no.such.host.invalid", "--token", "x"], "no.such.host.invalid"),
        (["--host", "\udcff", "--token", "x"], "--host"),
        (["--allow-origin", "*"], "--allow-origin"),
    ],
)
def test_wrong_options_are_refused_in_a_sentence(antiphon, runs, arguments, said):
    result = antiphon("serve", runs / "online", *arguments)
    assert result.status == 2
    assert said in result.err
    assert "Traceback" not in result.err


def test_a_port_that_is_taken_and_two_runs_of_one_name_are_refused(antiphon, runs, server):
    taken = antiphon("serve", runs / "online", "--port", server.port)
    assert taken.status == 2
    assert str(server.port) in taken.err
    twice = antiphon("serve", runs / "online", runs / "online")
    assert twice.status == 2
    assert "second run" in twice.err


def test_a_token_file_is_read_and_an_empty_one_refused(tmp_path):
    from antiphon.cli.serve import read_token
    from antiphon.exceptions import InputError

    file = tmp_path / "token"
    file.write_text("secret\n")
    assert read_token(None, file) == "secret"
    file.write_text("\n")
    with pytest.raises(InputError, match="empty"):
        read_token(None, file)
    assert read_token(None, None) is None
    file.write_text("secret", encoding="utf-16")
    with pytest.raises(InputError, match="one line of UTF-8"):
        read_token(None, file)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(InputError, match="not a regular file"):
        read_token(None, file)


def test_a_token_file_that_is_no_text_or_no_file_is_refused_and_one_that_all_can_read_noted(tmp_path, capsys):
    from antiphon.cli.serve import read_token
    from antiphon.exceptions import InputError

    file, pipe = tmp_path / "token", tmp_path / "pipe"
    file.write_bytes("secret".encode("utf-16"))
    file.chmod(0o600)
    os.mkfifo(pipe)
    for given, said in (
        ((None, file), "UTF-8"),
        ((None, pipe), "regular file"),
        (("\udcff", None), "UTF-8"),
        (("a\nb", None), "one line"),
    ):
        with pytest.raises(InputError, match=said):
            read_token(*given)
    file.write_text("secret")
    assert read_token(None, file) == "secret"
    assert not capsys.readouterr().err
    file.chmod(0o644)
    assert read_token(None, file) == "secret"
    assert "chmod 600" in capsys.readouterr().err


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_log_that_nobody_reads_never_holds_the_service_up(is_closed):
    from prometheus_client import CollectorRegistry, Counter

    from antiphon.serve.monitoring import UnblockedHandler

    reader, writer = os.pipe()
    dropped = Counter("dropped", "", registry=CollectorRegistry())
    if is_closed:
        os.close(reader)
    handler = UnblockedHandler(writer, dropped)
    for _ in range(2000):
        handler.emit(logging.makeLogRecord({"msg": "x" * 200}))
    assert dropped.collect()[0].samples[0].value > 0
    os.close(writer)
    if not is_closed:
        with os.fdopen(reader, "rb") as lines:
            assert set(lines.read().splitlines()) == {b"x" * 200}


def test_a_service_whose_log_nobody_reads_answers_and_stops(runs):
    reader, writer = os.pipe()
    command = ["-m", "antiphon", "serve", runs / "online", "--port", 0, "--device", "cpu"]
    server = start(command, stdout=writer)
    os.close(writer)
    for _ in range(1000):
        assert server.http.get("/health").status_code == 200
    assert server.metric("antiphon_log_dropped_total") > 0
    assert server.stop() == 0
    assert not [line for line in server.errors if "Traceback" in line]
    os.close(reader)


def test_without_the_extra_serve_the_command_says_what_to_install(antiphon, runs, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "antiphon.serve.server", raising=False)
    result = antiphon("serve", runs / "online")
    assert result.status == 2
    assert "pip install -e '.[serve]'" in result.err


def test_other_commands_do_not_import_the_packages_of_the_service():
    program = "import sys; from antiphon.cli import main; sys.argv = ['antiphon', 'recipes']; main()"
    check = (
        "import atexit, sys; atexit.register(lambda: print([n for n in ('fastapi', 'uvicorn') if n in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", f"{check}\n{program}"], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "[]"


def test_sigterm_finishes_what_is_running_and_refuses_new_work(runs):
    with limited_server([runs / "online"]) as server, server.socket() as socket:
        say(socket, event="start", run="online")
        hear(socket, "started")
        answers = []
        asking = threading.Thread(
            target=lambda: answers.append(server.post("predict", run="online", inputs=["dagi" * 10] * 250, nbest=3))
        )
        asking.start()
        assert eventually(lambda: server.metric("antiphon_queue_items") > 0)
        server.process.send_signal(signal.SIGTERM)
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(timeout=DEADLINE)
        assert closed.value.rcvd.code == 1012
        asking.join(DEADLINE)
        assert answers[0].status_code == 200
        assert len(answers[0].json()["predictions"]) == 250
        assert server.process.wait(DEADLINE) == 0
        with pytest.raises(ConnectionRefusedError):
            sockets.create_connection(("127.0.0.1", server.port))
        assert not [line for line in server.errors if "Traceback" in line]


def test_a_client_that_leaves_is_not_computed_for(runs):
    with limited_server([runs / "online"]) as server:
        body = b'{"run": "online", "inputs": [' + b", ".join([b'"dagibudagibu"'] * 250) + b'], "nbest": 3}'
        head = "POST /api/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: "
        for _ in range(4):
            with sockets.create_connection(("127.0.0.1", server.port)) as connection:
                connection.sendall(f"{head}{len(body)}\r\n\r\n".encode() + body)
        assert eventually(lambda: server.metric("antiphon_dropped_total") > 0)
        assert eventually(lambda: server.metric("antiphon_queue_items") == 0)
        assert server.metric("antiphon_batch_items_sum") < 1000


def test_a_client_that_does_not_read_is_closed(runs):
    with limited_server([runs / "online"], limits={"send_seconds": 0.5}) as server:
        connection = sockets.socket()
        connection.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, 2048)
        connection.connect(("127.0.0.1", server.port))
        with connection, server.socket(sock=connection, max_queue=1) as socket:
            say(socket, event="start", run="online", watch=True)
            flood(socket)
        assert eventually(lambda: server.metric("antiphon_open_streams") == 0)


def flood(socket):
    """Sends long inputs without reading any answer, until the connection is closed."""
    try:
        for _ in range(400):
            say(socket, event="read", text="dagibu" * 20)
            say(socket, event="reset")
    except ConnectionClosed:
        return
