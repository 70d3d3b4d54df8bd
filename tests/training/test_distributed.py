"""Several processes train what one process trains."""

import re
import socket
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from antiphon.recipe.recipe_file import load_recipe
from antiphon.runs.run_folder import RunFolder
from antiphon.training import distributed
from antiphon.training.fit import train
from antiphon.training.state import load_checkpoint
from antiphon.training.task import EpochBatches
from tests.toy import write_pairs
from tests.training.test_fit import KilledError, kill_in_epoch, log_without_times

__all__ = ["kill_in_epoch"]

PATIENCE = 480
"""Seconds that several processes may take on a machine that is busy with other things."""
EXACT = "import torch; torch.set_default_dtype(torch.float64)\nfrom antiphon.cli import main\nmain()\n"
"""The command in double precision, in which the order of a sum leaves no trace in the log."""


@pytest.fixture
def folder(tmp_path):
    """A recipe whose batches have 15 pairs and, the last of an epoch, one: more processes than pairs."""
    write_pairs(tmp_path / "train.tsv", 61, 1)
    write_pairs(tmp_path / "dev.tsv", 70, 2)
    (tmp_path / "recipe.toml").write_text(
        '[data]\ntrain = "train.tsv"\ndev = "dev.tsv"\n[model]\nhidden_size = 12\ndropout = 0.0\n'
        "[train]\nbatch_size = 15\nmax_epochs = 4\npasses = 2\nlearning_rate = 0.02\nema_decay = 0.5\n"
        'dev_metric = "accuracy"\n'
    )
    (tmp_path / "exact.py").write_text(EXACT)
    return tmp_path


def parameters_with(*gradients):
    parameters = [torch.nn.Parameter(torch.zeros(2)) for _ in gradients]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = None if gradient is None else torch.tensor(gradient)
    return parameters


def test_processes_with_gradients_of_different_weights_average_them_all(monkeypatch):
    """All-reduces of different lengths would wait for each other forever."""
    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    sent = []
    monkeypatch.setattr(distributed.distributed, "all_reduce", lambda flat, group: sent.append(flat.clone()))
    ranks = [[[2.0, 4.0], None, None, [1.0, 1.0]], [None, [6.0, 8.0], None, [3.0, 3.0]]]
    for gradients in ranks:
        distributed.average_gradients(parameters_with(*gradients), None)
    assert sent[0].shape == sent[1].shape
    monkeypatch.setattr(distributed.distributed, "all_reduce", lambda flat, group: flat.copy_(sent[0] + sent[1]))
    for gradients in ranks:
        parameters = parameters_with(*gradients)
        distributed.average_gradients(parameters, None)
        means = [None if each.grad is None else each.grad.tolist() for each in parameters]
        assert means == [[1.0, 2.0], [3.0, 4.0], None, [2.0, 2.0]]


@pytest.fixture
def double_precision():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


DYING = """
import os
from antiphon.training.task import EpochBatches
from antiphon.cli import main
shard = EpochBatches.shard
EpochBatches.shard = lambda self, *where: os._exit(3) if where[:2] == (0, 12) else shard(self, *where)
main()
"""
"""The command, which dies before update 12 of the first epoch."""


LOST = """
import os, signal, sys
from antiphon.training.task import EpochBatches
from antiphon.cli import main
shard, lost = EpochBatches.shard, (sys.argv.pop(1), "0")
def die_or_go_on(self, *where):
    if where[:2] == (2, 3) and (os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]) == lost:
        os.kill(os.getpid(), signal.SIGKILL)
    return shard(self, *where)
EpochBatches.shard = die_or_go_on
main()
"""
"""The command, one of whose processes, of the rank given, is killed before update 3 of the third epoch, once."""

SCRIPT = """
import os, sys
from pathlib import Path
import antiphon
folder = Path(sys.argv[1])
model = antiphon.train(folder / "recipe.toml", folder / "run", settings={"train.max_epochs": 1}, threads=1)
try:
    antiphon.train(folder / "recipe.toml", folder / "run")
except antiphon.AntiphonError as error:
    (folder / os.environ["RANK"]).write_text(f"{model.predict(['badu'])[0].text}\\n{error}")
"""
"""A program that trains with the Python API, and then again into the same folder, which is refused.

Every process writes a file of its own.
"""


