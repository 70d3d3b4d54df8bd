"""What online decoding computes with PyTorch: a transducer, or a noisy channel, for streams that read token by token.

``torch_free/stream_policies.py`` decides what is written.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from antiphon.data.batch import Batch
from antiphon.decode.channel_lattice import ChannelLattice, ChannelRows
from antiphon.lattice.paths import IMPOSSIBLE
from antiphon.models.left_to_right import is_no_end, never_written
from antiphon.models.noisy_channel import NoisyChannel
from antiphon.models.transducer import Transducer
from antiphon.models.transducer_network import CellFactors, SideState
from antiphon.nn.copying import add_row_copy
from antiphon.nn.recurrent import LSTMState, join_states, select_states
from antiphon.torch_free.hypothesis import BeamSettings
from antiphon.torch_free.noisy_channel_policy import NoisyChannelPolicy, SeparateStreams
from antiphon.torch_free.stream_beam import BeamRow, CellScores, Extension, OutputTree
from antiphon.torch_free.stream_policies import POLICIES, Forced, StreamPolicy
from antiphon.torch_free.vocab import END, NOT_COPIED, START

_STARTS_KEPT = 64
"""Sets of features whose first decoder state is kept."""
_FEW_TOKENS = 256
"""Vocabularies of up to this size are compared as a whole, which is faster than to pick the best tokens first."""


class TransducerStreams:
    """A unidirectional transducer as a ``StreamNetwork``; there may be room for more slots than are in use."""

    _target: CellFactors
    _state: SideState

    def __init__(self, model: Transducer) -> None:
        self.model = model
        weight = model.target_logits.weight
        self.device = weight.device
        self.emit_bias = weight.new_zeros(0)
        self.copied = torch.zeros(0, dtype=torch.long, device=self.device)
        """The target id of the last input token of each stream, if the model copies words."""
        self._source: Any = None
        self._room = 0
        self._starts: dict[tuple[int, ...], tuple[CellFactors, SideState]] = {}
        """The decoder after the start symbol, for features that streams began with lately."""
        self._never = torch.tensor(never_written(model), device=self.device)

    @torch.inference_mode()
    def add(self, features: NDArray[np.int64], emit_bias: float = 0.0) -> None:
        """Adds streams, one for each row of ``features``."""
        M = len(features)
        self.emit_bias = torch.cat([self.emit_bias, self.emit_bias.new_full((M,), emit_bias)])
        self.copied = torch.cat([self.copied, self.copied.new_full((M,), NOT_COPIED)])
        started = self.model.source_state(self._tensor(features))
        self._source = started if self._source is None else self._source.join(started)

    @torch.inference_mode()
    def restart(self, streams: Sequence[int], features: NDArray[np.int64], emit_bias: Sequence[float]) -> None:
        """Begins new inputs of streams."""
        index = self._tensor(list(streams))
        self.emit_bias[index] = self.emit_bias.new_tensor(list(emit_bias))
        self._source = self._source.replace(index, self.model.source_state(self._tensor(features)))

    @torch.inference_mode()
    def read(self, streams: list[int], tokens: list[int], copied: list[int] | None) -> CellFactors:
        """The source's contribution to the row of each token."""
        index = self._tensor(streams)
        if self.model.copies_words:
            self.copied[index] = self._tensor(copied or [NOT_COPIED] * len(streams))
        row, state = self.model.encode_step(self._tensor(tokens), self._source.select(index))
        self._source = self._source.put(index, state)
        return row

    @torch.inference_mode()
    def start(self, slots: Sequence[int], features: NDArray[np.int64]) -> None:
        """Fills slots with empty outputs."""
        self._fill(slots, *self._started(self._tensor(features)))

    @torch.inference_mode()
    def step(self, slots: Sequence[int], parents: list[int], tokens: list[int]) -> None:
        """Fills slots with the outputs of other slots, extended by one token each."""
        self._fill(slots, *self._decode(self._tensor(tokens), self._state.select(self._tensor(parents))))

    @torch.inference_mode()
    def keep(self, slots: list[int]) -> None:
        """Moves these slots to the front, so that there is as much room as before."""
        index, kept = self._tensor(slots), slice(0, len(slots))
        for whole in self._target:
            whole[kept] = whole.index_select(0, index)
        self._state = self._state.replace(kept, self._state.select(index))

    @torch.inference_mode()
    def choose(
        self, row: CellFactors, positions: list[int], streams: list[int], is_last: list[bool], forced: Forced
    ) -> list[int | None]:
        """The token that each stream writes next, in the cells at these positions; None if it reads or ends."""
        index, last = self._tensor(streams), torch.tensor(is_last, device=self.device)
        here = row if len(positions) == len(row.logits) else select_factors(row, self._tensor(positions))
        target = select_factors(self._target, index)
        writes = (self._log_odds(here.transition, target.transition, index) > 0.0) | last
        scores = here.logits + target.logits
        if self.model.copies_words:  # the probability of a word may be the sum of two classes
            scores = self._log_token_probs(scores, index)
        self._forbid(scores, last, forced)
        best = self._ids(scores.argmax(1, keepdim=True), index)[:, 0]
        is_written = writes & (best != END)
        return [token if written else None for token, written in zip(best.tolist(), is_written.tolist(), strict=True)]

    @torch.inference_mode()
    def extend(self, row: CellFactors, column: BeamRow, width: int, forced: Forced) -> CellScores:
        """What may be written after each output of a row's column, and whether it is; of few tokens, all of them."""
        positions, streams, is_last = (
            torch.from_numpy(part).to(self.device)
            for part in (column.positions, column.streams[column.positions], column.is_last[column.positions])
        )
        here, target = select_factors(row, positions), select_factors(self._target, self._tensor(column.nodes))
        log_odds = self._log_odds(here.transition, target.transition, streams)
        log_emit, log_read = self.model.split_odds(log_odds, is_last)
        log_probs = self._log_token_probs(here.logits + target.logits, streams)
        if column.is_full.any():
            is_full = torch.from_numpy(column.is_full).to(self.device)
            log_probs.masked_fill_(is_full[:, None] & is_no_end(log_probs), IMPOSSIBLE)
        self._forbid(log_probs, is_last, forced)
        size = log_probs.shape[1]
        if size > _FEW_TOKENS:
            best, tokens = log_probs.topk(min(width, size), 1)
        else:
            best, tokens = log_probs, torch.arange(size, device=self.device).expand_as(log_probs)
        parts = log_emit, log_read, best, self._ids(tokens, streams)
        return CellScores(*(part.cpu().numpy() for part in parts))

    def _tensor(self, values: Sequence[int] | NDArray[np.int64]) -> Int[Tensor, "..."]:
        return torch.as_tensor(values, device=self.device)

    def _started(self, features: Int[Tensor, "M F"]) -> tuple[CellFactors, SideState]:
        """The decoder after the start symbol, computed once for equal features."""
        if len(features) > 1 and (features != features[0]).any():
            return self._decode_start(features)
        key = tuple(features[0].tolist())
        if key not in self._starts:
            if len(self._starts) >= _STARTS_KEPT:
                self._starts.clear()
            self._starts[key] = self._decode_start(features[:1])
        target, state = self._starts[key]
        index = torch.zeros(len(features), dtype=torch.long, device=self.device)
        return select_factors(target, index), state.select(index)

    def _decode_start(self, features: Int[Tensor, "M F"]) -> tuple[CellFactors, SideState]:
        start = torch.full((len(features),), START, device=self.device)
        return self._decode(start, self.model.target_state(features))

    def _decode(self, tokens: Int[Tensor, " M"], state: SideState) -> tuple[CellFactors, SideState]:
        """The target's contribution and state after one more token of each output."""
        target, state = self.model.decode_prefix(tokens[:, None], state)
        return CellFactors(target.logits[:, 0], target.transition[:, 0]), state

    def _fill(self, slots: Sequence[int], target: CellFactors, state: SideState) -> None:
        """Stores what belongs to slots; there is room for as many again whenever it has to grow."""
        if not self._room:
            self._target, self._state, self._room = target, state, len(slots)
            return
        if isinstance(slots, range):
            self._make_room(slots.stop)
        index = slice(slots.start, slots.stop) if isinstance(slots, range) else self._tensor(slots)
        for whole, part in zip(self._target, target, strict=True):
            whole[index] = part
        self._state = self._state.replace(index, state)

    def _make_room(self, slots: int) -> None:
        if slots <= self._room:
            return
        more = torch.zeros(max(slots - self._room, self._room), dtype=torch.long, device=self.device)
        blank = select_factors(self._target, more)
        self._target = CellFactors(*(torch.cat(parts) for parts in zip(self._target, blank, strict=True)))
        self._state = self._state.join(self._state.select(more))
        self._room += len(more)

    def _log_odds(
        self, source: Float[Tensor, "N T"], target: Float[Tensor, "N T"], streams: Int[Tensor, " N"]
    ) -> Float[Tensor, " N"]:
        """Log odds of writing in cells of these streams, with their bias."""
        return self.model.transition.log_odds(source, target) + self.emit_bias.index_select(0, streams)

    def _log_token_probs(self, logits: Float[Tensor, "N V"], streams: Int[Tensor, " N"]) -> Float[Tensor, "N V"]:
        """Log probabilities of the tokens in cells of these streams; the last is a copy, if the model copies words."""
        log_probs = logits.log_softmax(1)
        return add_row_copy(log_probs, self.copied[streams]) if self.model.copies_words else log_probs

    def _forbid(self, scores: Float[Tensor, "N V"], is_last: Bool[Tensor, " N"], forced: Forced) -> None:
        """Makes tokens that are not allowed impossible, such as the end symbol outside of last rows; in place."""
        scores.index_fill_(1, self._never, IMPOSSIBLE)
        scores[:, END].masked_fill_(~is_last, IMPOSSIBLE)
        for cell, token in forced:
            score = scores[cell, token].item()
            scores[cell] = IMPOSSIBLE
            scores[cell, token] = score

    def _ids(self, tokens: Int[Tensor, "N K"], streams: Int[Tensor, " N"]) -> Int[Tensor, "N K"]:
        """The ids of tokens that each stream writes; that of a copy is the id of the word."""
        if not self.model.copies_words:
            return tokens
        return torch.where(tokens == self.model.target_size, self.copied[streams][:, None], tokens)


