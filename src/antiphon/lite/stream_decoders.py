"""Online decoding in numpy: ``decode/streaming`` has the policies."""

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from antiphon.lite.copied_positions import add_row_copy
from antiphon.lite.log_space import IMPOSSIBLE, Array, log_softmax, top_k
from antiphon.lite.transducer_graphs import CellFactors, SideState, TransducerGraphs
from antiphon.torch_free.beam_policy import BeamPolicy
from antiphon.torch_free.beam_row import BeamRow, CellScores
from antiphon.torch_free.hypothesis import BeamSettings
from antiphon.torch_free.online_policy import GreedyPolicy, OnlinePolicy
from antiphon.torch_free.output_tree import OutputTree
from antiphon.torch_free.vocab import END, NOT_COPIED, PAD, START, UNKNOWN


class LiteDecoder(OnlinePolicy):
    """Decodes inputs that arrive token by token, one for each row of ``features``; what the policies share."""

    def __init__(
        self, graphs: TransducerGraphs, features: NDArray[np.int64], settings: BeamSettings, emit_bias: float = 0.0
    ) -> None:
        self.graphs, self.settings = graphs, settings
        N = len(features)
        self.emit_bias = np.full(N, emit_bias, np.float32)
        self.prefixes: list[Sequence[int]] = [()] * N
        self.tokens_read = [0] * N
        self.copied = np.full(N, NOT_COPIED)
        self._source = graphs.source_state(features)

    def add(self, features: NDArray[np.int64]) -> None:
        """Adds streams, one for each row of ``features``, after the existing ones."""
        M = len(features)
        self.emit_bias = np.pad(self.emit_bias, (0, M))
        self.copied = np.pad(self.copied, (0, M), constant_values=NOT_COPIED)
        self.prefixes += [()] * M
        self.tokens_read += [0] * M
        self._source = self._source.join(self.graphs.source_state(features))
        self._add_targets(features)

    def restart(
        self,
        streams: Sequence[int],
        features: NDArray[np.int64],
        emit_bias: Sequence[float],
        prefixes: Sequence[Sequence[int]],
    ) -> None:
        """Begins new inputs in the slots of streams; the output of each must begin with the tokens of its prefix."""
        index = np.array(streams)
        self.emit_bias[index] = emit_bias
        for stream, prefix in zip(streams, prefixes, strict=True):
            self.prefixes[stream] = tuple(prefix)
            self.tokens_read[stream] = 0
        self._source = self._source.replace(index, self.graphs.source_state(features))
        self._restart_targets(list(streams), *start_decoder(self.graphs, features))

    @abstractmethod
    def _add_targets(self, features: NDArray[np.int64]) -> None:
        """Adds the outputs of new streams."""

    @abstractmethod
    def _restart_targets(self, streams: list[int], target: CellFactors, state: SideState) -> None:
        """Replaces the outputs of streams by empty ones, with what ``start_decoder`` gives for each."""

    def _read(self, streams: list[int], tokens: list[int], copied: list[int] | None = None) -> CellFactors:
        index, given = np.array(streams), np.array(tokens, np.int64)
        self.copied[index] = copied or NOT_COPIED
        words = self.copied[index] if self.graphs.copies_words else None
        side, state = self.graphs.encode_step(given, self._source.select(index), words)
        self._source = self._source.replace(index, state)
        for stream in streams:
            self.tokens_read[stream] += 1
        return side

    def _log_moves(self, source: Array, target: Array, streams: Array, is_last: Array) -> tuple[Array, Array]:
        """Log probabilities of writing and of reading on in cells of these streams, with their bias."""
        log_odds = self.graphs.transition.log_odds(source, target) + self.emit_bias[streams]
        return self.graphs.transition.split_odds(log_odds, is_last)

    def _log_token_probs(self, logits: Array, streams: Array, is_last: Array) -> Array:
        """Log probabilities of the tokens that each stream may write; the last is a copy, if the model copies words."""
        log_probs = log_softmax(logits)
        if self.graphs.copies_words:
            log_probs = add_row_copy(log_probs, self.copied[streams])
        log_probs[:, [PAD, START] if self.graphs.copies_unknown else [PAD, UNKNOWN, START]] = IMPOSSIBLE
        log_probs[~is_last, END] = IMPOSSIBLE
        return log_probs

    def _keep_to_prefixes(self, log_probs: Array, streams: list[int], written: list[int]) -> None:
        """Makes all tokens impossible but the next of the prefix, in cells of streams that have not written theirs."""
        for row, (stream, length) in enumerate(zip(streams, written, strict=True)):
            if length < len(self.prefixes[stream]):
                token = self.prefixes[stream][length]
                log_prob = log_probs[row, token]
                log_probs[row] = IMPOSSIBLE
                log_probs[row, token] = log_prob

    def _ids(self, tokens: Array, streams: Array) -> Array:
        """The ids of tokens that each stream writes; that of a copy is the id of the word."""
        if not self.graphs.copies_words:
            return tokens
        return np.where(tokens == self.graphs.target_size, self.copied[streams][:, None], tokens)