LEAVING = """
import os, sys
from pathlib import Path
from antiphon.training import distributed
distributed.join_process_group()
import torch.distributed.nn.functional
distributed.all_reduce_sum(1.0)
distributed._leave_process_group()
names = [(thread / "comm").read_text() for thread in Path("/proc/self/task").iterdir()]
sys.exit(any("gloo" in name for name in names))
"""
"""A program that fails if threads of its process group outlive the group."""


TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]


def torchrun(folder, *arguments, program="exact.py", options=()):
    """The training command in two processes; ``program`` may have an argument of its own."""
    file, *first = program.split()
    command = [*TORCHRUN, "--standalone", "--nproc-per-node", "2", *options]
    train = [folder / file, *first, "train", folder / "recipe.toml", *arguments]
    return subprocess.run([*command, *map(str, train)], capture_output=True, text=True, check=False, timeout=PATIENCE)


def assert_same_training(one, other):
    assert log_without_times(one) == log_without_times(other)
    weights, others = load_file(one.weights), load_file(other.weights)
    for name, weight in weights.items():
        torch.testing.assert_close(others[name], weight, rtol=1e-6, atol=1e-9)


@pytest.mark.usefixtures("double_precision")
def test_two_processes_train_what_one_trains_and_leave_one_run(folder, antiphon):
    one = train(load_recipe(folder / "recipe.toml"), folder / "one")
    done = torchrun(folder, "--out", folder / "two")
    assert done.returncode == 0, done.stderr
    two = type(one)(folder / "two")
    assert_same_training(one, two)
    assert {path.name for path in two.path.iterdir()} == {path.name for path in one.path.iterdir()}
    assert done.stderr.count("train: 61 pairs") == done.stderr.count("epoch 1/4") == 1
    assert antiphon("predict", two.path, stdin=b"badu\n").out == antiphon("predict", one.path, stdin=b"badu\n").out


@pytest.mark.slow
@pytest.mark.usefixtures("double_precision")
def test_two_processes_go_on_with_what_one_began(folder, kill_in_epoch):
    recipe = load_recipe(folder / "recipe.toml")
    whole = train(recipe, folder / "whole")
    come_back = kill_in_epoch(2)
    with pytest.raises(KilledError):
        train(recipe, folder / "killed")
    come_back()
    done = torchrun(folder, "--out", folder / "killed", "--resume")
    assert done.returncode == 0, done.stderr
    assert_same_training(whole, type(whole)(folder / "killed"))


@pytest.mark.slow
def test_two_processes_killed_within_an_epoch_resume_to_the_same_weights(folder):
    """Each continues with its own random numbers and losses; every tenth update they agree on a checkpoint."""
    (folder / "plain.py").write_text("from antiphon.cli import main\nmain()\n")
    (folder / "dying.py").write_text(DYING)
    settings = ["model.dropout=0.3", "train.passes=3", "train.max_epochs=1", "train.checkpoint_minutes=1e-9"]
    options = [part for setting in settings for part in ("--set", setting)]
    assert torchrun(folder, *options, "--out", folder / "whole", program="plain.py").returncode == 0
    assert torchrun(folder, *options, "--out", folder / "killed", program="dying.py").returncode != 0
    checkpoint = load_checkpoint(folder / "killed" / "last.ckpt")
    assert (checkpoint["epochs"], checkpoint["updates"], len(checkpoint["ranks"])) == (0, 10, 2)
    assert torchrun(folder, *options, "--out", folder / "killed", "--resume", program="plain.py").returncode == 0
    whole, resumed = (RunFolder(folder / name) for name in ("whole", "killed"))
    assert log_without_times(whole) == log_without_times(resumed)
    assert whole.weights.read_bytes() == resumed.weights.read_bytes()


