"""The graphs of each network, and the examples that they are traced with.

Every model of ``models/left_to_right.py`` has a graph for ``start`` and one for ``step``, with one input and one output
for each tensor of its memory and of its state. A transducer also has

rows    log probabilities of the input position at which one more token is written
read    one more source token, for streams: what it contributes to its row
write   one more target token: what it contributes to its column
cell    log probabilities in cells, given both: of writing, of reading on, and of the tokens
open    the states of source and target before their first token

The last four only if the source can be read token by token, by an LSTM from left to right. A channel model has only
``start`` and ``step`` of its lattice, which has a row for every output token.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from antiphon.data.batch import Batch
from antiphon.decode.channel_lattice import ChannelLattice, ChannelRows
from antiphon.device import is_traced
from antiphon.export.graphs import GraphSpec
from antiphon.lattice.moves import IMPOSSIBLE
from antiphon.lite.graphs import AFTER, FACTORS, MEMORY, PREFIXES, SOURCE, STATE, TARGET
from antiphon.models.left_to_right import never_written
from antiphon.models.transducer import Transducer
from antiphon.models.transducer_network import CellFactors, SideState
from antiphon.models.transformer import Transformer, TransformerMemory
from antiphon.nn.copying import add_row_copy
from antiphon.nn.recurrent import SourceEncoder
from antiphon.nn.transformer_layers import AttentionCache, KeysValues
from antiphon.torch_free.vocab import END, SPECIALS, START

Example = dict[str, Tensor]
_SIZES = ((2, 3, 4), (3, 5, 6))
"""Sequences, tokens and features of the two examples."""


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


class ChannelSteps(nn.Module):
    """The lattice of a channel model, from inputs to rows: a step appends the row of one more output token."""

    def __init__(self, model: Transducer) -> None:
        super().__init__()
        self.model = model

    def start(self, batch: Batch) -> tuple[tuple[Any, ...], ChannelRows]:
        """The columns of the inputs, which are the sources of the batch, and the rows before the first output token."""
        lattice = ChannelLattice(self.model, batch.source, batch.features)
        return (lattice.inputs, lattice.token_table, lattice.transition), lattice.start()

    def step(
        self, memory: tuple[Any, ...], state: ChannelRows, tokens: Tensor, sentence: Tensor
    ) -> tuple[Tensor, ChannelRows]:
        """``log p`` of each input up to every column, its last token written in the new row, and the new rows."""
        lattice = object.__new__(ChannelLattice)
        lattice.model, lattice.grows = self.model, False
        lattice.inputs, lattice.token_table, lattice.transition = memory
        rows = lattice.append_rows(state, torch.arange(tokens.shape[0]), tokens, sentence)
        return rows.scores.last, rows

    def select(self, state: ChannelRows, index: Tensor) -> ChannelRows:
        """Some of the rows."""
        return state.select(index)


class StartGraph(nn.Module):
    """``start`` of a model, with the tensors of memory and state one after the other.

    ``started`` has memory and state as they were traced, with all that is not a tensor.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.started: tuple[Any, Any] | None = None

    def forward(self, source: Tensor, lengths: Tensor, features: Tensor, copied: Tensor) -> tuple[Tensor, ...]:
        """Every tensor of the memory, then every tensor of the state."""
        started = self.model.start(_batch(source, lengths, features, copied))
        self.started = started if is_traced() else None
        return _tensors(started)


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
        return _tensors(found)


@torch.no_grad()
def step_graphs(model: Any) -> Iterator[GraphSpec]:
    """The graphs for ``start`` and ``step`` of a model, and the one for ``rows`` of a transducer."""
    examples = [_start_example(*size) for size in _SIZES]
    memory, state = model.start(_batch(**examples[0]))
    start = StartGraph(model)
    yield GraphSpec("start", start, [*_named_tensors(memory, MEMORY), *_named_tensors(state, STATE)], examples)
    assert start.started is not None
    step, extra = _step_function(model)
    axis_names = _axis_names(state, model.select, STATE)
    steps = [_after_steps(model, example, count) for count, example in enumerate(examples, 1)]
    after = [f"{name}{AFTER}" for name in axis_names]
    yield GraphSpec("step", Traced(model, start.started, step), ["log_next", *after, *extra], steps, axis_names)
    if isinstance(model, Transducer):
        rows = Traced(model, start.started, lambda *given: model.log_rows(*given).log_prob)
        for example in steps:
            tokens, sentence = example.pop("tokens"), example.pop("sentence")
            more = torch.arange(len(tokens) + 1) % len(tokens)
            example |= {"parent": more, "tokens": tokens[more], "sentence": sentence[more]}
        yield GraphSpec("rows", rows, ["log_rows"], steps)


