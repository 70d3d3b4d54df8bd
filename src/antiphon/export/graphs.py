"""The graphs of each network, and how they are traced with example inputs and written as ONNX files.

Every model of ``models/left_to_right.py`` has graphs for ``start`` and ``step``, with an input and an output for each
tensor of its memory and of its state. A transducer also has

rows    log probabilities of the input position at which one more token is written
read    one more source token, for streams: what it contributes to its row
write   one more target token: what it contributes to its column
cell    log probabilities in cells, given both: of writing, of reading, and of the tokens
open    the states of source and target before their first token

The last four only if the source can be read token by token, by an LSTM from left to right.

Axes whose sizes depend on the batch are found by comparing two sets of examples that differ in every such size. The
exporter is the one that traces modules: it keeps an LSTM one operator over any number of steps, and takes a fraction of
a second. The exporter of ``torch.export`` takes seconds for each graph, and fixes the number of steps of its outputs.
"""

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import config as shape_checks
from torch import Tensor, nn
from torch.onnx import register_custom_op_symbolic  # type: ignore[attr-defined]
from torch.utils import _pytree as pytree

from antiphon.data.batch import Batch
from antiphon.exceptions import check_installed
from antiphon.lattice.paths import IMPOSSIBLE
from antiphon.lite.graphs import AFTER, FACTORS, MEMORY, PREFIXES, SOURCE, STATE, TARGET
from antiphon.models.ensemble_model import Ensemble
from antiphon.models.left_to_right import never_written, select
from antiphon.models.transducer import Transducer
from antiphon.models.transformer import Transformer, TransformerMemory
from antiphon.nn.copying import add_row_copy
from antiphon.nn.transformer_layers import AttentionCache, KeysValues
from antiphon.torch_free.vocab import END, SPECIALS, START

Named = Mapping[str, Tensor]
_OPSET = 17
"""The version of ONNX's operators: read by every onnxruntime since 1.13."""
Example = dict[str, Tensor]
_SIZES = ((2, 3, 4), (3, 5, 6))
"""Sequences, tokens and features of the two examples."""


class GraphSpec(NamedTuple):
    """A module that maps named tensors to a tuple of tensors.

    Two examples of its inputs differ in every dynamic size; ``axis_names`` has the names of some dynamic axes.
    """

    name: str
    module: nn.Module
    outputs: Sequence[str]
    examples: Sequence[Named]
    axis_names: Mapping[str, Mapping[int, str]] = {}


def exportable(model: nn.Module) -> nn.Module:
    """The model with states that hold only tensors, which is traced instead."""
    if isinstance(model, Ensemble):
        model.members = nn.ModuleList(map(exportable, model.members))
    return TransformerSteps(model) if isinstance(model, Transformer) else model


