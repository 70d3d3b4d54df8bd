"""Models that predict token by token: the interface of the search, and the models whose step is one graph.

The interface is that of ``models/left_to_right.py``, with arrays of numpy.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, cast

import numpy as np

from antiphon.lite.log_space import IMPOSSIBLE, Array
from antiphon.lite.onnx_graph import OnnxGraph, ids, numbers
from antiphon.torch_free.batch import PaddedPairs
from antiphon.torch_free.vocab import START


class StepModel(Protocol):
    """A model of the next token. ``memory`` holds the encoded sources, ``state`` the state after each prefix."""

    copies_unknown: bool

    def start(self, pairs: PaddedPairs) -> tuple[Any, Any]:
        """Memory, and the state before the start symbol of every sentence."""
        ...

    def step(self, memory: Any, state: Any, tokens: Array, sentence: Array) -> tuple[Array, Any]:
        """Log probabilities of the next token after ``tokens``, and the next state; see ``LeftToRight``."""
        ...

    def select(self, state: Any, index: Array) -> Any:
        """The states of some prefixes."""
        ...


class RowBand(NamedTuple):
    """Log probabilities of consecutive rows after each prefix, the same as in ``models/left_to_right.py``."""

    first_row: int
    log_prob: Array


class GraphState(NamedTuple):
    """The tensors of a state, in the order of their names."""

    tensors: tuple[Array, ...]


PREFIXES = "prefixes"
"""The name of the axis of prefixes in every tensor of a state."""


class GraphModel:
    """A model of ``size`` target tokens with a graph for ``start`` and one for ``step``.

    The tensors of its state are the inputs of ``step`` with an axis of prefixes, the rest is memory.
    """

    copies_unknown = False

    def __init__(self, start: OnnxGraph, step: OnnxGraph, size: int) -> None:
        self._start, self._step = start, step
        state = {name: given for name, given in step.inputs.items() if PREFIXES in given.shape}
        self._state, self._axes = [*state], [given.shape.index(PREFIXES) for given in state.values()]
        start.check({"source": ids("B", "I"), "lengths": ids("B"), "features": ids("B", "F")}, state)
        after = {f"{name}_after": given for name, given in state.items()}
        attention = {"attention": numbers("N", "I")} if "attention" in step.outputs else {}
        known = {"tokens": ids("N"), "sentence": ids("N")} | start.outputs
        step.check(known, {"log_next": numbers("N", size)} | after | attention)

    def start(self, pairs: PaddedPairs) -> tuple[dict[str, Array], GraphState]:
        """Memory by name, and the state before the start symbol of every sentence."""
        found = self._start(source=pairs.source, lengths=pairs.source_lengths, features=pairs.features)
        return found, GraphState(tuple(found.pop(name) for name in self._state))

    def step(
        self, memory: dict[str, Array], state: GraphState, tokens: Array, sentence: Array
    ) -> tuple[Array, GraphState]:
        """Log probabilities of the token after these, and the next state."""
        found, after = self._run_step(memory, state, tokens, sentence)
        return found["log_next"], after

    def _run_step(
        self, memory: dict[str, Array], state: GraphState, tokens: Array, sentence: Array
    ) -> tuple[dict[str, Array], GraphState]:
        """The outputs of the graph by name, and the next state."""
        given = dict(zip(self._state, state.tensors, strict=True))
        found = self._step(tokens=tokens, sentence=sentence, **memory, **given)
        return found, GraphState(tuple(found[f"{name}_after"] for name in self._state))

    def select(self, state: GraphState, index: Array) -> GraphState:
        """The states of some prefixes."""
        pairs = zip(state.tensors, self._axes, strict=True)
        return GraphState(tuple(tensor.take(index, axis) for tensor, axis in pairs))

    def join(self, one: GraphState, other: GraphState) -> GraphState:
        """The states of two lists of prefixes, one after the other."""
        parts = zip(one.tensors, other.tensors, self._axes, strict=True)
        return GraphState(tuple(np.concatenate([first, second], axis) for first, second, axis in parts))

    @property
    def attention(self) -> Callable[[PaddedPairs], Array] | None:
        """Computes the attention of each target token to each source position; None if the model has no attention."""
        return self._attention if "attention" in self._step.outputs else None

    def _attention(self, pairs: PaddedPairs) -> Array:
        memory, state = self.start(pairs)
        sentence = np.arange(len(pairs.target))
        token, columns = np.full_like(sentence, START), []
        for following in pairs.target.T:
            found, state = self._run_step(memory, state, token, sentence)
            columns.append(found["attention"])
            token = following
        return np.stack(columns, 2)


class PrefixModel:
    """A model whose outputs all begin with ``prefix``, in one search after another; see ``decode/forced_prefix.py``."""

    def __init__(self, model: Any, prefix: Sequence[int]) -> None:
        self._model, self._prefix, self._remaining = model, tuple(prefix), list(prefix)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def start(self, pairs: PaddedPairs) -> tuple[Any, Any]:
        """Memory and first state of a search, which writes the whole prefix first."""
        self._remaining = list(self._prefix)
        return cast(tuple[Any, Any], self._model.start(pairs))

    def step(self, memory: Any, state: Any, tokens: Array, sentence: Array) -> tuple[Array, Any]:
        """Log probabilities of the next token; until the prefix is written, only its next token is possible."""
        log_next, state = self._model.step(memory, state, tokens, sentence)
        if self._remaining:
            token = self._remaining.pop(0)
            only = np.full_like(log_next, IMPOSSIBLE)
            only[:, token] = log_next[:, token]
            log_next = only
        return log_next, state


def token_log_probs(model: StepModel, pairs: PaddedPairs) -> Array:
    """Log probabilities of the tokens of each target, as doubles; 0 at padding."""
    memory, state = model.start(pairs)
    sentence = np.arange(len(pairs.target))
    token, columns = np.full_like(sentence, START), []
    for position, following in enumerate(pairs.target.T):
        log_next, state = model.step(memory, state, token, sentence)
        columns.append(np.where(position < pairs.target_lengths, log_next[sentence, following].astype(np.float64), 0.0))
        token = following
    return np.stack(columns, 1)


def output_log_probs(
    model: StepModel, pairs: PaddedPairs, sources: Sequence[int], outputs: Sequence[Sequence[int]]
) -> list[list[float]]:
    """The log probability of each token of outputs, end symbols last, of some sources of a batch, given by index."""
    theirs = pairs.take(np.array(sources)).with_targets([np.array(output[:-1], np.int32) for output in outputs])
    rows: list[list[float]] = token_log_probs(model, theirs).tolist()
    return rows
