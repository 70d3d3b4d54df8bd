"""Kernels run where Triton has all that they use."""

import pytest
import torch
import triton

from antiphon.triton_support import has_triton, kernels_can_run


@pytest.mark.parametrize(
    ("version", "expected"), [("3.2.0", False), ("3.5.1", False), ("3.6.0+git1", True), ("4.0", True)]
)
def test_an_old_triton_is_as_good_as_none(version, expected, monkeypatch):
    monkeypatch.setattr(triton, "__version__", version)
    assert has_triton.__wrapped__() is expected


def test_without_triton_there_are_no_kernels(monkeypatch):
    monkeypatch.setattr("antiphon.triton_support.find_spec", lambda _: None)
    assert not has_triton.__wrapped__()


def test_tensors_in_host_memory_have_no_kernels():
    assert not kernels_can_run(torch.zeros(1))
