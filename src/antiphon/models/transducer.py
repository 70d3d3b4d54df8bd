"""Segment-to-segment neural transduction: a latent monotone alignment, summed out exactly.

    h_i               state of the source at position i, unidirectional or bidirectional
    s_j               state of the target prefix y_1..y_{j-1}; it may attend to all h_i
    token(i, j)       softmax(W_h h_i + W_s s_j + b) at y_j
    emit(i, j)        sigmoid(v . tanh(T_h h_i + T_s s_j + c) + d), or one constant (geometric)
    read(i, j)        1 - emit(i, j)

What source and target contribute to a cell is computed by ``models/transducer_network.py``, features included. If
both sides share their tokens, unknown tokens can be copied (``models/left_to_right.py``). With
``copy_words`` the token of a cell may be a copy of ``x_i``, whether the vocabulary has it or not (``nn/copying.py``).

A right-to-left twin (``TwoWayTransducer``) reads and writes everything from the end; an output has the mean of what
both give it. Its mistakes are others, since it knows the end of an output when it writes the beginning::

    p(y | x) = ( p_forward(y | x) + p_backward(reverse(y) | reverse(x)) ) / 2

Streams, alignments and samples are those of the left-to-right half, which is a plain transducer.

Thesis: chapter 4. The four models it names are the choices of ``encoder`` (uni, bi) and ``transition`` (geometric;
neural, there marked ``+``).
"""

from math import log
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from antiphon.data.batch import Batch
from antiphon.device import run_concurrently
from antiphon.lattice import Moves, log_marginal
from antiphon.lattice.paths import IMPOSSIBLE, forward_along, moves_of_cells
from antiphon.models.left_to_right import select
from antiphon.models.transducer_network import CellFactors, SideState, SourceContext, TransducerNetwork
from antiphon.nn.copying import CellCopies, CopyTable, copies_as_unknown
from antiphon.nn.factored_softmax import log_token_probabilities, smoothing_term
from antiphon.nn.next_tokens import TokenTable, kernels_fit, next_tokens
from antiphon.nn.transition import TransitionTable
from antiphon.torch_free.vocab import END, PAD


class TransducerMemory(NamedTuple):
    """What is computed once per source: token logits and transition units of every row."""

    token_table: TokenTable
    transition: TransitionTable
    context: SourceContext | None
    lengths: Int[Tensor, " B"]
    end_logits: Float[Tensor, " B"]
    copy_table: CopyTable | None


class TransducerState(NamedTuple):
    """The state after each prefix: the decoder, and the weight of each row for the next token.

    ``log_weight(n, i) = log write(n, i) - log Z(i, n)``, where ``write`` is the probability, given the prefix, of
    writing next in row ``i``. Token ``y`` is then written there in proportion to ``exp(log_weight + A[i, y])``; where
    words are copied, this depends on ``C[n, y]`` too, which is computed from ``output``.
    """

    decoder: SideState
    log_weight: Float[Tensor, "N I"]
    output: Float[Tensor, "N K"]


class ForwardRows(NamedTuple):
    """Log scores in every row of the column after each prefix, of which a kernel computes only the first.

    They are those of writing next in a row, of having written the last token there, of reaching it, and of reading.
    """

    log_write: Float[Tensor, "N I"]
    log_arrive: Float[Tensor, "N I"] | None = None
    log_forward: Float[Tensor, "N I"] | None = None
    log_read: Float[Tensor, "N I"] | None = None


