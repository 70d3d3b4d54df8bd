"""The parts of each network that become ONNX graphs, and the examples that they are traced with.

A transducer has a graph for the source, one for the target and, if it is unidirectional, one for a single source token;
the sum over alignments is computed by ``antiphon.lite``. Every other model of ``models/left_to_right.py`` has a graph
for ``start`` and one for ``step``, with one input and one output for each tensor of its memory and of its state.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from antiphon.data.batch import Batch
from antiphon.exceptions import RunError
from antiphon.export.tracing import GraphSpec
from antiphon.lite.step_model import PREFIXES
from antiphon.models.left_to_right import LeftToRight
from antiphon.models.transducer import Transducer
from antiphon.models.transformer import Transformer, TransformerMemory
from antiphon.nn.attention_cache import AttentionCache, KeysValues
from antiphon.nn.cell_factors import SideState
from antiphon.nn.recurrent import SourceEncoder
from antiphon.nn.source_attention import SourceContext
from antiphon.torch_free.vocab import END, SPECIALS, START

Example = dict[str, Tensor]


def transducer_graphs(model: Transducer) -> Iterator[GraphSpec]:
    """The graphs of a transducer."""
    source, target = SourceGraph(model), TargetGraph(model)
    yield GraphSpec("encode", source, source.outputs, [_source_example(*size) for size in _SIZES])
    yield GraphSpec("decode", target, target.outputs, [_target_example(model, *size) for size in _SIZES])
    if can_stream(model):
        step = SourceStepGraph(model)
        yield GraphSpec("encode_step", step, step.outputs, [_step_example(model, *size) for size in _SIZES])


def can_stream(model: Transducer) -> bool:
    """Whether the source can be read token by token: by an LSTM from left to right."""
    return isinstance(model.encoder, SourceEncoder) and not model.encoder.bidirectional


_SIZES = ((2, 3, 4), (3, 5, 6))
"""Sequences, tokens and features of the two examples."""


class SourceGraph(nn.Module):
    """What the source contributes to every cell, and the states that the decoder attends to, if it does."""

    def __init__(self, model: Transducer) -> None:
        super().__init__()
        self.model = model
        self.outputs = ("logits", "transition", *(("states",) if model.attention is not None else ()))

    def forward(self, source: Tensor, lengths: Tensor, features: Tensor, keys: Tensor) -> tuple[Tensor, ...]:
        """The tensors that ``outputs`` names."""
        model = self.model
        states = model.encoder(source, lengths, model.source_feature_vectors(features))
        found = *model.source_factors(states, keys), states
        return found[: len(self.outputs)]


class SourceStepGraph(nn.Module):
    """What one more source token contributes, and the state to continue from."""

    outputs = ("logits", "transition", "hidden_after", "cell_after")

    def __init__(self, model: Transducer) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, tokens: Tensor, features: Tensor, keys: Tensor, hidden: Tensor, cell: Tensor
    ) -> tuple[Tensor, ...]:
        """The tensors that ``outputs`` names."""
        model, encoder = self.model, cast(SourceEncoder, self.model.encoder)
        states, after = encoder.step(tokens, (hidden, cell), model.source_feature_vectors(features))
        return *model.source_factors(states, keys), *after


class TargetGraph(nn.Module):
    """What the target contributes after each token of a prefix, and the state to continue from."""

    outputs = ("logits", "transition", "hidden_after", "cell_after")

    def __init__(self, model: Transducer) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        tokens: Tensor,
        features: Tensor,
        keys: Tensor,
        hidden: Tensor,
        cell: Tensor,
        states: Tensor | None = None,
        lengths: Tensor | None = None,
        sentence: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """The tensors that ``outputs`` names; ``states`` are those of the source, if the decoder attends to them."""
        model = self.model
        read, after = model.decode_tokens(tokens, (hidden, cell), model.target_feature_vectors(features))
        context = None
        if states is not None and lengths is not None and sentence is not None:
            valid = torch.arange(states.shape[1]) < lengths[:, None]
            context = SourceContext(states, valid).select(sentence)
        factors = model.target_factors(model.attend(read, context), keys)
        return *factors, *after


def _source_example(N: int, T: int, F: int) -> Example:
    lengths = torch.arange(T, T - N, -1).clamp(min=1)
    return {"source": _tokens(N, T), "lengths": lengths, "features": _tokens(N, F), "keys": _tokens(N, T)}


def _target_example(model: Transducer, N: int, T: int, F: int) -> Example:
    state = model.target_state(_tokens(N, F))
    example = {"tokens": _tokens(N, T), "features": _tokens(N, F), "keys": _tokens(N, T)} | _lstm(state)
    if model.attention is None:
        return example
    B, I = N + 1, T + 1
    states = torch.zeros(B, I, model.encoder.output_size)
    return example | {"states": states, "lengths": torch.full((B,), I), "sentence": torch.arange(N)}


def _step_example(model: Transducer, N: int, T: int, F: int) -> Example:
    state = cast(SideState, model.source_state(_tokens(N, F)))
    return {"tokens": _tokens(N, 1)[:, 0], "features": _tokens(N, F), "keys": _tokens(N, 1)[:, 0]} | _lstm(state)


def _tokens(N: int, T: int) -> Tensor:
    """Ids that every vocabulary has."""
    return torch.arange(N * T).view(N, T) % len(SPECIALS)


def _lstm(state: SideState) -> Example:
    return {"hidden": state.hidden, "cell": state.cell}


class StartGraph(nn.Module):
    """``start`` of a model, with the tensors of memory and state one after the other."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor, lengths: Tensor, features: Tensor) -> tuple[Tensor, ...]:
        """Every tensor of the memory, then every tensor of the state."""
        started = cast(LeftToRight, self.model).start(_sources(source, lengths, features))
        return tuple(_tensors(started))


