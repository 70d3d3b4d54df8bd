"""The service under load, measured from another process on the same machine.

A unidirectional transducer of the demo's size, trained for two epochs on the embedded pairs, is served. Streams: 200
open ones, each fed five letters a second; the time of a letter is from sending it to the event that it was read, after
which what it caused to be written is on its way too. Requests: 32 clients, each with one request at a time, against one
call of ``predict`` after another in this process. Long inputs: ten streams, alone and beside a client that asks for the
outputs of a text of 1,500 letters again and again. Memory: of the server, after the first 1,000 requests and after all.
Answers under load are compared with those that ``predict`` gives alone: outputs, tokens and alignments have to be
identical; log probabilities may differ by the rounding of floats, and their largest difference is shown.

ANTIPHON_REQUESTS=100000 python -m benchmarks serving
"""

import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import cycle
from pathlib import Path

import torch
from websockets.asyncio.client import connect

from antiphon.demo import pairs_of
from benchmarks.streaming import trained

STREAMS, TOKENS_A_SECOND, STREAM_SECONDS = 200, 5, float(os.environ.get("ANTIPHON_STREAM_SECONDS", 20))
CLIENTS, REQUESTS = 32, int(os.environ.get("ANTIPHON_REQUESTS", 10_000))
FIRST = 1000
FEW = 10
LONG = ("knighthoodphonemeantiphon" * 60)[:1500]
HEAD = "\r\n".join(
    ("POST /api/predict HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json", "Content-Length: {}", "", "")
)
WORDS = [pair.source for pair in pairs_of("test")]


def measure():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        run = Path(os.environ.get("ANTIPHON_RUN") or Path(folder) / "run")
        model = load_run(run)
        rows = [of_streams(run, model, policy) for policy in ("greedy", "beam")]
        rows += [beside(run, inputs) for inputs in ([], [LONG])]
        return [*rows, *of_requests(run, model)]


def load_run(run):
    from antiphon.api.model import load

    return load(run, device="cpu", threads=1) if run.exists() else trained(run)