def _step_function(model: Any) -> tuple[Callable[..., Any], list[str]]:
    """A step, and the names of what it gives after log probabilities and state."""
    if isinstance(model, Transducer):

        def aligning_step(*given: Any) -> tuple[Any, ...]:
            log_next, after, rows = model.aligning_step(*given)
            return log_next, after, rows.log_arrive, rows.log_forward, rows.log_read

        return aligning_step, ["log_arrive", "log_forward", "log_shift"]
    return (model.attending_step, ["attention"]) if hasattr(model, "attending_step") else (model.step, [])


def _axis_names(state: Any, select: Callable[[Any, Tensor], Any], prefix: str) -> dict[str, dict[int, str]]:
    """For each tensor of a state, the name of the axis of prefixes: the one that ``select`` changes."""
    selected = _named_tensors(select(state, torch.zeros(7, dtype=torch.long)), prefix)
    names = {}
    for name, tensor in _named_tensors(state, prefix).items():
        sizes = zip(tensor.shape, selected[name].shape, strict=True)
        names[name] = {[one != other for one, other in sizes].index(True): PREFIXES}
    return names


def _tensors(tree: Any) -> tuple[Tensor, ...]:
    return tuple(leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor))


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


def can_stream(model: nn.Module) -> bool:
    """Whether a transducer can read the source token by token: with an LSTM from left to right, and no attention."""
    if not isinstance(model, Transducer) or model.attention is not None:
        return False
    return isinstance(model.encoder, SourceEncoder) and not model.encoder.bidirectional


@torch.no_grad()
def stream_graphs(model: Transducer) -> Iterator[GraphSpec]:
    """The graphs of a transducer that reads the source token by token."""
    sides = model.source_state, model.target_state
    features = [{"features": _tokens(N, F)} for N, _, F in _SIZES]
    opened = [tuple(side(each["features"]) for side in sides) for each in features]
    axes = [_axis_names(state, SideState.select, side) for state, side in zip(opened[0], (SOURCE, TARGET), strict=True)]
    states = [[_named_tensors(s, side) for s, side in zip(each, (SOURCE, TARGET), strict=True)] for each in opened]
    names = [list(state) for state in states[0]]
    opening = Traced(model, (), lambda ids: tuple(side(ids) for side in sides))
    yield GraphSpec("open", opening, [*names[0], *names[1]], features)
    tokens = [{"tokens": _tokens(N, 1)[:, 0]} for N, _, _ in _SIZES]
    read = Traced(model, opened[0][:1], lambda state, ids: model.encode_step(ids, state))
    examples = [state[0] | ids for state, ids in zip(states, tokens, strict=True)]
    yield GraphSpec("read", read, [*FACTORS, *(f"{name}{AFTER}" for name in names[0])], examples, axes[0])
    write = Traced(model, opened[0][1:], lambda state, ids: _decode_step(model, ids, state))
    examples = [state[1] | ids for state, ids in zip(states, tokens, strict=True)]
    yield GraphSpec("write", write, [*FACTORS, *(f"{name}{AFTER}" for name in names[1])], examples, axes[1])
    yield GraphSpec(
        "cell", Cell(model), ["log_emit", "log_shift", "log_probs"], [_cell_example(model, N) for N, _, _ in _SIZES]
    )


class Cell(nn.Module):
    """Log probabilities in cells of streams: of writing, of reading on, and of the tokens that can be written there.

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
    target, _ = _decode_step(model, _tokens(N, 1)[:, 0], model.target_state(_tokens(N, 1)))
    factors = {f"{side}_{name}": part for side in (SOURCE, TARGET) for name, part in zip(FACTORS, target, strict=True)}
    return factors | {"emit_bias": torch.zeros(N), "is_last": torch.arange(N) > 0, "copied": torch.arange(N) - 1}


def _decode_step(model: Transducer, tokens: Tensor, state: SideState) -> tuple[CellFactors, SideState]:
    """The target's contribution and state after one more token of each output."""
    target, after = model.decode_prefix(tokens[:, None], state)
    return CellFactors(target.logits[:, 0], target.transition[:, 0]), after
