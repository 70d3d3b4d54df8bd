"""What is wrong with a run is said in one sentence before anything large is allocated, and reading writes nothing."""

import json
import shutil
import time

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import antiphon as package
from antiphon.exceptions import AntiphonError, RunError
from antiphon.runs.run_folder import locked_folder
from antiphon.storage.manifest import FORMAT
from antiphon.training.state import Checkpoint, load_checkpoint, refuse_other_shapes
from tests.sealing import seal_again
from tests.subprocesses import run_python


@pytest.fixture
def run(toy_run, tmp_path):
    """A copy of the toy run to damage."""
    return shutil.copytree(toy_run, tmp_path / "run")


def refusal(run):
    with pytest.raises(AntiphonError) as refused:
        package.load(run)
    return str(refused.value)


@pytest.mark.parametrize("bomb", ["hidden_size = 4000", "embedding_size = 20000", "layers = 20"])
def test_a_recipe_too_large_for_its_weights_is_refused_before_anything_is_allocated(run, bomb):
    name = bomb.split(" ")[0]
    recipe = (run / "recipe.toml").read_text()
    lines = [line for line in recipe.splitlines() if not line.startswith(f"{name} = ")]
    lines.insert(lines.index("[model]") + 1, bomb)
    (run / "recipe.toml").write_text("\n".join(lines))
    seal_again(run)
    started = time.monotonic()
    assert "model.safetensors: " in refusal(run)
    assert time.monotonic() - started < 10


def test_the_tensor_of_another_shape_is_named_with_both_shapes(run):
    weights = load_file(run / "model.safetensors")
    name = sorted(weights)[0]
    save_file(weights | {name: torch.zeros(3, 5)}, run / "model.safetensors")
    seal_again(run)
    assert f"({name}: 3x5, expected " in refusal(run)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused_by_file_and_tensor(run, value):
    weights = load_file(run / "model.safetensors")
    name = sorted(weights)[-1]
    weights[name].view(-1)[-1] = value
    save_file(weights, run / "model.safetensors")
    seal_again(run)
    assert f"model.safetensors: {name} holds NaN or infinite numbers" in refusal(run)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64, torch.float8_e4m3fn, torch.bool])
def test_weights_of_types_that_no_training_writes_are_refused(run, dtype):
    weights = load_file(run / "model.safetensors")
    name = sorted(weights)[-1]
    save_file(weights | {name: weights[name].to(dtype)}, run / "model.safetensors")
    seal_again(run)
    assert f"model.safetensors: {name} is of {dtype}, expected one of torch.float32, " in refusal(run)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("recipe.toml", b""),
        ("recipe.toml", b"[data]\n"),
        ("recipe.toml", b"a = " + b"[" * 5000),
        ("recipe.toml", b"\xff\xfe"),
        ("source.vocab", b"<pad>\n<unk>\n<s>\n</s>\n\xff\n"),
        ("target.vocab", b"<pad>\n<unk>\n<s>\n</s>\na\nb"),
        ("model.safetensors", b"\xff" * 100),
        ("model.safetensors", b""),
        ("manifest.json", b"[" * 100_000),
        ("manifest.json", b"\xff"),
        ("manifest.json", b"[]"),
    ],
)
def test_a_damaged_file_is_one_sentence(run, name, content):
    (run / name).write_bytes(content)
    if name != "manifest.json":
        assert f"{name}: damaged, or changed by hand" in refusal(run)
        seal_again(run)
    assert f"{name}: " in refusal(run)
    assert "\n" not in refusal(run)


@pytest.mark.parametrize("content", [b"[" * 100_000, b"\xff", b"[1]", b'{"a": '])
def test_damaged_metrics_are_one_sentence(antiphon, run, content):
    (run / "metrics.json").write_bytes(content)
    seal_again(run)
    result = antiphon("info", run)
    assert result.status == 2
    assert "metrics.json: " in result.err
    assert result.err.count("\n") == 1
    for combined in (["combine", "--direct", run], ["ensemble", run, run]):
        assert antiphon(*combined, "--out", run.parent / "combined").status == 2
        assert not (run.parent / "combined").exists()