def select_factors(side: CellFactors, index: Int[Tensor, " M"]) -> CellFactors:
    """The factors of some of the cells."""
    return CellFactors(side.logits.index_select(0, index), side.transition.index_select(0, index))


class LanguageState(NamedTuple):
    """The language model after each of ``N`` output prefixes."""

    state: LSTMState
    log_prob: Float[Tensor, " N"]
    log_next: Float[Tensor, "N V"]

    def select(self, index: Int[Tensor, " M"]) -> "LanguageState":
        """Some of the prefixes."""
        return LanguageState(select_states(self.state, index), self.log_prob[index], self.log_next[index])

    def join(self, others: "LanguageState") -> "LanguageState":
        """These prefixes and others."""
        rest = (torch.cat(parts) for parts in zip(self[1:], others[1:], strict=True))
        return LanguageState(join_states(self.state, others.state), *rest)


class NoisyChannelScores:
    """Channel model and language model after every node of the tree of one stream, as ``ObjectiveScores``."""

    def __init__(self, model: NoisyChannel, features: Int[Tensor, "1 F"]) -> None:
        self.model, self.device = model, features.device
        self.language_memory: Tensor | None = None
        self.language = self._start_language_model(model.features_in_language_model[features])
        self.channel: ChannelLattice | None = None
        self.empty_output: int | None = 0
        """The node without tokens, until it is pruned."""
        if model.channel is not None:
            no_inputs = torch.zeros(1, 0, dtype=torch.long, device=self.device)
            self.channel = ChannelLattice(model.channel, no_inputs, model.features_in_channel[features], grows=True)
            self.rows = self.channel.start()

    def _start_language_model(self, features: Int[Tensor, "1 F"]) -> LanguageState | None:
        """The language model after the start symbol."""
        if self.model.language_model is None:
            return None
        batch = Batch.of([np.zeros(0, np.int32)]).to(self.device)._replace(features=features)
        self.language_memory, state = self.model.language_model.start(batch)
        first = torch.zeros_like(batch.source_lengths)
        log_next, state = self.model.language_model.step(self.language_memory, state, first + START, first)
        return LanguageState(state, torch.zeros_like(log_next[:, 0], dtype=torch.float64), log_next)

    @torch.inference_mode()
    def read(self, token: int, tree: OutputTree) -> None:
        """One more input token, for the channel to write."""
        if self.channel is None:
            return
        ids = int(self.model.input_in_channel[token])
        self.rows = self.channel.append_column(self.rows, ids, tree.parent, tree.levels(), self.empty_output)

    @torch.inference_mode()
    def step(self, parents: list[int], tokens: list[int]) -> None:
        """Adds nodes, each after one more token of a parent."""
        index, given = (torch.tensor(part, device=self.device) for part in (parents, tokens))
        if self.channel is not None:
            self.rows = self.rows.join(self._append_rows(self.channel, index, given))
        if self.language is not None:
            self.language = self.language.join(self._step_language_model(self.language, index, given))

    def _append_rows(
        self, channel: ChannelLattice, parents: Int[Tensor, " M"], tokens: Int[Tensor, " M"]
    ) -> ChannelRows:
        return channel.append_rows(self.rows, parents, self.model.channel_ids(tokens), torch.zeros_like(parents))

    def _step_language_model(
        self, before: LanguageState, parent: Int[Tensor, " M"], tokens: Int[Tensor, " M"]
    ) -> LanguageState:
        assert self.model.language_model is not None
        ids = self.model.language_model_ids(tokens)
        state = select_states(before.state, parent)
        log_next, state = self.model.language_model.step(self.language_memory, state, ids, torch.zeros_like(parent))
        return LanguageState(state, before.log_prob[parent] + before.log_next[parent, ids], log_next)

    @torch.inference_mode()
    def keep(self, nodes: list[int]) -> None:
        """Drops all other nodes."""
        index = torch.tensor(nodes, device=self.device)
        if self.channel is not None:
            self.empty_output = nodes.index(self.empty_output) if self.empty_output in nodes else None
            self.rows = self.channel.drop_columns(self.rows.select(index))
        self.language = self.language and self.language.select(index)

    def passes(self, node: int, below: int) -> bool:
        """Whether channel probability still passes through a node above another one."""
        return self.channel is not None and self.channel.passes(self.rows, node, below)

    @torch.inference_mode()
    def values(self, extensions: list[Extension], lengths: list[int]) -> list[float]:
        """The objective of extensions, which have these lengths, divided by the largest weight."""
        log_scores, parents, tokens = zip(*(extension[:3] for extension in extensions), strict=True)
        direct, length = torch.tensor([log_scores, lengths], dtype=torch.float64, device=self.device)
        parent, given = (torch.tensor(part, device=self.device) for part in (parents, tokens))
        channel, language = torch.zeros_like(direct), torch.zeros_like(direct)
        if self.channel is not None:
            rows = self._append_rows(self.channel, parent, given)
            reads_last = (given == END) | (self.model.reading == "last")
            channel = torch.where(reads_last, rows.scores.last[:, -1], rows.scores.anywhere[:, -1])
        if self.language is not None:
            ids = self.model.language_model_ids(given)
            language = self.language.log_prob[parent] + self.language.log_next[parent, ids]
        objective = self.model.weigh(direct, channel, language, length)
        nats: list[float] = (objective / self.model.weights.scale).tolist()
        return nats


def start_streams(
    model: Transducer | NoisyChannel,
    policy: str,
    settings: BeamSettings,
    features: NDArray[np.int64],
    emit_bias: float = 0.0,
) -> StreamPolicy | SeparateStreams:
    """Streams of a unidirectional transducer, or of a noisy channel with one, one for each row of ``features``."""
    if isinstance(model, NoisyChannel):
        return stream_noisy_channel(model, settings, features, emit_bias)
    return POLICIES[policy](TransducerStreams(model), settings, features, emit_bias)


def stream_noisy_channel(
    model: NoisyChannel, settings: BeamSettings, features: NDArray[np.int64], emit_bias: float = 0.0
) -> SeparateStreams:
    """Streams of a noisy channel whose direct model is unidirectional, each decoded by a policy of its own."""
    direct = cast(Transducer, model.direct)

    def start(ids: NDArray[np.int64], bias: float) -> NoisyChannelPolicy:
        network = TransducerStreams(direct)
        with torch.inference_mode():
            objective = NoisyChannelScores(model, torch.as_tensor(ids, device=network.device))
        return NoisyChannelPolicy(network, objective, settings, ids, bias)

    return SeparateStreams(start, features, emit_bias)
