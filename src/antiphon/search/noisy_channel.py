"""Search with direct model, channel model, language model and length bias together.

The search goes column by column, as that of the transducer does. In every cell ``(i, j)`` the direct model proposes its
best ``proposals`` outputs; the objective ``O`` of ``models/noisy_channel.py`` rescores them, and the ``beam`` best are
kept. Each *distinct* output of a column is scored once, for all rows together; all of them, over all sentences, form
one batch. What is too far behind the best of its sentence and column (``threshold``), or not among the best
``outputs``, is dropped before the channel is asked: by its direct score, and by what direct model and language model
say together. The channel has no say in that, since it has less to explain in the rows above.

Thesis: section 6.2, Algorithm 2.
"""

from itertools import repeat
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from antiphon.data.batch import Batch
from antiphon.data.vocab import END
from antiphon.lattice.grid import IMPOSSIBLE
from antiphon.models.noisy_channel import Channel, ChannelRow, LanguageState, NoisyChannel, end_of
from antiphon.models.transducer import Side
from antiphon.nn.recurrent import LSTMState, select_states
from antiphon.search.hypothesis import BeamSettings, Hypothesis
from antiphon.search.transducer_beam import Column, ColumnSearch, End, Kept, Ready, select


class Conditioning(NamedTuple):
    """What channel and language model read before an output: the features, in the numbers of each; and how many."""

    in_channel: Batch
    in_language_model: Batch

    @classmethod
    def none(cls, B: int) -> "Conditioning":
        """No features at all."""
        empty = Batch.of([np.zeros(0, np.int32)] * B)
        return cls(empty, empty)

    @property
    def counts(self) -> Int[Tensor, " B"]:
        """How many features lead each input."""
        return self.in_channel.source_lengths - 1


@torch.inference_mode()
def search_noisy_channel(
    model: NoisyChannel, batch: Batch, settings: BeamSettings, conditioning: Conditioning | None = None
) -> list[list[Hypothesis]]:
    """The ``nbest`` best outputs of every source in the batch, each with its path and its four parts."""
    return _NoisyChannelSearch(model, batch, settings, conditioning).run()


