"""Search with direct model, channel model, language model and length bias together.

The search goes column by column, as that of the transducer does. In every cell ``(i, j)`` the direct model proposes its
best ``proposals`` outputs; the objective ``O`` of ``models/noisy_channel.py`` rescores them, and the ``beam`` best are
kept. Each *distinct* output of a column is scored once, for all rows together; all of them, over all sentences, form
one batch. What is too far behind the best of its sentence and column (``threshold``), or not among the best
``outputs``, is dropped before the channel is asked: by its direct score, and by what direct model and language model
say together. The channel has no say in that, since it has less to explain in the rows above.

Thesis: section 6.2, Algorithm 2.
"""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from antiphon.data.batch import Batch
from antiphon.data.vocab import END
from antiphon.lattice.grid import IMPOSSIBLE
from antiphon.models.noisy_channel import Channel, ChannelRow, LanguageState, NoisyChannel
from antiphon.nn.slots import spread, spread_states
from antiphon.search.hypothesis import BeamSettings, Hypothesis
from antiphon.search.transducer_beam import Column, ColumnSearch, Ends, Entries, Outputs


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
    return NoisyChannelSearch(model, batch, settings, conditioning).run()


class Others(NamedTuple):
    """What the others know: the channel of a column's prefixes, the language model of those one token shorter."""

    row: ChannelRow | None
    language: LanguageState | None


