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
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from antiphon.data.batch import Batch
from antiphon.data.vocab import END, START
from antiphon.lattice.grid import IMPOSSIBLE
from antiphon.models.language_model import LanguageModel
from antiphon.models.transducer import Side, Transducer
from antiphon.nn.factored_softmax import log_normalisers
from antiphon.nn.recurrent import LSTMState, select_states

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
    """The last row of the channel's lattice for each of ``N`` output prefixes."""

    state: LSTMState | None
    arriving: Float[Tensor, "N I"]
    last: Float[Tensor, "N I"]
    anywhere: Float[Tensor, "N I"]


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

    def begin(self, N: int) -> ChannelRow:
        """Before any output: nothing of the input is written, and the first row is certain to come."""
        nothing = self.written.logits.new_full((N, self.inputs.shape[1]), IMPOSSIBLE, dtype=torch.float64)
        arriving = nothing.clone()
        arriving[:, 0] = 0.0
        return ChannelRow(None, arriving, nothing, nothing)

    def append(
        self,
        row: ChannelRow,
        parent: Int[Tensor, " M"],
        sentence: Int[Tensor, " M"],
        tokens: Int[Tensor, " M"],
        is_end: Bool[Tensor, " M"],
    ) -> ChannelRow:
        """The rows of prefixes that extend ``parent`` by a token each."""
        state = None if row.state is None else select_states(row.state, parent)
        side, state = self.model.read_on(tokens, state)
        log_odds = self.model.transition.log_odds(side.transition[:, None], self.written.transition[sentence])
        log_emit, log_shift = self.model.split_odds(log_odds, is_end[:, None])
        log_write = (log_emit + self._log_word(side.logits, sentence)).double()
        standing = linear_recurrence(row.arriving[parent], log_write)
        last = standing + log_write
        return ChannelRow(state, standing + log_shift, last, torch.logaddexp(row.anywhere[parent], last))

    def _log_word(self, logits: Float[Tensor, "M V"], sentence: Int[Tensor, " M"]) -> Float[Tensor, "M I"]:
        """Log probability of every input token, of all prefixes of a sentence in one product."""
        slots, place = _slots(sentence, len(self.inputs))
        padded = logits.new_zeros(len(self.inputs), slots, logits.shape[1])
        padded[sentence, place] = logits
        log_z = log_normalisers(padded, self.written.logits)[sentence, place]
        wanted = self.inputs[sentence]
        from_input = self.written.logits.gather(2, self.inputs[:, :, None])[sentence, :, 0]
        return logits.gather(1, wanted) + from_input - log_z


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

    def start_language_model(self, features: Batch) -> LanguageState | None:
        """The language model before the first token, but after the features."""
        if self.language_model is None:
            return None
        start = torch.full_like(features.source[:, 0], START)
        log_next, state = self.language_model.step(start, self.language_model.start(features))
        return LanguageState(state, log_next.new_zeros(len(start), dtype=torch.float64), log_next)

    def step_language_model(
        self, before: LanguageState, parent: Int[Tensor, " M"], tokens: Int[Tensor, " M"]
    ) -> LanguageState:
        """The language model after one more token of each prefix."""
        assert self.language_model is not None
        theirs = self.output_in_language_model[tokens]
        log_next, state = self.language_model.step(theirs, select_states(before.state, parent))
        return LanguageState(state, before.log_prob[parent] + before.log_next[parent, theirs], log_next)

    def objective(self, parts: Float[Tensor, "E 4"]) -> Float[Tensor, " E"]:
        """The weighted sum of direct, channel, language model and length; parts of weight 0 do not matter."""
        weights = parts.new_tensor(self.weights)
        return torch.where(weights == 0, 0.0, parts * weights).sum(1)


def end_of(tokens: Int[Tensor, " M"]) -> Bool[Tensor, " M"]:
    """Where the end symbol is written."""
    return tokens == END


def linear_recurrence(arriving: Float[Tensor, "M I"], log_write: Float[Tensor, "M I"]) -> Float[Tensor, "M I"]:
    """``standing(i) = logaddexp(arriving(i), standing(i-1) + log_write(i-1))`` for all ``i`` at once."""
    written_before = log_write.cumsum(1) - log_write
    return written_before + torch.logcumsumexp(arriving - written_before, 1)


def _slots(sentence: Int[Tensor, " M"], B: int) -> tuple[int, Int[Tensor, " M"]]:
    """The most prefixes that any sentence has, and the place of each among those of its sentence."""
    counts = torch.bincount(sentence, minlength=B)
    order = sentence.argsort(stable=True)
    starts = (counts.cumsum(0) - counts)[sentence[order]]
    place = torch.empty_like(sentence)
    place[order] = torch.arange(len(sentence), device=sentence.device) - starts
    return int(counts.max()), place