class Transducer(TransducerNetwork):
    """p(y | x) as the sum over all monotone alignments."""

    def log_prob(self, batch: Batch, label_smoothing: float = 0.0) -> Float[Tensor, " B"]:
        """``log p(y | x)`` of each pair; in training, with the gradient of label smoothing where tokens are written."""
        return log_marginal(*self.moves(batch, label_smoothing), batch.source_lengths, batch.target_lengths)

    def moves(self, batch: Batch, label_smoothing: float = 0.0) -> Moves:
        """The log scores of both moves in every cell.

        Label smoothing adds its gradient alone, so each cell's is weighted by the probability that the token is written
        there, while the sum over alignments stays that of the model. If the scores had it too, alignments through cells
        that know little would win (docs/experiments.md).
        """
        (source, context), (states, _) = run_concurrently(
            lambda: self.encode(batch),
            lambda: self.read_prefix(batch.shifted_target, self.target_state(batch.features)),
            side_stream=0,
        )
        target = self.target_factors(self.attend(states, context))
        log_token = self._log_token(source, target, batch)
        if label_smoothing:
            log_token = log_token + label_smoothing * _gradient_alone(self._smoothing(source, target, batch.target))
        log_odds = self.emit_log_odds(source.transition, target.transition).to(log_token.dtype)
        return moves_of_cells(log_token, log_odds, batch.source_lengths, final_write_forced=self.final_write_forced)

    def _log_token(self, source: CellFactors, target: CellFactors, batch: Batch) -> Float[Tensor, "B I J"]:
        """The log probability of every cell's token."""
        if not self.copies_words:
            return log_token_probabilities(source.logits, target.logits, batch.target)
        copies = CellCopies.of(self.copied_words(batch), batch.target, self.target_size)
        known = copies_as_unknown(batch.target, self.target_size)
        return log_token_probabilities(source.logits, target.logits, known, copies)

    def _smoothing(
        self, source: CellFactors, target: CellFactors, targets: Int[Tensor, "B J"]
    ) -> Float[Tensor, "B I J"]:
        """What label smoothing adds in each cell; nothing to a word that can only be copied."""
        known = copies_as_unknown(targets, self.target_size) if self.copies_words else targets
        classes = self.target_logits.out_features  # without the padding of ``TokenLogits``
        added = smoothing_term(source.logits[:, :, :classes], target.logits[:, :, :classes], known)
        return added.masked_fill((targets >= self.target_size)[:, None], 0.0)

    def start(self, batch: Batch) -> tuple[TransducerMemory, TransducerState]:
        """The sources, encoded, and the state before the start symbol, with all probability in the first row."""
        factors, context = self.encode(batch)
        B, I, _ = factors.logits.shape
        last = batch.source_lengths - 1
        memory = TransducerMemory(
            TokenTable.of(factors.logits),
            self.transition.table(factors.transition),
            context,
            batch.source_lengths,
            factors.logits[torch.arange(B, device=last.device), last, END],
            CopyTable.of(self.copied_words(batch), self.target_size) if self.copies_words else None,
        )
        log_weight = factors.logits.new_full((B, I), IMPOSSIBLE, dtype=torch.float64)
        log_weight[:, 0] = 0.0
        decoder = self.target_state(batch.features)
        return memory, TransducerState(decoder, log_weight, self._kept_output(decoder.network.hidden[-1]))

    def step(
        self,
        memory: TransducerMemory,
        state: TransducerState,
        tokens: Int[Tensor, " N"],
        sentence: Int[Tensor, " N"],
    ) -> tuple[Float[Tensor, "N V"], TransducerState]:
        """``log P(y | prefix)`` for every next token ``y``, all alignments summed, and the state to continue from.

        arrive(i)  probability, given the prefix, that its last token was written in row i
        write(i)   = emit(i) * sum over r <= i of arrive(r) * product of read(r..i-1)
        P(y)       = sum_i write(i) token(y | i),  the end symbol only in the last row

        Not in the thesis, whose search follows single paths (section 4.5).
        """
        log_next, after, _ = self.aligning_step(memory, state, tokens, sentence)
        return log_next, after

    def aligning_step(
        self, memory: TransducerMemory, state: TransducerState, tokens: Int[Tensor, " N"], sentence: Int[Tensor, " N"]
    ) -> tuple[Float[Tensor, "N V"], TransducerState, ForwardRows]:
        """The same, and the scores of the rows, from which a best path can be found."""
        context = select(memory.context, sentence)
        states, decoder = self.read_prefix(tokens[:, None], state.decoder)
        output = self.attend(states, context)
        factors = self.target_factors(output)
        logits, units = factors.logits[:, 0], factors.transition[:, 0]
        rows = self._forward_rows(memory, state, tokens, units, sentence)
        found = next_tokens(memory.token_table, logits, sentence, rows.log_write)
        after = TransducerState(decoder, rows.log_write - found.log_z, self._kept_output(output[:, 0]))
        found.log_prob[:, END] = self._log_end(memory, after, logits, sentence).to(logits.dtype)
        if memory.copy_table is None:
            return found.log_prob, after, rows
        log_copy = after.log_weight + self._copy_logits(memory, sentence) + logits[:, self.target_size, None]
        tokens_only = found.log_prob[:, : self.target_size]
        return memory.copy_table.add_copies(tokens_only, log_copy, sentence), after, rows

    def _kept_output(self, output: Float[Tensor, "N H"]) -> Float[Tensor, "N K"]:
        """What is kept of the states that target logits are computed from: nothing if words are not copied."""
        return output if self.copies_words else output[:, :0]

    def _copy_logits(self, memory: TransducerMemory, sentence: Int[Tensor, " N"]) -> Float[Tensor, "N I"]:
        """The source's part of the logit of copying in every row."""
        return memory.token_table.logits[:, :, self.target_size][sentence]

    def next_rows(self, state: TransducerState) -> Int[Tensor, " N"]:
        """The row in which each prefix will most probably write next."""
        return state.log_weight.argmax(1)

    def log_rows(
        self,
        memory: TransducerMemory,
        state: TransducerState,
        parent: Int[Tensor, " N"] | slice,
        tokens: Int[Tensor, " N"],
        sentence: Int[Tensor, " N"],
    ) -> Float[Tensor, "N I"]:
        """``log arrive(i)`` after one more token of each parent."""
        log_weight = state.log_weight[parent]
        known = tokens if memory.copy_table is None else copies_as_unknown(tokens, self.target_size)
        log_written = log_weight + memory.token_table.logits_of(known, sentence)
        if memory.copy_table is not None:
            copy_logits = self._copy_logits(memory, sentence)
            is_copy = memory.copy_table.copied[sentence] == tokens[:, None]
            log_odds = self._log_odds_of_copying(state.output[parent], known)
            log_copied = (log_weight + copy_logits + log_odds[:, None]).masked_fill(~is_copy, IMPOSSIBLE)
            only_copied = (tokens >= self.target_size)[:, None]
            log_written = torch.logaddexp(log_written.masked_fill(only_copied, IMPOSSIBLE), log_copied)
        return log_written.log_softmax(1)

    def _log_odds_of_copying(self, output: Float[Tensor, "N H"], tokens: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
        """``C[n, copy] - C[n, y]``: the target's part of copying instead of writing a token."""
        weight, bias = self.target_logits.weight, self.target_logits.bias
        per_token = weight[self.target_size] - weight[tokens]
        return (output * per_token).sum(1) + bias[self.target_size] - bias[tokens]

    def _forward_rows(
        self,
        memory: TransducerMemory,
        state: TransducerState,
        tokens: Int[Tensor, " N"],
        units: Float[Tensor, "N T"],
        sentence: Int[Tensor, " N"],
    ) -> ForwardRows:
        """The scores of all rows after these tokens.

        forward(i) = sum over r <= i of arrive(r) * product of read(r..i-1),  write(i) = forward(i) * emit(i)
        """
        kernel_suffices = memory.copy_table is None and not memory.transition.is_exponential
        if kernel_suffices and kernels_fit(units, sentence, len(memory.lengths)):
            from antiphon.nn import next_tokens_triton

            table, readout = memory.token_table.logits, self.transition.readout
            given = state.log_weight, table, tokens, memory.transition.units, units, readout, memory.lengths
            log_write = next_tokens_triton.log_write(*given, final_write_forced=self.final_write_forced, padding=PAD)
            return ForwardRows(log_write)
        log_arrive = self.log_rows(memory, state, slice(None), tokens, sentence)
        log_odds = self.transition.log_odds_by_sentence(memory.transition, units, sentence)
        rows_left = memory.lengths[sentence, None] - 1 - torch.arange(log_odds.shape[1], device=units.device)
        log_emit, log_read = self.split_odds(log_odds, rows_left == 0)
        log_forward = forward_along(log_arrive, log_read.double()).masked_fill(rows_left < 0, IMPOSSIBLE)
        return ForwardRows(log_forward + log_emit, log_arrive, log_forward, log_read)

    def _log_end(
        self,
        memory: TransducerMemory,
        state: TransducerState,
        logits: Float[Tensor, "N V"],
        sentence: Int[Tensor, " N"],
    ) -> Float[Tensor, " N"]:
        """Log probability of the end symbol, which can be written only in the last row."""
        log_weight = state.log_weight.gather(1, memory.lengths[sentence, None] - 1)[:, 0]
        return log_weight + memory.end_logits[sentence] + logits[:, END]


def _gradient_alone(added: Tensor) -> Tensor:
    """Zeros with the gradient of a tensor."""
    return added - added.detach()


class TwoWayTransducer(Transducer):
    """The left-to-right transducer, with ``reverse`` as its twin."""

    def __init__(self, source_size: int, target_size: int, feature_size: int = 0, **settings: Any) -> None:
        super().__init__(source_size, target_size, feature_size, **settings)
        self.reverse = Transducer(source_size, target_size, feature_size, **settings)

    @property
    def twin(self) -> Transducer:
        """The right-to-left half."""
        return self.reverse

    def log_prob(self, batch: Batch, label_smoothing: float = 0.0) -> Float[Tensor, " B"]:
        """``log p(y | x)`` of each pair; in training the mean of both logs, a lower bound, so that both learn it."""
        forward = super().log_prob(batch, label_smoothing)
        backward = self.reverse.log_prob(batch.reversed(), label_smoothing)
        return (forward + backward) / 2 if self.training else torch.logaddexp(forward, backward) - log(2)
