"""Keys and values that attention layers keep of sequences which grow by one position at a time.

Buffers have room for ``T`` positions, of which sequence ``n`` has filled the first ``lengths[n]``: sequences of
different lengths are in one batch, and with enough room from the start no shape depends on the data. So a step can be
captured as a CUDA graph.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad


class KeysValues(NamedTuple):
    """Keys and values of positions that are attended to, by head."""

    keys: Float[Tensor, "N A T D"]
    values: Float[Tensor, "N A T D"]

    def select(self, index: Int[Tensor, " M"]) -> "KeysValues":
        """Those of some sequences."""
        return KeysValues(self.keys.index_select(0, index), self.values.index_select(0, index))

    def write(self, slot: Int[Tensor, "N 1 1 1"], new: "KeysValues") -> "KeysValues":
        """The same with the keys and values of one more position of each sequence, written into its slot."""
        keys, values = (buffer.scatter(2, slot.expand_as(each), each) for buffer, each in zip(self, new, strict=True))
        return KeysValues(keys, values)

    def with_room(self, size: int) -> "KeysValues":
        """The same in buffers for at least ``size`` positions."""
        missing = size - self.keys.shape[2]
        return self if missing <= 0 else KeysValues(*(pad(each, (0, 0, 0, missing)) for each in self))


class NextPosition(NamedTuple):
    """Where the next position of each sequence goes in buffers, and what it attends to: itself and all before it."""

    slot: Int[Tensor, "N 1 1 1"]
    seen: Bool[Tensor, "N 1 1 T"]


class AttentionCache(NamedTuple):
    """Keys and values of ``N`` sequences in every layer.

    None is longer than ``longest``, which is known without a device sync.
    """

    layers: tuple[KeysValues, ...]
    lengths: Int[Tensor, " N"]
    longest: int

    @classmethod
    def empty(cls, layers: int, shape: tuple[int, int, int, int], like: Tensor) -> "AttentionCache":
        """Sequences without positions in buffers of shape ``(N, A, T, D)``, with the device and type of a tensor."""
        buffers = tuple(KeysValues(like.new_zeros(shape), like.new_zeros(shape)) for _ in range(layers))
        return cls(buffers, torch.zeros(shape[0], dtype=torch.long, device=like.device), 0)

    def with_room(self, size: int) -> "AttentionCache":
        """The same in buffers for at least ``size`` positions."""
        return self._replace(layers=tuple(layer.with_room(size) for layer in self.layers))

    def next_position(self) -> NextPosition:
        """The next position of every sequence."""
        positions = torch.arange(self.layers[0].keys.shape[2], device=self.lengths.device)
        slot = self.lengths[:, None, None, None]
        return NextPosition(slot, positions <= slot)

    def advanced(self, layers: list[KeysValues]) -> "AttentionCache":
        """All sequences with one more position, which these layers hold."""
        return AttentionCache(tuple(layers), self.lengths + 1, self.longest + 1)

    def select(self, index: Int[Tensor, " M"]) -> "AttentionCache":
        """Some of the sequences."""
        layers = tuple(layer.select(index) for layer in self.layers)
        return AttentionCache(layers, self.lengths.index_select(0, index), self.longest)

    def join(self, others: "AttentionCache") -> "AttentionCache":
        """These sequences and others."""
        one, other = self._with_equal_room(others)
        pairs = zip(one.layers, other.layers, strict=True)
        layers = tuple(KeysValues(*map(torch.cat, zip(*pair, strict=True))) for pair in pairs)
        return AttentionCache(layers, torch.cat([self.lengths, others.lengths]), max(self.longest, others.longest))

    def put(self, index: Int[Tensor, " M"], part: "AttentionCache") -> "AttentionCache":
        """The same with some sequences replaced; the buffers change in place where they have room."""
        whole, part = self._with_equal_room(part)
        for buffers, others in zip(whole.layers, part.layers, strict=True):
            buffers.keys[index], buffers.values[index] = others.keys, others.values
        whole.lengths[index] = part.lengths
        return whole._replace(longest=max(whole.longest, part.longest))

    def _with_equal_room(self, others: "AttentionCache") -> tuple["AttentionCache", "AttentionCache"]:
        """Both with buffers of the same size."""
        size = max(cache.layers[0].keys.shape[2] for cache in (self, others))
        return self.with_room(size), others.with_room(size)
