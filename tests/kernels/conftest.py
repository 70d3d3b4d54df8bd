"""Kernels run on the GPU, if there is one; otherwise Triton's interpreter runs them here, line by line."""

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined


@pytest.fixture
def device():
    return "cuda" if torch.cuda.is_available() else "cpu"