class Server:
    """A server process; ``memory`` is its resident memory in MB."""

    def __init__(self, run):
        command = [sys.executable, "-m", "antiphon", "serve", str(run), "--port", "0", "--device", "cpu", "--no-log"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        line = self.process.stderr.readline()
        self.port, self.run = int(line.split(" (")[0].rpartition(":")[2]), run.name

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)

    @property
    def seconds(self):
        """Time that the process has spent on a core."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")

    @property
    def memory(self):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def of_streams(run, model, policy):
    with Server(run) as server:
        streams = [Client(server, policy, index) for index in range(STREAMS)]
        before = server.seconds
        asyncio.run(run_all(client.run() for client in streams))
        busy = server.seconds - before
    times = sorted(1000 * seconds for client in streams for seconds in client.times)
    alone = {word: streamed(model, policy, word) for client in streams for word, _ in client.outputs}
    wrong = sum(alone[word] != written for client in streams for word, written in client.outputs)
    return {
        "task": f"{STREAMS} streams, {TOKENS_A_SECOND} tokens a second each",
        "policy": policy,
        "tokens": len(times),
        "lost": sum(client.lost for client in streams),
        "p50_ms": statistics.median(times),
        "p99_ms": times[int(0.99 * len(times))],
        "core_ms_per_token": 1000 * busy / len(times),
        "outputs": sum(len(client.outputs) for client in streams),
        "outputs_unlike_alone": wrong,
    }


def beside(run, inputs):
    """The times of a few streams while a client asks for the outputs of inputs one after another."""
    with Server(run) as server:
        streams = [Client(server, "beam", index) for index in range(FEW)]
        answered = asyncio.run(run_beside(server, streams, inputs))
    times = sorted(1000 * seconds for client in streams for seconds in client.times)
    return {
        "task": f"{FEW} streams beside {max(map(len, inputs), default=0):,} letters",
        "tokens": len(times),
        "p50_ms": statistics.median(times),
        "p99_ms": times[int(0.99 * len(times))],
        "longest_ms": times[-1],
        "answered": answered,
    }


async def run_beside(server, streams, inputs):
    """Runs the streams; how many requests were answered meanwhile."""
    times = []
    asking = asyncio.ensure_future(ask(server, cycle(inputs), times, {}))
    await run_all(client.run() for client in streams)
    asking.cancel()
    return len(times)


async def run_all(coroutines):
    await asyncio.gather(*coroutines)


def streamed(model, policy, word):
    stream = model.stream(policy=policy)
    written = [token for letter in word for token in stream.read(letter)]
    return [*written, *stream.finish()]


class Client:
    """One stream that reads words letter by letter, one after another."""

    def __init__(self, server, policy, index):
        self.server, self.policy, self.index = server, policy, index
        self.times, self.outputs, self.lost = [], [], 0

    async def run(self):
        await asyncio.sleep(self.index / STREAMS / TOKENS_A_SECOND)
        async with connect(f"ws://127.0.0.1:{self.server.port}/api/stream", compression=None) as socket:
            await socket.send(json.dumps({"event": "start", "run": self.server.run, "policy": self.policy}))
            await socket.recv()
            stop = time.perf_counter() + STREAM_SECONDS
            words = iter(WORDS[self.index :] + WORDS[: self.index])
            while time.perf_counter() < stop:
                await self.word(socket, next(words))

    async def word(self, socket, word):
        for letter in word:
            started = time.perf_counter()
            await socket.send(json.dumps({"event": "read", "token": letter}))
            event = {}
            while event.get("event") != "read":
                event = json.loads(await socket.recv())
            self.lost += event["token"] != letter
            self.times.append(time.perf_counter() - started)
            await asyncio.sleep(max(0.0, 1 / TOKENS_A_SECOND - (time.perf_counter() - started)))
        await socket.send('{"event": "end"}')
        while event["event"] != "end":
            event = json.loads(await socket.recv())
        self.outputs.append((word, event["tokens"]))
        await socket.send('{"event": "reset"}')
        while event["event"] != "started":
            event = json.loads(await socket.recv())


def of_requests(run, model):
    started, busy = time.perf_counter(), time.process_time()
    alone = {word: model.predict([word])[0] for word in WORDS}
    in_a_loop = len(WORDS) / (time.perf_counter() - started)
    core_ms = 1000 * (time.process_time() - busy) / len(WORDS)
    with Server(run) as server:
        first = sequential(server)
        asyncio.run(load_with_requests(server, FIRST))
        before, busy = server.memory, server.seconds
        times, answers, seconds = asyncio.run(load_with_requests(server, REQUESTS - FIRST))
        after, busy = server.memory, server.seconds - busy
    times.sort()
    per_second = len(times) / seconds
    compared = [compare(answers[word], alone[word]) for word in answers]
    return [
        {"task": "one predict after another", "per_second": in_a_loop, "core_ms_per_request": core_ms},
        {
            "task": f"{CLIENTS} clients",
            "per_second": per_second,
            "to_one_after_another": per_second / in_a_loop,
            "p50_ms": 1000 * statistics.median(times),
            "p99_ms": 1000 * times[int(0.99 * len(times))],
            "core_ms_per_request": 1000 * busy / len(times),
            "outputs_unlike_alone": sum(not same for same, _ in compared),
            "largest_difference_of_log_probability": max(difference for _, difference in compared),
        },
        {"task": "first requests", "first_ms": first[0], "tenth_ms": first[9]},
        {"task": f"memory after {REQUESTS:,} requests", "mb": after, "mb_after_1000": before, "ratio": after / before},
    ]


def sequential(server):
    """The times of the first ten requests, one after another."""
    times = []
    for word in WORDS[:10]:
        asyncio.run(ask(server, iter([word]), times, {}))
    return [1000 * seconds for seconds in times]


def compare(answer, prediction):
    """Whether output, tokens and alignment are the same, and how much the log probabilities differ."""
    same = (
        answer["text"] == prediction.text
        and tuple(answer["tokens"]) == prediction.tokens
        and [tuple(link) for link in answer["alignment"]] == prediction.alignment
    )
    return same, abs(answer["log_probability"] - prediction.log_probability)


async def load_with_requests(server, count):
    times, answers = [], {}
    words = iter(WORDS[index % len(WORDS)] for index in range(count))
    started = time.perf_counter()
    await asyncio.gather(*(ask(server, words, times, answers) for _ in range(CLIENTS)))
    return times, answers, time.perf_counter() - started


async def ask(server, words, times, answers):
    """Asks for one word after another over one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    for word in words:
        body = json.dumps({"run": server.run, "inputs": [word]}).encode()
        started = time.perf_counter()
        writer.write(HEAD.format(len(body)).encode() + body)
        headers = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        answer = json.loads(await reader.readexactly(int(headers.partition("content-length: ")[2].split("\r")[0])))
        assert headers.startswith("http/1.1 200"), (headers, answer)
        times.append(time.perf_counter() - started)
        answers[word] = answer["predictions"][0]
    writer.close()
