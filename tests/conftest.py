"""Settings for every test: one thread, and hypothesis examples that are the same each time."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from hypothesis import settings
from jaxtyping import install_import_hook

# Every shape written in a signature of these packages is checked whenever a test calls it.
install_import_hook(["antiphon.lattice", "antiphon.nn", "antiphon.models"], "beartype.beartype")

torch.set_num_threads(1)
settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("repeatable")