@pytest.mark.parametrize("changes", [{"dev_accuracy": None}, {"epochs": "x"}, {"best_epoch": [1]}, None])
def test_metrics_that_no_training_wrote_are_one_sentence(antiphon, run, changes):
    metrics = json.loads((run / "metrics.json").read_text()) | (changes or {})
    (run / "metrics.json").write_text(json.dumps({"seed": 1} if changes is None else metrics))
    seal_again(run)
    result = antiphon("train", "toy", "--resume", "--out", run)
    assert result.status == 2
    assert "metrics.json: " in result.err.splitlines()[-1]


def test_a_checkpoint_of_another_model_is_refused(tmp_path):
    module = torch.nn.Linear(2, 2)
    path = tmp_path / "last.ckpt"
    checkpoint = dict.fromkeys(Checkpoint.__annotations__) | {"model": {"weight": torch.zeros(1, 1)}}
    torch.save(checkpoint, path)
    with pytest.raises(RunError, match=r"last.ckpt: does not fit the model .* --force"), refuse_other_shapes(path):
        module.load_state_dict(load_checkpoint(path)["model"])
    torch.save([1, 2], path)
    with pytest.raises(RunError, match=r"last.ckpt: not a checkpoint of training"):
        load_checkpoint(path)


def test_a_run_that_is_being_written_is_read_but_not_written_by_others(antiphon, run, tmp_path):
    direct = shutil.copytree(run, tmp_path / "direct")
    with locked_folder(run):
        assert antiphon("predict", run, stdin=b"badu\n").out == "baaduun\n"
        for arguments in (
            ["train", "toy", "--out", run, "--resume"],
            ["train", "toy", "--out", run, "--force"],
            ["tune", run, "dev.tsv"],
            ["combine", "--direct", direct, "--out", run, "--force"],
        ):
            result = antiphon(*arguments)
            assert result.status == 2
            assert f"{run}: another antiphon process is writing into this folder" in result.err
    assert antiphon("predict", run, stdin=b"badu\n").out == "baaduun\n"


def test_reading_a_run_writes_nothing(run, tmp_path):
    (tmp_path / "input.txt").write_text("badu\n")
    program = """
import os, sys
from pathlib import Path
from tests.campaign.forks import call
from tests.campaign.operations import watch

run, text = map(Path, sys.argv[1:])
heard = []
watch(run, heard.append)
for command in (["predict", run, text], ["info", run], ["align", run, text.with_name("pairs.tsv")]):
    assert call(*command)[0] == 0, call(*command)
assert not heard, heard
"""
    (tmp_path / "pairs.tsv").write_text("badu\tbaaduun\n")
    run_python(program, run, tmp_path / "input.txt")


def test_weights_have_the_mode_that_the_umask_asks_for(run):
    assert {path.stat().st_mode & 0o777 for path in run.iterdir()} == {(run / "recipe.toml").stat().st_mode & 0o777}


def test_the_manifest_lists_every_file_with_its_size(run):
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["format"] == FORMAT
    sizes = {path.name: path.stat().st_size for path in run.iterdir() if path.name != "manifest.json"}
    assert {name: entry["bytes"] for name, entry in manifest["files"].items()} == sizes
    assert np.all([len(entry["sha256"]) == 64 for entry in manifest["files"].values()])


def test_a_full_disk_is_an_error_of_the_system_whatever_writes(tmp_path):
    program = """
import resource, sys
from pathlib import Path
import torch
from antiphon.exceptions import is_disk_full
from antiphon.storage.tensors import save_tensors
from antiphon.training.state import save_checkpoint

resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
for save in (save_tensors, save_checkpoint):
    try:
        save({"a": torch.zeros(100_000)}, Path(sys.argv[1]) / "file")
    except OSError as error:
        assert is_disk_full(error), error
    else:
        raise AssertionError(save)
"""
    run_python(program, tmp_path)


def test_a_run_is_loaded_without_the_compiler_of_pytorch(toy_run):
    program = """
import sys
import antiphon
antiphon.load(sys.argv[1])
assert "torch" in sys.modules
assert "torch._dynamo" not in sys.modules
"""
    run_python(program, toy_run)