class StepGraph(nn.Module):
    """``step`` of a model, with the tensors of memory and state one after the other, and attention if it has any."""

    def __init__(self, model: nn.Module, memory: Any, state: Any) -> None:
        super().__init__()
        self.model, self.attends = model, hasattr(model, "attending_step")
        self.memory, self.state = (pytree.tree_flatten(part) for part in (memory, state))

    def forward(self, tokens: Tensor, sentence: Tensor, *parts: Tensor) -> tuple[Tensor, ...]:
        """Log probabilities of the next token, then every tensor of the next state, then attention weights."""
        given = iter(parts)
        memory, state = (
            pytree.tree_unflatten([next(given) if isinstance(leaf, Tensor) else leaf for leaf in leaves], spec)
            for leaves, spec in (self.memory, self.state)
        )
        model = cast(Any, self.model)
        step = model.attending_step if self.attends else model.step
        log_next, after, *attention = step(memory, state, tokens, sentence)
        return log_next, *_tensors(after), *attention


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

    def select(self, state: tuple[KeysValues, ...], index: Tensor) -> tuple[KeysValues, ...]:
        """The states of some hypotheses."""
        return tuple(layer.select(index) for layer in state)


class StepNames(NamedTuple):
    """The names of the tensors of memory and state, and for each tensor of the state the axis of prefixes."""

    memory: tuple[str, ...]
    state: tuple[str, ...]
    axes: tuple[int, ...]


def step_names(model: LeftToRight) -> StepNames:
    """The names of the tensors of a model; the axis of prefixes is the one that ``select`` changes."""
    memory, state = model.start(_example_batch(*_SIZES[0]))
    selected = model.select(state, torch.zeros(_SIZES[0][0] + 1, dtype=torch.long))
    axes = tuple(
        next(axis for axis, sizes in enumerate(zip(one.shape, more.shape, strict=True)) if sizes[0] != sizes[1])
        for one, more in zip(_tensors(state), _tensors(selected), strict=True)
    )
    return StepNames(_numbered("memory", len(_tensors(memory))), _numbered("state", len(axes)), axes)


@torch.no_grad()
def step_graphs(model: nn.Module) -> Iterator[GraphSpec]:
    """The graphs of a model of ``models/left_to_right.py`` that is not a transducer."""
    interface = cast(LeftToRight, model)
    names = step_names(interface)
    examples = [_start_example(*size) for size in _SIZES]
    yield GraphSpec("start", StartGraph(model), (*names.memory, *names.state), examples)
    started = [_after_steps(interface, _sources(**example), count) for count, example in enumerate(examples, 1)]
    steps = [_step_inputs(names, *each) for each in started]
    graph = StepGraph(model, *started[0])
    after = (f"{name}_after" for name in names.state)
    axis_names = {name: {axis: PREFIXES} for name, axis in zip(names.state, names.axes, strict=True)}
    yield GraphSpec("step", graph, ("log_next", *after, *["attention"] * graph.attends), steps, axis_names)


def _after_steps(model: LeftToRight, batch: Batch, count: int) -> tuple[Any, Any]:
    """Memory and state after some tokens of every sentence: states that grow differ in size then."""
    memory, state = model.start(batch)
    first = torch.arange(len(batch.source))
    for _ in range(count):
        _, state = model.step(memory, state, torch.full_like(first, START), first)
    return memory, state


def _start_example(N: int, T: int, F: int) -> Example:
    example = _source_example(N, T, F)
    del example["keys"]
    return example


def _step_inputs(names: StepNames, memory: Any, state: Any) -> Example:
    """Inputs of a step after the start symbol of every sentence."""
    tensors = dict(zip((*names.memory, *names.state), _tensors((memory, state)), strict=True))
    N = tensors[names.state[0]].shape[names.axes[0]]
    return {"tokens": torch.full((N,), START), "sentence": torch.arange(N)} | tensors


def _example_batch(N: int, T: int, F: int) -> Batch:
    return _sources(**_start_example(N, T, F))


def _sources(source: Tensor, lengths: Tensor, features: Tensor) -> Batch:
    """A batch of sources without targets."""
    nothing = source[:, :0]
    end = torch.full_like(source[:, :1], END)
    return Batch(source, lengths, end, torch.ones_like(lengths), features, nothing)


def _tensors(tree: Any) -> list[Tensor]:
    """The tensors of a tree; a model whose states hold anything else that changes cannot be exported."""
    leaves = pytree.tree_leaves(tree)
    if not all(isinstance(leaf, Tensor | None) for leaf in leaves):
        raise RunError("its state holds more than tensors, expected a model whose steps can be traced")
    return [leaf for leaf in leaves if leaf is not None]


def _numbered(name: str, count: int) -> tuple[str, ...]:
    return tuple(f"{name}_{index}" for index in range(count))