def start_decoder(graphs: TransducerGraphs, features: NDArray[np.int64]) -> tuple[CellFactors, SideState]:
    """The target's contribution and state after the start symbol."""
    return graphs.decode_step(np.full(len(features), START), graphs.target_state(features))


class LiteGreedyDecoder(GreedyPolicy, LiteDecoder):
    """Keeps one output for each stream, which grows while writing is more probable than reading on."""

    def __init__(
        self, graphs: TransducerGraphs, features: NDArray[np.int64], settings: BeamSettings, emit_bias: float = 0.0
    ) -> None:
        super().__init__(graphs, features, settings, emit_bias)
        self.tokens_written = [0] * len(features)
        self._target, self._state = start_decoder(graphs, features)

    def _add_targets(self, features: NDArray[np.int64]) -> None:
        target, state = start_decoder(self.graphs, features)
        self._target, self._state = self._target.join(target), self._state.join(state)
        self.tokens_written += [0] * len(features)

    def _restart_targets(self, streams: list[int], target: CellFactors, state: SideState) -> None:
        self._put(np.array(streams), target, state)
        for stream in streams:
            self.tokens_written[stream] = 0

    def _put(self, index: Array, target: CellFactors, state: SideState) -> None:
        self._target.put(index, target)
        self._state = self._state.replace(index, state)

    def _choose(
        self, streams: list[int], positions: list[int], factors: CellFactors, is_last: list[bool]
    ) -> list[int | None]:
        index, last = np.array(streams), np.array(is_last)
        here, target = factors.select(positions), self._target.select(streams)
        log_emit, log_shift = self._log_moves(here.transition, target.transition, index, last)
        log_probs = self._log_token_probs(here.logits + target.logits, index, last)
        self._keep_to_prefixes(log_probs, streams, [self.tokens_written[stream] for stream in streams])
        best = self._ids(log_probs.argmax(1)[:, None], index)[:, 0]
        is_written = ((log_emit > log_shift) | last) & (best != END)
        return [token if written else None for token, written in zip(best.tolist(), is_written.tolist(), strict=True)]

    def _advance(self, streams: list[int], tokens: list[int]) -> None:
        index = np.array(streams)
        self._put(index, *self.graphs.decode_step(np.array(tokens), self._state.select(index)))


class LiteTree(OutputTree):
    """The active outputs and their prefixes, with the decoder's contribution after each."""

    def __init__(self, graphs: TransducerGraphs, features: NDArray[np.int64]) -> None:
        super().__init__(len(features))
        self.graphs = graphs
        self.target, self.state = start_decoder(graphs, features)

    def _step(self, parents: list[int], tokens: list[int]) -> tuple[CellFactors, SideState]:
        return self.graphs.decode_step(np.array(tokens), self.state.select(np.array(parents)))

    def _store(self, target: CellFactors, state: SideState) -> None:
        self.target, self.state = self.target.join(target), self.state.join(state)

    def _keep_stored(self, nodes: list[int]) -> None:
        self.target, self.state = self.target.select(nodes), self.state.select(np.array(nodes))


class LiteBeamDecoder(BeamPolicy, LiteDecoder):
    """Keeps several active outputs for each stream and writes the prefix that they share."""

    tree: LiteTree

    def __init__(
        self, graphs: TransducerGraphs, features: NDArray[np.int64], settings: BeamSettings, emit_bias: float = 0.0
    ) -> None:
        super().__init__(graphs, features, settings, emit_bias)
        self._begin(LiteTree(graphs, features), settings.beam)

    def _add_targets(self, features: NDArray[np.int64]) -> None:
        self._add_roots(len(features), *start_decoder(self.graphs, features))

    def _restart_targets(self, streams: list[int], target: CellFactors, state: SideState) -> None:
        self._restart_roots(streams, target, state)

    def _extend(self, row: BeamRow, factors: CellFactors) -> CellScores:
        here, target = factors.select(row.positions), self.tree.target.select(row.nodes)
        streams, is_last = row.streams[row.positions], row.is_last[row.positions]
        log_emit, log_shift = self._log_moves(here.transition, target.transition, streams, is_last)
        log_probs = self._log_token_probs(here.logits + target.logits, streams, is_last)
        log_probs[row.is_full[:, None] & (np.arange(log_probs.shape[1]) != END)] = IMPOSSIBLE
        self._keep_to_prefixes(log_probs, streams.tolist(), row.lengths.tolist())
        best, tokens = top_k(log_probs, min(self.width, log_probs.shape[1]))
        return CellScores(log_emit, log_shift, best, self._ids(tokens, streams))
