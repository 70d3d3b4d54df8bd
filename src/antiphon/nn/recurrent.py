"""Embeddings, dropout, and LSTMs over padded batches, whose results do not depend on the padding."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import dropout, embedding, linear
from torch.nn.utils.rnn import pack_padded_sequence

from antiphon.device import kernels_can_run, run_concurrently
from antiphon.torch_free.vocab import SPECIALS


class Dropout(nn.Dropout):
    """Zeroes each element with probability ``p`` and scales the others up; on a CPU, ``p`` is rounded to 256ths.

    There one random byte decides about each element, an eighth of the cost of a random number. At least one of 256 is
    kept.
    """

    def forward(self, input: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """The input, some elements zeroed while training."""
        dropped = min(255, round(256 * self.p))
        if not self.training or not dropped or input.device.type != "cpu":
            return super().forward(input)
        words = torch.empty(-(-input.numel() // 8), dtype=torch.int64).random_(-(2**63), None)
        kept = words.view(torch.uint8)[: input.numel()].view(input.shape) >= dropped
        return input * kept.to(input.dtype).mul_(256 / (256 - dropped))


class LSTMState(NamedTuple):
    """Hidden and cell values after some tokens of each of ``N`` sequences."""

    hidden: Float[Tensor, "L N H"]
    cell: Float[Tensor, "L N H"]

    @property
    def axis(self) -> int:
        """That of sequences (``models/left_to_right.py``)."""
        return 1


_EMBEDDING_STD = 0.3
"""Initial standard deviation of embeddings. With 0.06, two layers cannot tell letters apart for a long time, and some
trainings never leave that plateau; with 1, inflection is learnt worse (docs/experiments.md)."""


class Embedding(nn.Embedding):
    """Token embeddings with normally distributed initial values."""

    def reset_parameters(self) -> None:
        """Initialises every vector."""
        nn.init.normal_(self.weight, std=_EMBEDDING_STD)


class FeatureEmbedding(Embedding):
    """The vector of a set of features: the sum of their vectors; features not seen in training add nothing."""

    def forward(self, features: Int[Tensor, "B F"]) -> Float[Tensor, "B E"]:
        """The vector of each set; padding adds nothing either."""
        is_known = (features >= len(SPECIALS))[:, :, None]
        return (super().forward(features) * is_known).sum(1)


@dataclass(frozen=True)
class LSTMSizes:
    """What all LSTMs of a model share; ``dropout`` is on their inputs and outputs."""

    embedding_size: int
    hidden_size: int
    layers: int = 1
    dropout: float = 0.0
    forget_bias: float = 0.0


class LSTM(nn.LSTM):
    """An LSTM over ``(B, length, size)`` whose forget gates start out with a given bias on top of the usual draw.

    A bias of 1 helps it to remember early inputs from the start of training; without one it favours recent inputs,
    which suits endings.
    """

    def __init__(
        self, input_size: int, hidden_size: int, layers: int = 1, dropout: float = 0.0, forget_bias: float = 0.0
    ) -> None:
        self.forget_bias = forget_bias
        between_layers = dropout if layers > 1 else 0.0
        super().__init__(input_size, hidden_size, layers, batch_first=True, dropout=between_layers)

    def forward(self, inputs: Any, state: tuple[Tensor, Tensor] | None = None) -> Any:
        """The last layer's state at every position, and the state to continue from."""
        if not isinstance(inputs, Tensor):
            return super().forward(inputs, state)
        if not self._has_kernel(inputs):
            by_cudnn = inputs.is_cuda and self.num_layers > 1
            return self._layer_by_layer(inputs, state) if by_cudnn else super().forward(inputs, state)
        layers = list(self._layers(inputs, state))
        last = (torch.stack([values[:, -1] for values in kind]) for kind in zip(*layers, strict=True))
        return layers[-1][0], LSTMState(*last)

    def _layer_by_layer(
        self, inputs: Float[Tensor, "B T E"], state: tuple[Tensor, Tensor] | None
    ) -> tuple[Float[Tensor, "B T H"], LSTMState]:
        """What ``forward`` gives, by cuDNN, one layer at a time: its dropout between layers fails in CUDA graphs."""
        if state is None:
            nothing = inputs.new_zeros(self.num_layers, len(inputs), self.hidden_size)
            state = LSTMState(nothing, nothing)
        after: list[tuple[Tensor, Tensor]] = []
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")
            for layer, weights in enumerate(cast(list[list[Tensor]], self.all_weights)):
                inputs = self._dropout_between(inputs) if layer else inputs
                before = [part[layer : layer + 1].contiguous() for part in state]
                inputs, hidden, cell = torch.lstm(inputs, before, weights, True, 1, 0.0, self.training, False, True)
                after.append((hidden, cell))
        return inputs, LSTMState(*(torch.cat(parts) for parts in zip(*after, strict=True)))

    def last_state(self, inputs: Float[Tensor, "B I E"], lengths: Int[Tensor, " B"]) -> LSTMState:
        """The state after the last real position of each sequence; on a GPU, without a device sync."""
        if self._has_kernel(inputs):
            last = (lengths - 1)[:, None, None].expand(-1, 1, self.hidden_size)
            layers = zip(*self._layers(inputs, None), strict=True)
            return LSTMState(*(torch.stack([values.gather(1, last)[:, 0] for values in kind]) for kind in layers))
        if inputs.is_cuda:
            return self._last_state_by_step(inputs, lengths)
        packed = pack_padded_sequence(inputs, lengths.cpu(), batch_first=True, enforce_sorted=False)
        zeros = inputs.new_zeros(self.num_layers, inputs.shape[0], self.hidden_size)
        return LSTMState(*self(packed, (zeros, zeros))[1])

    def _last_state_by_step(self, inputs: Float[Tensor, "B I E"], lengths: Int[Tensor, " B"]) -> LSTMState:
        state = self.step(inputs[:, 0], None)[1]
        for position in range(1, inputs.shape[1]):
            goes_on = (position < lengths)[:, None]
            after = self.step(inputs[:, position], state)[1]
            state = LSTMState(*(torch.where(goes_on, new, old) for new, old in zip(after, state, strict=True)))
        return state

    def _has_kernel(self, inputs: Tensor) -> bool:
        if not kernels_can_run(inputs) or self.weight_hh_l0.dtype != torch.float32:
            return False
        from antiphon.nn import lstm_triton

        return lstm_triton.can_sweep(len(inputs), self.hidden_size, inputs.device)

    def _layers(
        self, inputs: Float[Tensor, "B T E"], state: tuple[Tensor, Tensor] | None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Hidden and cell values of each layer, by a kernel; the products with its inputs are computed before it."""
        from antiphon.nn import lstm_triton

        for layer, (from_inputs, from_states, *biases) in enumerate(self.all_weights):
            before = (None, None) if state is None else (state[0][layer], state[1][layer])
            inputs = self._dropout_between(inputs) if layer else inputs
            gates = linear(inputs, from_inputs, biases[0] + biases[1])
            inputs, cells = lstm_triton.lstm_states(gates.float(), from_states, *before)
            yield inputs, cells

    def _dropout_between(self, states: Tensor) -> Tensor:
        """The input of the next layer."""
        return dropout(states, self.dropout, self.training)

    def step(self, inputs: Float[Tensor, "N E"], state: LSTMState | None) -> tuple[Float[Tensor, "N H"], LSTMState]:
        """The state after one more position, layer by layer, which is faster than a sequence of length one."""
        if state is None:
            nothing = inputs.new_zeros(self.num_layers, len(inputs), self.hidden_size)
            state = LSTMState(nothing, nothing)
        hidden: list[Tensor] = []
        cell: list[Tensor] = []
        for before, weights in zip(zip(*state, strict=True), self.all_weights, strict=True):
            inputs, memory = torch.lstm_cell(self._dropout_between(inputs) if hidden else inputs, before, *weights)
            hidden.append(inputs)
            cell.append(memory)
        if len(hidden) == 1:  # no copies
            return inputs, LSTMState(inputs[None], memory[None])
        return inputs, LSTMState(torch.stack(hidden), torch.stack(cell))

    def reset_parameters(self) -> None:
        """Initialises all weights."""
        super().reset_parameters()
        for name, parameter in self.named_parameters():
            if name.startswith("bias_ih"):
                parameter.data[self.hidden_size : 2 * self.hidden_size] += self.forget_bias


class PrefixEncoder(nn.Module):
    """A left-to-right LSTM: state ``j`` depends on tokens ``0..j``; it can also continue from a given state.

    If ``vocabulary_size`` is None, it has no embeddings, and ``forward`` is given a table of them.
    """

    def __init__(self, vocabulary_size: int | None, sizes: LSTMSizes) -> None:
        super().__init__()
        self.embedding = None if vocabulary_size is None else Embedding(vocabulary_size, sizes.embedding_size)
        self.lstm = LSTM(sizes.embedding_size, sizes.hidden_size, sizes.layers, sizes.dropout, sizes.forget_bias)
        self.dropout = Dropout(sizes.dropout)

    def initial_state(self, N: int) -> LSTMState:
        """The state before the first token."""
        zeros = cast(Tensor, self.lstm.weight_hh_l0).new_zeros(self.lstm.num_layers, N, self.lstm.hidden_size)
        return LSTMState(zeros, zeros.clone())

    def forward(
        self,
        tokens: Int[Tensor, "B J"],
        state: LSTMState | None = None,
        features: Float[Tensor, "B E"] | None = None,
        table: Float[Tensor, "V E"] | None = None,
    ) -> tuple[Float[Tensor, "B J H"], LSTMState]:
        """The state after each token, and the state to continue from; the feature vector is added to every token."""
        embedded = with_features(self._embed(tokens, table), features)
        if tokens.shape[1] == 1 and not self.training:
            single, last = self.lstm.step(embedded[:, 0], state)
            return single[:, None], last
        states, last = self.lstm(self.dropout(embedded), state)
        return self.dropout(states), LSTMState(*last)

    def _embed(self, tokens: Int[Tensor, "B J"], table: Float[Tensor, "V E"] | None) -> Float[Tensor, "B J E"]:
        vectors: Tensor = embedding(tokens, table) if table is not None else cast(Embedding, self.embedding)(tokens)
        return vectors


class SourceEncoder(nn.Module):
    """An LSTM over the input, unidirectional, or bidirectional with the two states concatenated."""

    def __init__(self, vocabulary_size: int, sizes: LSTMSizes, *, bidirectional: bool) -> None:
        super().__init__()
        self.embedding = Embedding(vocabulary_size, sizes.embedding_size)
        self.dropout = Dropout(sizes.dropout)
        self.bidirectional, self.embedding_size = bidirectional, sizes.embedding_size
        self.output_size = sizes.hidden_size * (2 if bidirectional else 1)
        inputs = [sizes.embedding_size] + [self.output_size] * (sizes.layers - 1)
        self.rightward = _one_layer_each(inputs, sizes)
        self.leftward = _one_layer_each(inputs if bidirectional else [], sizes)

    def forward(
        self, tokens: Int[Tensor, "B I"], lengths: Int[Tensor, " B"], features: Float[Tensor, "B E"] | None = None
    ) -> Float[Tensor, "B I H"]:
        """The state at each input position; the vector of features is added to that of every token."""
        states: Tensor = self.dropout(with_features(self.embedding(tokens), features))
        mirror = mirror_index(lengths, tokens.shape[1]) if self.bidirectional else None
        for layer in range(len(self.rightward)):
            states = self.dropout(self._read_both_ways(layer, states, mirror))
        return states

    def _read_both_ways(self, layer: int, states: Tensor, mirror: Tensor | None) -> Tensor:
        if mirror is None:
            rightward: Tensor = self.rightward[layer](states)[0]
            return rightward
        rightward, leftward = run_concurrently(
            lambda: self.rightward[layer](states)[0],
            lambda: take_flat(self.leftward[layer](take_flat(states, mirror))[0], mirror),
            side_stream=1,
        )
        return torch.cat([rightward, leftward], 2)

    def initial_state(self, N: int) -> LSTMState:
        """The state before the first token, for unidirectional encoders."""
        zeros = self.embedding.weight.new_zeros(len(self.rightward), N, self.output_size)
        return LSTMState(zeros, zeros.clone())

    def step(
        self, tokens: Int[Tensor, " N"], state: LSTMState | None = None, features: Float[Tensor, "N E"] | None = None
    ) -> tuple[Float[Tensor, "N H"], LSTMState]:
        """The state after one more token, and the state to continue from; only for unidirectional encoders."""
        outputs: Tensor = self.dropout(with_features(self.embedding(tokens)[:, None], features)[:, 0])
        hidden, cell = [], []
        for layer, rightward in enumerate(self.rightward):
            before = (
                None if state is None else LSTMState(state.hidden[layer : layer + 1], state.cell[layer : layer + 1])
            )
            outputs, (last_hidden, last_cell) = cast(LSTM, rightward).step(outputs, before)
            hidden.append(last_hidden)
            cell.append(last_cell)
            outputs = self.dropout(outputs)
        return outputs, LSTMState(torch.cat(hidden), torch.cat(cell))


def valid_positions(lengths: Int[Tensor, " B"], size: int) -> Bool[Tensor, "B I"]:
    """True at the positions inside each sequence."""
    return torch.arange(size, device=lengths.device) < lengths[:, None]


def with_features(embedded: Float[Tensor, "B T E"], features: Float[Tensor, "B E"] | None) -> Float[Tensor, "B T E"]:
    """Token vectors plus the feature vector, if there is one."""
    return embedded if features is None else embedded + features[:, None]


def _one_layer_each(input_sizes: list[int], sizes: LSTMSizes) -> nn.ModuleList:
    return nn.ModuleList(LSTM(size, sizes.hidden_size, forget_bias=sizes.forget_bias) for size in input_sizes)


def mirror_index(lengths: Int[Tensor, " B"], I: int) -> Int[Tensor, " N"]:
    """Flat index that reverses each sequence and leaves padding in place; its own inverse."""
    positions, sequences = (torch.arange(size, device=lengths.device) for size in (I, lengths.shape[0]))
    mirrored = lengths[:, None] - 1 - positions
    return (torch.where(mirrored >= 0, mirrored, positions) + I * sequences[:, None]).flatten()


def take_flat(states: Float[Tensor, "B I H"], index: Int[Tensor, " N"]) -> Float[Tensor, "B I H"]:
    """The states at a flat index over sequences and positions."""
    return states.flatten(0, 1).index_select(0, index).view(states.shape)
