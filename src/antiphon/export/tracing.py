"""Networks as ONNX files, traced with example inputs.

Axes whose sizes depend on the batch are found by comparing two sets of examples that differ in every such size. The
exporter is the one that traces modules: it keeps an LSTM one operator over any number of steps, and takes a fraction of
a second. The exporter of ``torch.export`` takes seconds for each graph, and fixes the number of steps of its outputs.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import config as shape_checks
from torch import Tensor, nn

Named = Mapping[str, Tensor]
OPSET = 17
"""The version of ONNX's operators: read by every onnxruntime since 1.13."""


class GraphSpec(NamedTuple):
    """A module that maps named tensors to a tuple of tensors.

    Two examples of its inputs differ in every dynamic size; ``axis_names`` has the names of some dynamic axes.
    """

    name: str
    module: nn.Module
    outputs: tuple[str, ...]
    examples: Sequence[Named]
    axis_names: Mapping[str, Mapping[int, str]] = {}


@torch.inference_mode()
def write_graph(graph: GraphSpec, path: Path) -> None:
    """Writes a module as an ONNX file."""
    module, outputs, example, other = graph.module, graph.outputs, *graph.examples
    found, others = (dict(zip(outputs, module(*given.values()), strict=True)) for given in (example, other))
    axes = dynamic_axes(example, other) | dynamic_axes(found, others)
    for name, names in graph.axis_names.items():
        axes[name] |= names
    with warnings.catch_warnings(), _unchecked_shapes():
        warnings.simplefilter("ignore")  # of tracing: sizes that are constants here
        torch.onnx.export(
            module,
            tuple(example.values()),
            str(path),
            input_names=list(example),
            output_names=list(outputs),
            dynamic_axes=axes,
            opset_version=OPSET,
            dynamo=False,
        )


@contextmanager
def _unchecked_shapes() -> Iterator[None]:
    """Switches jaxtyping off, if it checks shapes: while a module is traced, sizes are tensors."""
    before = shape_checks.jaxtyping_disable
    shape_checks.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        shape_checks.update("jaxtyping_disable", before)


def dynamic_axes(example: Named, other: Named) -> dict[str, dict[int, str]]:
    """For each tensor, the axes whose sizes differ between two examples, with a name for each."""
    return {
        name: {
            axis: f"{name}_{axis}"
            for axis, sizes in enumerate(zip(tensor.shape, other[name].shape, strict=True))
            if sizes[0] != sizes[1]
        }
        for name, tensor in example.items()
    }