class NoisyChannelSearch(ColumnSearch):
    """The search of the direct model, in which the objective decides what is kept."""

    def __init__(
        self,
        model: NoisyChannel,
        batch: Batch,
        settings: BeamSettings,
        conditioning: Conditioning | None,
        *,
        fixed_shapes: bool | None = None,
    ) -> None:
        super().__init__(model.direct, batch, settings, fixed_shapes=fixed_shapes)
        self.width = max(settings.proposals, settings.beam)
        self.combined = model
        self.conditioning = conditioning or Conditioning.none(self.B)
        self.feature_counts = self.conditioning.counts.to(self.device)
        self.channel = None if model.channel is None else Channel(model.channel, self._inputs_of_channel(batch))

    def _inputs_of_channel(self, batch: Batch) -> Int[Tensor, "B I"]:
        """The source as the channel's output: its own numbers, without leading features."""
        theirs = self.combined.input_in_channel[batch.source]
        columns = torch.arange(self.I, device=self.device) + self.feature_counts[:, None]
        return theirs.gather(1, columns.clamp(max=self.I - 1))

    def _no_ends(self, parts: int = 4) -> Ends:
        return super()._no_ends(parts)

    def _first_others(self, K: int) -> Others:
        """The channel after the features, the language model before the first token."""
        row = None if self.channel is None else self._read_features(self.channel, K)
        features = self.conditioning.in_language_model.to(self.device)
        return Others(row, self.combined.begin_language_model(features, K))

    def _read_features(self, channel: Channel, K: int) -> ChannelRow:
        row = channel.begin(K)
        slots = torch.arange(self.B * K, device=self.device)
        features = self.conditioning.in_channel.to(self.device)
        for number, feature in enumerate(features.source[:, :-1].unbind(1)):
            after = channel.append(row, slots.view(self.B, K), feature[:, None].expand(-1, K), slots)
            row = _where(number < self.feature_counts, after, row)
        return row

    def _write(self, column: Column, entries: Entries, filled: Int[Tensor, " N"]) -> tuple[Outputs, Others]:
        """The direct model's proposals for every cell, of which the objective keeps the best."""
        language, length = self._read_on(column, filled), column.length + 1
        value = self._promising(self._without_channel(entries, language, length))
        entries = entries._replace(log_score=entries.log_score.masked_fill(value == IMPOSSIBLE, IMPOSSIBLE))
        outputs = self._distinct(entries, value)
        row = self._append(column, outputs)
        spoken = self._language_scores(language, outputs.parent, outputs.token)[:, None]
        parts = self._parts(outputs.log_score, self._channel_scores(outputs, row), spoken, length)
        return self._best_of_each_cell(outputs._replace(parts=parts)), Others(row, language)

    def _read_on(self, column: Column, filled: Int[Tensor, " N"]) -> LanguageState | None:
        """The language model after the prefixes of a column."""
        before: LanguageState | None = column.others.language
        if before is None:
            return None
        parent, token = (tensor.flatten()[filled] for tensor in (column.parent, column.token))
        state, *rest = self.combined.step_language_model(before, parent, token)
        slots = column.token.numel()
        log_prob, log_next = (spread(part, filled, slots) for part in rest)
        return LanguageState(spread_states(state, filled, slots), log_prob, log_next)

    def _append(self, column: Column, outputs: Outputs) -> ChannelRow | None:
        """The channel after all outputs of a new column."""
        if self.channel is None:
            return None
        filled = self.selection.places((outputs.log_score > IMPOSSIBLE).any(1).flatten())
        theirs = self.combined.output_in_channel[outputs.token]
        return self.channel.append(column.others.row, outputs.parent, theirs, filled)

    def _without_channel(
        self, entries: Entries, language: LanguageState | None, length: Float[Tensor, ""]
    ) -> Float[Tensor, "B R W"]:
        """What direct model and language model say together: fair to all rows, since it does not fall with the row.

        Where the direct model only proposes, its word alone decides.
        """
        if not self.combined.weights.direct:
            return entries.log_score
        spoken = self._language_scores(language, entries.parent, entries.token)
        value = self._nats(self._parts(entries.log_score, torch.zeros_like(spoken), spoken, length))
        return value.masked_fill(entries.log_score == IMPOSSIBLE, IMPOSSIBLE)

    def _nats(self, parts: Float[Tensor, "B R W 4"]) -> Float[Tensor, "B R W"]:
        """The objective in nats of the model that counts most, whatever the scale of the weights."""
        return self.combined.objective(parts) / self.combined.weights.of_one_nat

    def _parts(
        self,
        direct: Float[Tensor, "B R W"],
        channel: Float[Tensor, "B R W"],
        language: Float[Tensor, "B _ W"],
        length: Float[Tensor, ""],
    ) -> Float[Tensor, "B R W 4"]:
        """Direct, channel, language model and length, side by side."""
        return torch.stack(torch.broadcast_tensors(direct, channel, language, length), -1)

    def _language_scores(
        self, language: LanguageState | None, parent: Int[Tensor, "*entries"], token: Int[Tensor, "*entries"]
    ) -> Float[Tensor, "*entries"]:
        if language is None:
            return torch.zeros_like(token, dtype=torch.float64)
        theirs = self.combined.output_in_language_model[token]
        return language.log_prob[parent] + language.log_next[parent, theirs]

    def _channel_scores(self, outputs: Outputs, row: ChannelRow | None) -> Float[Tensor, "B R K"]:
        """``log p(x_1^i | y_1^j)`` of each output in every row; at the end, of all of both.

        Rows count from 0 after the features; in those of features the channel has nothing to say.
        """
        if row is None:
            return torch.zeros_like(outputs.log_score)
        _, R, K = outputs.log_score.shape
        rows = torch.arange(R, device=self.device) + outputs.first_row - self.feature_counts[:, None]
        place = rows.clamp(min=0)[:, :, None].expand(-1, -1, K)
        last, anywhere = (scores.mT.gather(1, place) for scores in (row.last, row.anywhere))
        reads_last = (outputs.token == END)[:, None] | (self.combined.reading == "last")
        return torch.where(reads_last, last, anywhere).masked_fill(rows[:, :, None] < 0, 0.0)

    def _best_of_each_cell(self, outputs: Outputs) -> Outputs:
        """The outputs of the highest objective in every cell, as many as the beam is wide."""
        value = self._nats(outputs.parts).masked_fill(outputs.log_score == IMPOSSIBLE, IMPOSSIBLE)
        worst = value.topk(min(self.settings.beam, value.shape[2]), 2).values[:, :, -1:]
        return outputs._replace(log_score=outputs.log_score.masked_fill(value < worst, IMPOSSIBLE))

    def _final_scores(self, outputs: Outputs, length: Float[Tensor, ""]) -> Float[Tensor, "B R K"]:
        return self.combined.objective(outputs.parts)

    def _hopes(
        self, outputs: Outputs, unfinished: Float[Tensor, "B R K"], length: Float[Tensor, ""]
    ) -> Float[Tensor, " B"]:
        """The best objective that an output of each sentence can still reach, if no model weighs less than nothing.

        Direct model and language model only fall as an output grows, and the channel's log probability never exceeds 0.
        """
        weights = self.combined.weights
        direct, channel, language, _ = outputs.parts.unbind(-1)
        longest = self.limits[:, None, None] if weights.length > 0 else length
        hopes = self.combined.objective(self._parts(direct, torch.zeros_like(channel), language, longest))
        hopes = hopes.masked_fill(unfinished == IMPOSSIBLE, IMPOSSIBLE).amax((1, 2))
        return hopes if min(weights[:3]) >= 0 else torch.full_like(hopes, float("inf"))


def _where(condition: Bool[Tensor, " B"], new: ChannelRow, old: ChannelRow) -> ChannelRow:
    """The new row of some inputs and the old one of the others."""
    of_slots = condition.repeat_interleave(new.arriving.shape[1])[:, None]
    hidden, cell = (torch.where(of_slots, *pair) for pair in zip(new.state, old.state, strict=True))
    rest = (torch.where(condition[:, None, None], *pair) for pair in zip(new[1:], old[1:], strict=True))
    return ChannelRow((hidden, cell), *rest)
