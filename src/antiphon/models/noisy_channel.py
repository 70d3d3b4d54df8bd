"""Direct model, channel model and language model together, and what they say of an output prefix.

    O(x_1^i, y_1^j) = l1 log p(y_1^j | x_1^i) + l2 log p(x_1^i | y_1^j) + l3 log p(y_1^j) + l4 j

The channel is a transducer from outputs to inputs. Its lattice has a row for every output token and a column for every
input token; appending a token to an output adds exactly one row, which costs O(I) given the row before it::

    standing(j, i) = logaddexp(standing(j, i-1) + log_write(j, i-1), arriving(j, i))
    arriving(j, i) = standing(j-1, i) + log_shift(j-1, i)
    last(j, i)     = standing(j, i) + log_write(j, i)             x_i is written at y_j
    anywhere(j, i) = log of the sum over j' <= j of last(j', i)   x_i is written at y_j or before

Within the row this is a linear recurrence. With ``W(i)`` the sum of ``log_write`` before ``i`` it has the closed form
``standing(j, i) = W(i) + log of the sum over k <= i of exp(arriving(j, k) - W(k))``, computed in double precision.

Thesis: chapter 6. Beyond it: no prefix is ever scored twice and no row is ever computed again.
"""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from antiphon.data.batch import Batch
from antiphon.data.vocab import END, START
from antiphon.lattice.grid import IMPOSSIBLE
from antiphon.models.language_model import LanguageModel
from antiphon.models.transducer import Side, Transducer
from antiphon.nn.factored_softmax import log_normalisers
from antiphon.nn.recurrent import LSTMState, select_states
from antiphon.nn.slots import spread, spread_states

Reading = Literal["last", "anywhere"]


class Weights(NamedTuple):
    """How much each part counts: direct model, channel model, language model, length."""

    direct: float = 1.0
    channel: float = 1.0
    language_model: float = 1.0
    length: float = 0.0

    @property
    def of_one_nat(self) -> float:
        """What one nat of the model that counts most is worth."""
        return max(abs(weight) for weight in self[:3]) or 1.0


class ChannelRow(NamedTuple):
    """The last row of the channel's lattice for the output prefixes of each input, which stand in ``K`` slots."""

    state: LSTMState
    arriving: Float[Tensor, "B K I"]
    last: Float[Tensor, "B K I"]
    anywhere: Float[Tensor, "B K I"]


class LanguageState(NamedTuple):
    """The language model after each of ``N`` output prefixes."""

    state: LSTMState
    log_prob: Float[Tensor, " N"]
    log_next: Float[Tensor, "N V"]


class Channel:
    """``log p(x | y)`` for a batch of inputs ``x``, while outputs ``y`` grow token by token."""

    def __init__(self, model: Transducer, inputs: Int[Tensor, "B I"]) -> None:
        self.model, self.inputs = model, inputs
        start = torch.full_like(inputs[:, :1], START)
        self.written: Side = model.follow(torch.cat([start, inputs[:, :-1]], 1))[0]

    def begin(self, K: int) -> ChannelRow:
        """Before any output: nothing of the input is written, and the first row is certain to come."""
        B, I = self.inputs.shape
        nothing = self.written.logits.new_full((B, K, I), IMPOSSIBLE, dtype=torch.float64)
        arriving = nothing.clone()
        arriving[:, :, 0] = 0.0
        return ChannelRow(self.model.encoder.initial_state(B * K), arriving, nothing, nothing)

    def append(
        self, row: ChannelRow, parent: Int[Tensor, "B K"], tokens: Int[Tensor, "B K"], filled: Int[Tensor, " N"]
    ) -> ChannelRow:
        """The rows of prefixes that extend ``parent`` by a token each.

        Slots are counted through all inputs, both where parents are and where their extensions go. The encoder works
        on the ``filled`` ones; what comes back for others means nothing.
        """
        slots = tokens.numel()
        side, state = self.model.read_on(tokens.flatten()[filled], select_states(row.state, parent.flatten()[filled]))
        units, logits = (
            spread(part, filled, slots).unflatten(0, tokens.shape) for part in (side.transition, side.logits)
        )
        log_odds = self.model.emit_log_odds(units, self.written.transition)
        log_emit, log_shift = self.model.split_odds(log_odds, (tokens == END)[:, :, None])
        log_write = (log_emit + self._log_word(logits)).double()
        arriving, anywhere = (before.flatten(0, 1)[parent] for before in (row.arriving, row.anywhere))
        standing = linear_recurrence(arriving, log_write)
        last = standing + log_write
        state = spread_states(state, filled, slots)
        return ChannelRow(state, standing + log_shift, last, torch.logaddexp(anywhere, last))

    def _log_word(self, logits: Float[Tensor, "B K V"]) -> Float[Tensor, "B K I"]:
        """Log probability of every input token, of all prefixes of an input in one product."""
        log_z = log_normalisers(logits, self.written.logits)
        from_prefix = logits.gather(2, self.inputs[:, None].expand_as(log_z))
        from_input = self.written.logits.gather(2, self.inputs[:, :, None])[:, None, :, 0]
        return from_prefix + from_input - log_z


