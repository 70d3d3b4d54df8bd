import ctypes
import os
import subprocess
import sys

import pytest
import torch
import triton

from antiphon.device import (
    available_cores,
    choose_device,
    choose_threads,
    has_triton,
    kernels_can_run,
    limit_onednn_cache,
    use_expandable_segments,
)
from antiphon.exceptions import RecipeError


def test_cores_are_counted_where_the_system_knows_no_affinity(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert available_cores() == 6
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert available_cores() == 1


def test_a_small_model_gets_one_thread_and_a_large_one_all(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert choose_threads(32, 128, target_size=60) == 1
    assert choose_threads(64, 512, target_size=20_000) == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(("limit", "threads"), [("1", 1), ("3", 3), ("3,2", 3), ("64", 8), ("0", 1), ("many", 8)])
def test_omp_num_threads_limits_the_threads_of_a_large_model_unless_torchrun_has_set_it(monkeypatch, limit, threads):
    monkeypatch.setattr("antiphon.device.available_cores", lambda: 8)
    monkeypatch.setenv("OMP_NUM_THREADS", limit)
    assert choose_threads(64, 512, target_size=20_000) == threads
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
    assert choose_threads(64, 512, target_size=20_000) == 8


def test_processes_on_one_machine_share_its_cores():
    cores = len(os.sched_getaffinity(0))
    assert choose_threads(64, 512, target_size=20_000, processes=cores) == 1
    assert choose_threads(64, 512, target_size=20_000, processes=cores + 1) == 1


def test_the_processor_is_the_gpu_only_if_there_is_one():
    assert choose_device("cpu") == "cpu"
    assert choose_device("auto") == ("cuda" if torch.cuda.is_available() else "cpu")


def test_an_unknown_processor_is_refused():
    with pytest.raises(RecipeError, match="--device tpu: expected auto, cpu or cuda"):
        choose_device("tpu")


@pytest.mark.parametrize("name", ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"])
def test_settings_of_memory_that_are_there_are_left_alone(name, monkeypatch):
    monkeypatch.setattr(os, "environ", {name: "max_split_size_mb:64"})
    use_expandable_segments()
    assert os.environ == {name: "max_split_size_mb:64"}


def test_without_settings_memory_grows(monkeypatch):
    monkeypatch.setattr(os, "environ", {})
    use_expandable_segments()
    assert os.environ == {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}


STEPS = """
import resource, torch
from antiphon.data.batch import Batch
from antiphon.device import keep_freed_memory
from antiphon.models.transducer import Transducer
from antiphon.recipe.model_sections import TransducerSection

keep_freed_memory()
torch.set_num_threads(1)
model = Transducer(40, 40, **TransducerSection(dropout=0.0).arguments())
batch = Batch.of([[5] * 11] * 32, [[6] * 11] * 32)
for step in range(10):
    if step == 5:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    model.log_prob(batch).sum().backward()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="there is no glibc")
def test_freed_memory_is_kept_for_the_next_step():
    """So that steps after the first fetch hardly any page from the system; else five steps fetch ten thousand."""
    done = subprocess.run([sys.executable, "-c", STEPS], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 3000


def test_the_cache_of_primitives_is_bounded_unless_it_is_configured(monkeypatch):
    monkeypatch.delenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", raising=False)
    limit_onednn_cache()
    assert os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] == "64"
    monkeypatch.setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "7")
    limit_onednn_cache()
    assert os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] == "7"


@pytest.mark.parametrize(
    ("version", "expected"), [("3.2.0", False), ("3.5.1", False), ("3.6.0+git1", True), ("4.0", True)]
)
def test_an_old_triton_is_as_good_as_none(version, expected, monkeypatch):
    monkeypatch.setattr(triton, "__version__", version)
    assert has_triton.__wrapped__() is expected


def test_without_triton_there_are_no_kernels(monkeypatch):
    monkeypatch.setattr("antiphon.device.find_spec", lambda _: None)
    assert not has_triton.__wrapped__()


def test_tensors_in_host_memory_have_no_kernels():
    assert not kernels_can_run(torch.zeros(1))
