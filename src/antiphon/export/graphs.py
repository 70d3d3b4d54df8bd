"""Networks as ONNX graphs, traced with example inputs.

Axes whose sizes depend on the batch are found by comparing two sets of examples that differ in every such size. The
exporter is the one that traces modules: it keeps an LSTM one operator over any number of steps, and takes a fraction of
a second. The exporter of ``torch.export`` takes seconds for each graph, and fixes the number of steps of its outputs.
"""

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import config as shape_checks
from torch import Tensor, nn
from torch.onnx import register_custom_op_symbolic  # type: ignore[attr-defined]

from antiphon.exceptions import check_installed

Named = Mapping[str, Tensor]
_OPSET = 17
"""The version of ONNX's operators: read by every onnxruntime since 1.13."""


class GraphSpec(NamedTuple):
    """A module that maps named tensors to a tuple of tensors.

    Two examples of its inputs differ in every dynamic size; ``axis_names`` has the names of some dynamic axes.
    """

    name: str
    module: nn.Module
    outputs: Sequence[str]
    examples: Sequence[Named]
    axis_names: Mapping[str, Mapping[int, str]] = {}


@torch.inference_mode()
def write_graph(graph: GraphSpec, path: Path, *, int8: bool) -> None:
    """Writes a module as an ONNX file; with ``int8``, its weights have 8 bits."""
    module, outputs, example, other = graph.module.eval(), graph.outputs, *graph.examples
    found, others = (dict(zip(outputs, module(*given.values()), strict=True)) for given in (example, other))
    axes = _dynamic_axes(example, other) | _dynamic_axes(found, others)
    for name, names in graph.axis_names.items():
        axes[name] |= names
    _register_missing_operators()
    with warnings.catch_warnings(), _unchecked_shapes():
        warnings.simplefilter("ignore")  # of tracing: sizes that are constants here
        torch.onnx.export(
            module,
            tuple(example.values()),
            str(path),
            input_names=list(example),
            output_names=list(outputs),
            dynamic_axes=axes,
            opset_version=_OPSET,
            dynamo=False,
        )
    check_installed("onnxruntime", "export", "antiphon export")
    if int8:
        _quantise_weights(path)
    _optimise(path)


def _dynamic_axes(example: Named, other: Named) -> dict[str, dict[int, str]]:
    """For each tensor, the axes whose sizes differ between two examples, with a name for each."""
    return {
        name: {
            axis: f"{name}_{axis}"
            for axis, sizes in enumerate(zip(tensor.shape, other[name].shape, strict=True))
            if sizes[0] != sizes[1]
        }
        for name, tensor in example.items()
    }


@contextmanager
def _unchecked_shapes() -> Iterator[None]:
    """Switches jaxtyping off, if it checks shapes: while a module is traced, sizes are tensors."""
    before = shape_checks.jaxtyping_disable
    shape_checks.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        shape_checks.update("jaxtyping_disable", before)


def _register_missing_operators() -> None:
    """Operators of PyTorch that the exporter does not know, or not as exactly: ``log(sigmoid(x))`` can be infinite."""
    functions: dict[str, Any] = {"log_sigmoid": _log_sigmoid, "logaddexp": _logaddexp}
    for name, function in functions.items():
        register_custom_op_symbolic(f"aten::{name}", function, _OPSET)


def _log_sigmoid(g: Any, values: Any) -> Any:
    return g.op("Neg", g.op("Softplus", g.op("Neg", values)))


def _logaddexp(g: Any, one: Any, other: Any) -> Any:
    lowest, first = (g.op("Constant", value_t=torch.tensor(value, dtype=one.type().dtype())) for value in (-1e30, 1.0))
    finite = (g.op("Max", each, lowest) for each in (one, other))  # else the difference of two infinite ones
    distance = g.op("Abs", g.op("Sub", *finite))
    gain = g.op("Log", g.op("Add", first, g.op("Exp", g.op("Neg", distance))))
    return g.op("Add", g.op("Max", one, other), gain)


def _quantise_weights(path: Path) -> None:
    """Replaces the weights of a graph's matrix products, LSTMs and embeddings by integers of 8 bits with a scale.

    onnxruntime rounds activations as they are computed: dynamic quantisation.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    logger, level = logging.getLogger(), logging.getLogger().level
    logger.setLevel(logging.ERROR)  # it advises to prepare graphs in a way that tracing has done
    try:
        quantize_dynamic(path, path, weight_type=QuantType.QInt8, per_channel=True)
    finally:
        logger.setLevel(level)


def _optimise(path: Path) -> None:
    """Folds constants and fuses operators once and for all: when a graph is loaded, that takes most of the time."""
    import onnxruntime

    options, optimised = onnxruntime.SessionOptions(), path.with_suffix(".optimised")
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath, options.log_severity_level = str(optimised), 4
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    optimised.replace(path)
