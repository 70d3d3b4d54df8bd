"""The network of a transducer as graphs: what source and target contribute to every cell of the lattice."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from antiphon.lite.copied_positions import copies_as_unknown
from antiphon.lite.log_space import Array
from antiphon.lite.onnx_graph import OnnxGraph, TensorType, ids, numbers
from antiphon.lite.transition_odds import Transition, no_keys, run_keys
from antiphon.torch_free.batch import PaddedPairs
from antiphon.torch_free.vocab import NOT_COPIED

_LSTM_AXES = 3
"""Layers, sequences and units."""


class CellFactors(NamedTuple):
    """What one side of a cell contributes: token logits, and its part of the transition."""

    logits: Array
    transition: Array

    def select(self, index: Any) -> "CellFactors":
        """The factors of some cells."""
        return CellFactors(self.logits[index], self.transition[index])

    def join(self, others: "CellFactors") -> "CellFactors":
        """The factors of these cells and of others."""
        return CellFactors(*map(np.concatenate, zip(self, others, strict=True)))

    def put(self, index: Array, part: "CellFactors") -> None:
        """Replaces the factors of some cells."""
        self.logits[index], self.transition[index] = part


class SideState(NamedTuple):
    """One side after some tokens: its LSTM, the key of the last token, and the ids of its features."""

    hidden: Array
    cell: Array
    key: Array
    features: Array

    def select(self, index: Array) -> "SideState":
        """The states of some sequences."""
        hidden, cell = (part.take(index, 1) for part in self[:2])
        return SideState(hidden, cell, self.key[index], self.features[index])

    def join(self, others: "SideState") -> "SideState":
        """The states of these sequences and of others."""
        hidden, cell = (np.concatenate([self[n], others[n]], 1) for n in (0, 1))
        key, features = (
            np.concatenate([self.key, others.key]),
            np.concatenate(_same_width(self.features, others.features)),
        )
        return SideState(hidden, cell, key, features)

    def replace(self, index: Array, part: "SideState") -> "SideState":
        """The same with the states of some sequences and their features replaced: in place where they fit."""
        features, theirs = _same_width(self.features, part.features)
        self.hidden[:, index], self.cell[:, index], self.key[index], features[index] = *part[:3], theirs
        return self._replace(features=features)


def _same_width(one: Array, other: Array) -> tuple[Array, Array]:
    """Padded sets of features with the same number of columns."""
    width = max(one.shape[1], other.shape[1])
    padded = (
        each if each.shape[1] == width else np.pad(each, ((0, 0), (0, width - each.shape[1]))) for each in (one, other)
    )
    first, second = padded
    return first, second


class Context(NamedTuple):
    """What prefixes attend to: the states of all sources, their lengths, and the source of each prefix."""

    states: Array
    lengths: Array
    sentence: Array


class TransducerGraphs:
    """Encoder, decoder, token logits and transition of a transducer with ``target_size`` tokens."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        encode: OnnxGraph,
        decode: OnnxGraph,
        step: OnnxGraph | None,
        *,
        target_size: int,
        copies_words: bool,
    ) -> None:
        self._encode, self._decode, self._encode_step = encode, decode, step
        self.transition = Transition(settings["transition"])
        self.target_size, self.copies_words = target_size, copies_words
        self.copies_unknown = bool(settings["copies_unknown"])
        self._ties_words = bool(settings["ties_words"])
        self._counterparts = np.array(settings["counterparts"], np.int64)
        self._check()

    def _check(self) -> None:
        """Refuses graphs that do not fit each other and the sizes of vocabulary and transition."""
        classes, units = self.target_size + self.copies_words, self.transition.width
        source = {"features": ids("B", "F"), "keys": ids("B", "I")}
        attended = {"states": self._encode.outputs["states"]} if "states" in self._encode.outputs else {}
        factors = {"logits": numbers("B", "I", classes), "transition": numbers("B", "I", units)}
        self._encode.check(source | {"source": ids("B", "I"), "lengths": ids("B")}, factors)
        context = attended and attended | {"lengths": ids("B"), "sentence": ids("N")}
        prefixes = {"tokens": ids("N", "J"), "features": ids("N", "F"), "keys": ids("N", "J")} | context
        self._decode.check(prefixes | _lstm_types(self._decode), factors | _lstm_types(self._decode, "_after"))
        if self._encode_step is not None:
            factors = {"logits": numbers("N", classes), "transition": numbers("N", units)}
            tokens = {"tokens": ids("N"), "features": ids("N", "F"), "keys": ids("N")}
            step = self._encode_step
            step.check(tokens | _lstm_types(step), factors | _lstm_types(step, "_after"))

    @property
    def can_stream(self) -> bool:
        """Whether the source can be read token by token."""
        return self._encode_step is not None and "states" not in self._encode.outputs

    def copied_words(self, pairs: PaddedPairs) -> Array:
        """The target id of every source token that can be copied; none can in a batch without the column ``copied``."""
        return pairs.copied if pairs.copied.shape[1] else np.full_like(pairs.source, NOT_COPIED)

    def target_state(self, features: Array) -> SideState:
        """The target side before the start symbol."""
        return _initial(self._decode, features)

    def source_state(self, features: Array) -> SideState:
        """The source side before its first token."""
        assert self._encode_step is not None
        return _initial(self._encode_step, features)

    def encode(self, pairs: PaddedPairs) -> tuple[CellFactors, Array | None]:
        """The source's contribution to every cell, and the states that the decoder attends to, if it does."""
        tied = self.copied_words(pairs) if self._ties_words else self._counterparts[pairs.source]
        keys = run_keys(tied, no_keys(len(pairs.source)))
        found = self._encode(source=pairs.source, lengths=pairs.source_lengths, features=pairs.features, keys=keys)
        return CellFactors(found["logits"], found["transition"]), found.get("states")

    def encode_step(
        self, tokens: Array, state: SideState, copied: Array | None = None
    ) -> tuple[CellFactors, SideState]:
        """The contribution of one more source token, and the state to continue from."""
        assert self._encode_step is not None
        tied = copied if self._ties_words and copied is not None else self._counterparts[tokens]
        key = run_keys(tied[:, None], state.key)[:, 0]
        given = {"hidden": state.hidden, "cell": state.cell, "features": state.features}
        found = self._encode_step(tokens=tokens, keys=key, **given)
        after = SideState(found["hidden_after"], found["cell_after"], key, state.features)
        return CellFactors(found["logits"], found["transition"]), after

    def decode(self, tokens: Array, state: SideState, context: Context | None = None) -> tuple[CellFactors, SideState]:
        """The target's contribution after each token of prefixes, and the state to continue from."""
        known = copies_as_unknown(tokens, self.target_size) if self.copies_words else tokens
        keys = run_keys(tokens, state.key)
        given = {"hidden": state.hidden, "cell": state.cell, "features": state.features}
        attended = {} if context is None else context._asdict()
        found = self._decode(tokens=known, keys=keys, **given, **attended)
        after = SideState(found["hidden_after"], found["cell_after"], keys[:, -1], state.features)
        return CellFactors(found["logits"], found["transition"]), after

    def decode_step(
        self, tokens: Array, state: SideState, context: Context | None = None
    ) -> tuple[CellFactors, SideState]:
        """The same for a single token of each prefix."""
        factors, state = self.decode(tokens[:, None], state, context)
        return CellFactors(factors.logits[:, 0], factors.transition[:, 0]), state


def _lstm_types(graph: OnnxGraph, suffix: str = "") -> dict[str, TensorType]:
    """The types of the state of a graph's LSTM, which are those that it declares for its input ``hidden``."""
    layers, size = _lstm_shape(graph)
    return {f"{name}{suffix}": numbers(layers, "N", size) for name in ("hidden", "cell")}


def _lstm_shape(graph: OnnxGraph) -> tuple[int, int]:
    """Layers and size of a graph's LSTM; 0 if it declares none."""
    shape = graph.inputs["hidden"].shape if "hidden" in graph.inputs else ()
    if len(shape) != _LSTM_AXES or not isinstance(shape[0], int) or not isinstance(shape[2], int):
        return 0, 0
    return shape[0], shape[2]


def _initial(graph: OnnxGraph, features: Array) -> SideState:
    layers, size = _lstm_shape(graph)
    zeros = np.zeros((layers, len(features), size), np.float32)
    return SideState(zeros, zeros.copy(), no_keys(len(features)), features)