class NoisyChannel(nn.Module):
    """The three models and how their tokens correspond; any but the direct one may be missing.

    ``output_in_channel`` and ``output_in_language_model`` number the direct model's target tokens as the others do,
    ``input_in_channel`` its source tokens.
    """

    output_in_channel: Tensor
    input_in_channel: Tensor
    output_in_language_model: Tensor

    def __init__(
        self,
        direct: Transducer,
        channel: Transducer | None,
        language_model: LanguageModel | None,
        *,
        output_in_channel: Tensor,
        input_in_channel: Tensor,
        output_in_language_model: Tensor,
        weights: Weights,
        reading: Reading = "last",
    ) -> None:
        super().__init__()
        self.direct, self.channel, self.language_model = direct, channel, language_model
        self.register_buffer("output_in_channel", output_in_channel)
        self.register_buffer("input_in_channel", input_in_channel)
        self.register_buffer("output_in_language_model", output_in_language_model)
        self.weights, self.reading = weights, reading

    def begin_language_model(self, features: Batch, K: int = 1) -> LanguageState | None:
        """The language model after the features but before the start symbol, which is certain; ``K`` times each."""
        if self.language_model is None:
            return None
        hidden, cell = (part.repeat_interleave(K, 1) for part in self.language_model.start(features))
        log_next = hidden.new_zeros(hidden.shape[1], self.language_model.output.out_features)
        return LanguageState((hidden, cell), torch.zeros_like(log_next[:, 0], dtype=torch.float64), log_next)

    def start_language_model(self, features: Batch) -> LanguageState | None:
        """The language model before the first token, but after the features."""
        before = self.begin_language_model(features)
        if before is None:
            return None
        everyone = torch.arange(len(before.log_prob), device=before.log_prob.device)
        return self.step_language_model(before, everyone, torch.full_like(everyone, START))

    def step_language_model(
        self, before: LanguageState, parent: Int[Tensor, " M"], tokens: Int[Tensor, " M"]
    ) -> LanguageState:
        """The language model after one more token of each prefix."""
        assert self.language_model is not None
        theirs = self.output_in_language_model[tokens]
        log_next, state = self.language_model.step(theirs, select_states(before.state, parent))
        return LanguageState(state, before.log_prob[parent] + before.log_next[parent, theirs], log_next)

    def objective(self, parts: Float[Tensor, "*cells 4"]) -> Float[Tensor, "*cells"]:
        """The weighted sum of direct, channel, language model and length; parts of weight 0 do not matter."""
        total = torch.zeros_like(parts[..., 0])
        for weight, part in zip(self.weights, parts.unbind(-1), strict=True):
            if weight:
                total = total + weight * part
        return total


def linear_recurrence(arriving: Float[Tensor, "*M I"], log_write: Float[Tensor, "*M I"]) -> Float[Tensor, "*M I"]:
    """``standing(i) = logaddexp(arriving(i), standing(i-1) + log_write(i-1))`` for all ``i`` at once."""
    written_before = log_write.cumsum(-1) - log_write
    return written_before + torch.logcumsumexp(arriving - written_before, -1)