@pytest.mark.longest
@pytest.mark.parametrize("rank", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_a_process_that_is_killed_is_restarted_and_training_ends_with_the_same_weights(folder, rank):
    """Of two processes one is killed within an epoch: torchrun starts both again, which resume by themselves."""
    (folder / "lost.py").write_text(LOST)
    options = ["--set", "model.dropout=0.3", "--resume"]
    assert torchrun(folder, *options, "--out", folder / "whole", program="lost.py none").returncode == 0
    program, restart = f"lost.py {rank}", ["--max-restarts", "1"]
    done = torchrun(folder, *options, "--out", folder / "lost", program=program, options=restart)
    assert done.returncode == 0, done.stderr
    assert "exitcode: -9" in done.stderr
    assert done.stderr.count("epoch 2/4") == done.stderr.count("epoch 3/4") == 1
    whole, lost = RunFolder(folder / "whole"), RunFolder(folder / "lost")
    assert log_without_times(lost) == log_without_times(whole)
    assert lost.weights.read_bytes() == whole.weights.read_bytes()


def test_a_lost_connection_is_one_sentence_that_says_how_to_continue(monkeypatch):
    """Called directly: under torchrun the other process may be ended before it can say anything."""

    def lose_connection(*_, **__):
        raise RuntimeError("Connection closed by peer")

    monkeypatch.setattr(distributed, "world_size", lambda: 2)
    for name in ("all_reduce", "broadcast_object_list", "all_gather_object"):
        monkeypatch.setattr(distributed.distributed, name, lose_connection)
    sentence = "^torchrun: rank 0 has lost the connection to another process, expected 2 processes; .* --resume"
    for communicate in (distributed.all_reduce_sum, distributed.broadcast, distributed.all_gather):
        with pytest.raises(distributed.LostProcessError, match=sentence):
            communicate(1.0)


@pytest.mark.slow
def test_a_process_that_is_killed_is_restarted_on_two_machines_which_count_restarts_differently(folder):
    """Only the machine whose process was killed counts a restart, and both have to find each other again."""
    (folder / "lost.py").write_text(LOST)
    with socket.create_server(("localhost", 0)) as server:
        port = server.getsockname()[1]
    machine = [*TORCHRUN, "--nnodes", "2", "--nproc-per-node", "1", "--max-restarts", "2"]
    machine += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{port}", "--rdzv-id", "test"]
    options = ["train", folder / "recipe.toml", "--set", "model.dropout=0.3", "--resume", "--out"]
    command = [*machine, folder / "lost.py", "1", *options, folder / "lost"]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as one, subprocess.Popen(command) as other:
        _, said = one.communicate(timeout=PATIENCE)
    assert (one.returncode, other.returncode) == (0, 0), said
    assert torchrun(folder, *options[2:], folder / "whole", program="lost.py none").returncode == 0
    assert RunFolder(folder / "lost").weights.read_bytes() == RunFolder(folder / "whole").weights.read_bytes()


def test_training_in_python_joins_the_processes_of_torchrun_and_all_hear_of_an_error(folder):
    (folder / "script.py").write_text(SCRIPT)
    command = [*TORCHRUN, "--standalone", "--nproc-per-node", "2", str(folder / "script.py"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    (text, refusal), (other_text, other_refusal) = ((folder / rank).read_text().split("\n") for rank in "01")
    assert other_text == text
    assert other_refusal == f"rank 0: {refusal}"
    assert str(folder / "run") in refusal


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_threads_of_the_process_group_end_before_python_does(tmp_path):
    """One that is still at work when Python ends aborts the process after a training that went well."""
    (tmp_path / "leaving.py").write_text(LEAVING)
    command = [*TORCHRUN, "--standalone", "--nproc-per-node", "2", str(tmp_path / "leaving.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr


def test_bad_data_end_all_processes_with_one_sentence(folder):
    (folder / "train.tsv").write_text("a\tb\nc\n")
    done = torchrun(folder, "--out", folder / "run")
    assert re.findall("^antiphon: .*", done.stderr, re.MULTILINE) == [
        f"antiphon: {folder / 'train.tsv'}:2: 1 column, expected source<TAB>target[<TAB>features]"
    ]
    assert re.search(r"Root Cause.*exitcode  : 2 ", done.stderr, re.DOTALL)
    assert "antiphon/cli" not in done.stderr  # no traceback of ours
    assert not (folder / "run").exists()


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("pairs", [1, 2, 3, 10])
def test_the_mean_over_weighted_shards_is_the_mean_over_the_batch(monkeypatch, size, pairs):
    losses = np.arange(1.0, 1.0 + pairs) ** 2
    batches = EpochBatches(lambda indices, _: losses[indices], lambda _: [np.arange(pairs)], seed=1)
    monkeypatch.setattr(distributed, "world_size", lambda: size)
    found = []
    for rank in range(size):
        monkeypatch.setattr(distributed, "rank", lambda rank=rank: rank)
        found.append(batches.shard(0, 0, np.arange(pairs)))
    assert sum(shard.pairs for shard in found) == pairs
    assert np.mean([shard.batch.sum() * shard.weight for shard in found]) == pytest.approx(losses.mean())
