"""Servers in processes of their own, and clients for them."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import httpx2
from websockets.sync.client import connect

ROOT = Path(__file__).parent.parent.parent
DEADLINE = 60
_PROGRAM = """
import json, sys
from pathlib import Path
import torch
from antiphon.api.model import load
from antiphon.serve.server import TimedProtocol, serve
from antiphon.serve.settings import Access, Limits, ServiceSettings
given = json.loads(sys.argv[1])
torch.set_num_threads(1)
TimedProtocol.head_seconds = given.get("head_seconds", TimedProtocol.head_seconds)
models = {Path(run).name: load(run, device="cpu") for run in given["runs"]}
for name in ("hosts", "origins"):
    given["access"][name] = tuple(given["access"].get(name, ()))
serve(models, ServiceSettings(access=Access(port=0, **given["access"]), limits=Limits(**given["limits"])))
"""


class Server:
    """A running server: where it is, a client for it, and all that it has printed."""

    def __init__(self, process, token=None):
        self.process, self.errors, self.output = process, [], []
        line = process.stderr.readline()
        assert "serving" in line, line + process.stderr.read()
        self.port = int(line.split(" (")[0].rpartition(":")[2])
        self.address = f"127.0.0.1:{self.port}"
        headers = {"Authorization": f"Bearer {token}".encode()} if token else {}
        self.http = httpx2.Client(base_url=f"http://{self.address}", headers=headers, timeout=DEADLINE)
        for stream, lines in ((process.stderr, self.errors), (process.stdout, self.output)):
            if stream is not None:
                threading.Thread(target=lambda stream=stream, lines=lines: lines.extend(stream), daemon=True).start()

    def post(self, name, **body):
        return self.http.post(f"/api/{name}", json=body)

    def ask(self, name, **body):
        """The answer of a request that has to succeed."""
        response = self.post(name, **body)
        assert response.status_code == 200, response.text
        return response.json()

    def socket(self, **options):
        return connect(f"ws://{self.address}/api/stream", open_timeout=DEADLINE, compression=None, **options)

    def metric(self, name):
        """The value of a metric, or the sum over its labels."""
        lines = self.http.get("/metrics").text.splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.partition(" ")[0].partition("{")[0] == name)

    def stop(self):
        """Ends the server as an operator would; its exit status."""
        self.http.close()
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(DEADLINE)


def start(command, token=None, stdout=subprocess.PIPE):
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, *map(str, command)],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=ROOT,
    )
    return Server(process, token)


@contextmanager
def limited_server(runs, *, access=None, limits=None, head_seconds=15.0):
    """A server with other limits than the command line lets one choose."""
    access = access or {}
    given = {"runs": [*map(str, runs)], "access": access, "limits": limits or {}, "head_seconds": head_seconds}
    server = start(["-c", _PROGRAM, json.dumps(given)], access.get("token"))
    try:
        yield server
    finally:
        server.stop()


def say(socket, **event):
    socket.send(json.dumps(event))


def hear(socket, *until):
    """The events up to one of these kinds."""
    events = []
    while not events or events[-1]["event"] not in until:
        events.append(json.loads(socket.recv(timeout=DEADLINE)))
    return events


def eventually(condition, seconds=DEADLINE):
    """Whether something becomes true before a deadline."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        threading.Event().wait(0.01)
    return True