class _NoisyChannelSearch(ColumnSearch):
    def __init__(
        self, model: NoisyChannel, batch: Batch, settings: BeamSettings, conditioning: Conditioning | None
    ) -> None:
        super().__init__(model.direct, batch, settings)
        self.width = max(settings.proposals, settings.beam)
        self.combined = model
        conditioning = conditioning or Conditioning.none(self.B)
        self.feature_counts = conditioning.counts.to(self.device)
        self.language: LanguageState | None = model.start_language_model(conditioning.in_language_model.to(self.device))
        self.channel: Channel | None = None
        self.row: ChannelRow | None = None
        if model.channel is not None:
            self.channel = Channel(model.channel, self._inputs_of_channel(batch))
            self.row = self._read_features(self.channel, conditioning.in_channel.to(self.device))
        # Of the column being written: the key of each distinct candidate, and its channel row.
        self.candidates = torch.zeros(0, dtype=torch.long, device=self.device)
        self.candidate_row: ChannelRow | None = None
        self.length = 0

    def _inputs_of_channel(self, batch: Batch) -> Int[Tensor, "B I"]:
        """The source as the channel's output: its own numbers, without leading features."""
        theirs = self.combined.input_in_channel[batch.source]
        columns = torch.arange(self.I, device=self.device) + self.feature_counts[:, None]
        return theirs.gather(1, columns.clamp(max=self.I - 1))

    def _read_features(self, channel: Channel, features: Batch) -> ChannelRow:
        """The channel before the first output token: it has read the features."""
        row = channel.begin(self.B)
        everyone = torch.arange(self.B, device=self.device)
        for number, feature in enumerate(features.source[:, :-1].unbind(1)):
            after = channel.append(row, everyone, everyone, feature, torch.zeros_like(feature, dtype=torch.bool))
            row = _where(number < self.feature_counts, after, row)
        return row

    def _write(self, column: Column, ready: Ready, side: Side, is_last: Tensor) -> Kept:
        """The direct model's proposals for every cell, of which the objective keeps the best."""
        kept = self._propose(column, ready, side, is_last)
        self.length += 1
        kept = select(kept, self._promising(kept, self._without_channel(kept), column.owner))
        kept = select(kept, self._best_outputs(kept, self._without_channel(kept), column.owner))
        keys = kept.prefix * self.V + kept.token
        self.candidates, number = keys.unique(return_inverse=True)
        parts = self._parts(kept, self._channel_scores(column, kept, number))
        best = self._best_of_each_cell(kept, self._nats(parts), column.owner, self.settings.beam)
        self.parts = parts[best]
        return select(kept, best)

    def _nats(self, parts: Float[Tensor, "E 4"]) -> Float[Tensor, " E"]:
        """The objective in nats of the model that counts most, whatever the scale of the weights."""
        return self.combined.objective(parts) / self.combined.weights.of_one_nat

    def _without_channel(self, kept: Kept) -> Float[Tensor, " E"]:
        """What direct model and language model say together: fair to all rows, since it does not fall with the row.

        Where the direct model only proposes, its word alone decides.
        """
        if not self.combined.weights.direct:
            return kept.log_score
        return self._nats(self._parts(kept, torch.zeros_like(kept.log_score)))

    def _parts(self, kept: Kept, channel: Float[Tensor, " E"]) -> Float[Tensor, "E 4"]:
        """Direct, channel, language model and length of every proposal."""
        language = torch.zeros_like(kept.log_score)
        if self.language is not None:
            theirs = self.combined.output_in_language_model[kept.token]
            language = self.language.log_prob[kept.prefix] + self.language.log_next[kept.prefix, theirs]
        length = torch.full_like(kept.log_score, float(self.length))
        return torch.stack([kept.log_score, channel, language, length], 1)

    def _channel_scores(self, column: Column, kept: Kept, number: Tensor) -> Float[Tensor, " E"]:
        """``log p(x_1^i | y_1^j)`` of each proposal in its cell; at the end, of all of both."""
        if self.channel is None or self.row is None:
            return torch.zeros_like(kept.log_score)
        parent, token = self.candidates // self.V, self.candidates % self.V
        theirs = self.combined.output_in_channel[token]
        self.candidate_row = self.channel.append(self.row, parent, column.owner[parent], theirs, end_of(token))
        rows = self._rows_of_channel(column, kept)
        place = number, rows.clamp(min=0)
        last = self.candidate_row.last[place]
        score = last if self.combined.reading == "last" else self.candidate_row.anywhere[place]
        return torch.where(kept.token == END, last, score).masked_fill(rows < 0, 0.0)

    def _rows_of_channel(self, column: Column, kept: Kept) -> Int[Tensor, " E"]:
        """The input position of each entry as the channel counts them, without features."""
        return kept.row - self.feature_counts[column.owner[kept.prefix]]

    def _finish(self, column: Column, kept: Kept, number: int) -> Kept:
        """The entries that go on; those that wrote the end symbol are finished."""
        is_end = kept.token == END
        objective = self.combined.objective(self.parts)
        ended = is_end & (objective > IMPOSSIBLE)
        sentences, scores = column.owner[kept.prefix[ended]].tolist(), objective[ended].tolist()
        parts = map(tuple, self.parts[ended].tolist())
        ends = map(End, repeat(number), kept.parent[ended].tolist(), kept.log_score[ended].tolist(), parts)
        for sentence, score, end in zip(sentences, scores, ends, strict=True):
            self.finished[sentence].add(score, end)
        self.open_parts = self.parts[~is_end]
        return select(kept, (~is_end).nonzero()[:, 0])

    def _hopes(self, kept: Kept, sentence: Tensor, length: int) -> Float[Tensor, " B"]:
        """The best objective that an output of each sentence can still reach, if no model weighs less than nothing.

        Direct model and language model only fall as an output grows, and the channel's log probability never exceeds 0.
        """
        weights = self.combined.weights
        best = self.open_parts.clone()
        best[:, 1] = 0.0
        best[:, 3] = self.max_columns[sentence] if weights.length > 0 else length
        hopes = self._best_of_each_sentence(self.combined.objective(best), sentence)
        return hopes if min(weights[:3]) >= 0 else torch.full_like(hopes, float("inf"))

    def _next_column(self, column: Column, kept: Kept, state: LSTMState) -> Column:
        after = super()._next_column(column, kept, state)
        distinct = (kept.prefix * self.V + kept.token).unique()
        if self.candidate_row is not None:
            self.row = _select_row(self.candidate_row, torch.searchsorted(self.candidates, distinct))
        if self.language is not None:
            self.language = self.combined.step_language_model(self.language, distinct // self.V, distinct % self.V)
        return after


def _select_row(row: ChannelRow, index: Int[Tensor, " N"]) -> ChannelRow:
    state = None if row.state is None else select_states(row.state, index)
    return ChannelRow(state, *(tensor[index] for tensor in row[1:]))


def _where(condition: Tensor, new: ChannelRow, old: ChannelRow) -> ChannelRow:
    """The new row of some sentences and the old one of the others."""
    assert new.state is not None
    before = old.state or tuple(torch.zeros_like(part) for part in new.state)
    state = tuple(torch.where(condition[:, None], a, b) for a, b in zip(new.state, before, strict=True))
    rest = (torch.where(condition[:, None], a, b) for a, b in zip(new[1:], old[1:], strict=True))
    return ChannelRow((state[0], state[1]), *rest)
