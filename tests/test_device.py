import ctypes
import os
import resource
import subprocess
import sys

import pytest
import torch

from antiphon.config import Recipe
from antiphon.device import choose_device, choose_threads, let_memory_grow
from antiphon.errors import RecipeError


def recipe_of(hidden_size, batch_size):
    return Recipe.model_validate({"model": {"hidden_size": hidden_size}, "train": {"batch_size": batch_size}})


def test_a_small_model_gets_one_thread_and_a_large_one_all():
    assert choose_threads(recipe_of(128, 32), target_size=60) == 1
    assert choose_threads(recipe_of(512, 64), target_size=20_000) == len(os.sched_getaffinity(0))


def test_processes_on_one_machine_share_its_cores():
    cores = len(os.sched_getaffinity(0))
    assert choose_threads(recipe_of(512, 64), target_size=20_000, processes=cores) == 1
    assert choose_threads(recipe_of(512, 64), target_size=20_000, processes=cores + 1) == 1


def test_the_processor_is_the_gpu_only_if_there_is_one():
    assert choose_device("cpu") == "cpu"
    assert choose_device("auto") == ("cuda" if torch.cuda.is_available() else "cpu")


def test_an_unknown_processor_is_refused():
    with pytest.raises(RecipeError, match="--device tpu: expected auto, cpu or cuda"):
        choose_device("tpu")


@pytest.mark.parametrize("name", ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"])
def test_settings_of_memory_that_are_there_are_left_alone(name, monkeypatch):
    monkeypatch.setattr(os, "environ", {name: "max_split_size_mb:64"})
    let_memory_grow()
    assert os.environ == {name: "max_split_size_mb:64"}


def test_without_settings_memory_grows(monkeypatch):
    monkeypatch.setattr(os, "environ", {})
    let_memory_grow()
    assert os.environ == {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="there is no glibc")
def test_freed_memory_is_kept_for_the_next_step():
    """Ten times the same tensors fetch their pages from the system a few times, not ten times."""
    code = (
        "import resource, torch\n"
        "from antiphon.device import keep_freed_memory\n"
        "keep_freed_memory()\n"
        "for _ in range(10):\n"
        "    [torch.ones(2**24) for _ in range(3)]\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    pages_of_tensors = 3 * 4 * 2**24 // resource.getpagesize()
    assert int(done.stdout) < 5 * pages_of_tensors