class TransformerSteps(nn.Module):
    """A transformer whose state holds only tensors: keys and values of the prefix, which all have the same length."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def start(self, batch: Batch) -> tuple[TransformerMemory, tuple[KeysValues, ...]]:
        """The sources, encoded, and prefixes without tokens."""
        memory, cache = self.model.start(batch)
        return memory, cache.layers

    def step(
        self, memory: TransformerMemory, state: tuple[KeysValues, ...], tokens: Tensor, sentence: Tensor
    ) -> tuple[Tensor, tuple[KeysValues, ...]]:
        """Log probabilities of the token after these, and the state to continue from."""
        length = state[0].keys.shape[2]
        cache = AttentionCache(state, torch.zeros_like(tokens) + length, length)
        log_next, after = self.model.step(memory, cache, tokens, sentence)
        return log_next, after.layers


class Traced(nn.Module):
    """A function of a model whose first arguments, like ``example``, are given tensor by tensor; then all others."""

    def __init__(self, model: nn.Module, example: tuple[Any, ...], function: Callable[..., Any]) -> None:
        super().__init__()
        self.model, self.function = model, function
        self.leaves, self.structure = pytree.tree_flatten(example)

    def forward(self, *given: Tensor) -> tuple[Tensor, ...]:
        """Every tensor that the function gives."""
        tensors = iter(given)
        leaves = [next(tensors) if isinstance(leaf, Tensor) else leaf for leaf in self.leaves]
        found = self.function(*pytree.tree_unflatten(leaves, self.structure), *tensors)
        return tuple(leaf for leaf in pytree.tree_leaves(found) if isinstance(leaf, Tensor))


@torch.no_grad()
def step_graphs(model: Any) -> Iterator[GraphSpec]:
    """The graphs for ``start`` and ``step`` of a model, and the one for ``rows`` of a transducer."""
    examples = [_start_example(*size) for size in _SIZES]
    memory, state = model.start(_batch(**examples[0]))
    traced: tuple[Any, ...] = ()

    def start(*given: Tensor) -> tuple[Any, Any]:
        """Memory and state; those that were traced last are kept, with all in them that is not a tensor."""
        nonlocal traced
        traced = model.start(_batch(*given))
        return traced

    names = [*_named_tensors(memory, MEMORY), *_named_tensors(state, STATE)]
    yield GraphSpec("start", Traced(model, (), start), names, examples)
    axis_names = _axis_names(state, STATE)
    steps = [_after_steps(model, example, count) for count, example in enumerate(examples, 1)]
    extra = _step(model, memory, state, torch.full((_SIZES[0][0],), START), torch.arange(_SIZES[0][0]))[2]
    outputs = ["log_next", *(f"{name}{AFTER}" for name in axis_names), *extra]
    yield GraphSpec("step", Traced(model, traced, partial(_step, model)), outputs, steps, axis_names)
    if "log_arrive" in extra:
        rows = Traced(model, traced, model.log_rows)
        for example in steps:
            tokens, sentence = example.pop("tokens"), example.pop("sentence")
            more = torch.arange(len(tokens) + 1) % len(tokens)
            example |= {"parent": more, "tokens": tokens[more], "sentence": sentence[more]}
        yield GraphSpec("rows", rows, ["log_rows"], steps)


def _step(model: Any, *given: Any) -> tuple[Tensor, Any, Example]:
    """Log probabilities, next state, and by name what alignments are found from."""
    if isinstance(model, Transducer):
        log_next, after, rows = model.aligning_step(*given)
        return log_next, after, dict(zip(("log_arrive", "log_forward", "log_read"), cast(Any, rows)[1:], strict=True))
    if not isinstance(model, Ensemble):
        return *model.step(*given), {}
    steps = [_step(member, *model.given_to(m, *given)) for m, member in enumerate(model.members)]
    aligner = model.first_of(Transducer)
    extra = {} if aligner is None else steps[aligner][2]
    return model.average([step[0] for step in steps]), tuple(step[1] for step in steps), extra


def _axis_names(state: Any, prefix: str) -> dict[str, dict[int, str]]:
    """For each tensor of a state, the name of the axis of prefixes: the one that ``select`` changes."""
    selected = _named_tensors(select(state, torch.zeros(7, dtype=torch.long)), prefix)
    names = {}
    for name, tensor in _named_tensors(state, prefix).items():
        sizes = zip(tensor.shape, selected[name].shape, strict=True)
        names[name] = {[one != other for one, other in sizes].index(True): PREFIXES}
    return names


def _after_steps(model: Any, example: Example, count: int) -> Example:
    """Inputs of a step after some tokens of every sentence: states that grow differ in size then."""
    memory, state = model.start(_batch(**example))
    sentence = torch.arange(len(example["source"]))
    tokens = torch.full_like(sentence, START)
    for _ in range(count):
        _, state = model.step(memory, state, tokens, sentence)
    named = _named_tensors(memory, MEMORY) | _named_tensors(state, STATE)
    return named | {"tokens": tokens, "sentence": sentence}


def _start_example(N: int, T: int, F: int) -> Example:
    lengths = torch.arange(T, T - N, -1).clamp(min=1)
    return {"source": _tokens(N, T), "lengths": lengths, "features": _tokens(N, F), "copied": _tokens(N, T)}


def _tokens(N: int, T: int) -> Tensor:
    """Ids that every vocabulary has."""
    return torch.arange(N * T).view(N, T) % len(SPECIALS)


def _batch(source: Tensor, lengths: Tensor, features: Tensor, copied: Tensor) -> Batch:
    """A batch of sources without targets."""
    return Batch(source, lengths, torch.full_like(source[:, :1], END), torch.ones_like(lengths), features, copied)


def _named_tensors(tree: Any, prefix: str) -> Example:
    """The tensors of a memory or a state by name."""
    leaves = pytree.tree_flatten_with_path(tree)[0]
    return {
        "_".join([prefix, *(str(getattr(key, "name", getattr(key, "idx", key))) for key in path)]): leaf
        for path, leaf in leaves
        if isinstance(leaf, Tensor)
    }


@torch.no_grad()
def stream_graphs(model: nn.Module) -> Iterator[GraphSpec]:
    """The graphs of a transducer that reads the source token by token; none of other models."""
    if not isinstance(model, Transducer) or model.attention is not None or model.encoder.bidirectional:
        return
    features = [{"features": _tokens(N, F)} for N, _, F in _SIZES]
    opened = [(model.source_state(each["features"]), model.target_state(each["features"])) for each in features]
    names = [[*_named_tensors(state, side)] for state, side in zip(opened[0], (SOURCE, TARGET), strict=True)]
    opening = Traced(model, (), lambda ids: (model.source_state(ids), model.target_state(ids)))
    yield GraphSpec("open", opening, [*names[0], *names[1]], features)
    functions = model.encode_step, model.decode_step
    for n, (name, side, function) in enumerate(zip(("read", "write"), (SOURCE, TARGET), functions, strict=True)):
        tokens = [{"tokens": _tokens(N, 1)[:, 0]} for N, _, _ in _SIZES]
        examples = [_named_tensors(states[n], side) | ids for states, ids in zip(opened, tokens, strict=True)]
        graph = Traced(model, opened[0][n : n + 1], lambda state, ids, function=function: function(ids, state))
        axes = _axis_names(opened[0][n], side)
        yield GraphSpec(name, graph, [*FACTORS, *(f"{name}{AFTER}" for name in names[n])], examples, axes)
    examples = [_cell_example(model, N) for N, _, _ in _SIZES]
    yield GraphSpec("cell", Cell(model), ["log_emit", "log_read", "log_probs"], examples)


class Cell(nn.Module):
    """Log probabilities in cells of streams: of writing, of reading, and of the tokens that can be written there.

    The last token is a copy of the input token of the row, ``copied``, if the model copies words.
    """

    def __init__(self, model: Transducer) -> None:
        super().__init__()
        self.model = model

    def forward(self, *given: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The three, given both sides' factors, the bias on writing, whether a row is the last, and its word."""
        source_logits, source_part, target_logits, target_part, emit_bias, is_last, copied = given
        log_odds = self.model.transition.log_odds(source_part, target_part) + emit_bias
        log_probs = (source_logits + target_logits).log_softmax(1)
        if self.model.copies_words:
            log_probs = add_row_copy(log_probs, copied)
        token = torch.arange(log_probs.shape[1])
        forbidden = (token[:, None] == torch.tensor(never_written(self.model))).any(1)
        forbidden = forbidden | ((token == END) & ~is_last[:, None])
        return *self.model.split_odds(log_odds, is_last), log_probs.masked_fill(forbidden, IMPOSSIBLE)


def _cell_example(model: Transducer, N: int) -> Example:
    target, _ = model.decode_step(_tokens(N, 1)[:, 0], model.target_state(_tokens(N, 1)))
    factors = {f"{side}_{name}": part for side in (SOURCE, TARGET) for name, part in zip(FACTORS, target, strict=True)}
    return factors | {"emit_bias": torch.zeros(N), "is_last": torch.arange(N) > 0, "copied": torch.arange(N) - 1}


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
