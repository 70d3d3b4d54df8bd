"""Direct model, channel model and language model together, while the input still arrives.

The outputs in the running form a tree. The channel's lattice has a row for every node of it and a column for every
input token read, so it grows in two directions: a new node adds a row, computed from that of its parent as
``models/noisy_channel.py`` says; a new input token adds a column, computed from the top of the tree downwards::

    standing(n, i) = logaddexp(last(n, i-1), leave(parent of n, i))
    last(n, i)     = standing(n, i) + log_write(n, i)
    leave(n, i)    = standing(n, i) + log_shift(n, i)

A node above what is written out is forgotten once next to nothing of the channel passes through it any more, and so is
a column that no output in the running can still profit from: neither tree nor rows grow with what was read before.
Outputs of one cell are ranked by the objective; those of different lengths are compared by the direct model alone,
since a language model would always prefer the output that has written less.

Thesis: section 6.2, with a unidirectional proposer.
"""

from collections.abc import Sequence
from heapq import nlargest
from operator import attrgetter
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from antiphon.data.vocab import END, START
from antiphon.lattice.grid import IMPOSSIBLE
from antiphon.models.noisy_channel import LanguageState, NoisyChannel, linear_recurrence
from antiphon.models.transducer import Side, Transducer
from antiphon.nn.factored_softmax import log_normalisers
from antiphon.nn.recurrent import LSTMState, join_states, select_states
from antiphon.search.hypothesis import BeamSettings
from antiphon.search.noisy_channel import Conditioning
from antiphon.search.online import BeamStreams, Candidate, PrefixTree

_NEGLIGIBLE = 30.0
"""Nats by which a part of the channel's probability may be behind the rest to be forgotten."""


class Rows(NamedTuple):
    """Rows of the channel's lattice, one for each of ``N`` nodes; ``last`` and ``anywhere`` in the last column."""

    side: Side
    state: LSTMState
    leave: Float[Tensor, "N I"]
    last: Float[Tensor, " N"]
    anywhere: Float[Tensor, " N"]

    def select(self, index: Tensor) -> "Rows":
        """Some of them."""
        side = Side(self.side.logits[index], self.side.transition[index])
        state = select_states(self.state, index)
        return Rows(side, state, self.leave[index], self.last[index], self.anywhere[index])

    def join(self, others: "Rows") -> "Rows":
        """These and others."""
        side = Side(*(torch.cat(parts) for parts in zip(self.side, others.side, strict=True)))
        rest = (torch.cat(parts) for parts in zip(self[2:], others[2:], strict=True))
        return Rows(side, join_states(self.state, others.state), *rest)


class GrowingChannel:
    """``log p(x | y)`` of the outputs of a tree, while both grow; the first node is that before any output."""

    def __init__(self, model: Transducer) -> None:
        self.model = model
        logits, units = model.source_logits.weight, model.transition.source_units(model.source_logits.weight[:1])
        self.tokens = torch.zeros(0, dtype=torch.long, device=logits.device)
        self.written = Side(logits.new_zeros(0, len(logits)), units.new_zeros(0, units.shape[1]))
        self._next = START, model.decoder.initial_state(1)
        self._start: int | None = 0
        nothing = logits.new_full((1,), IMPOSSIBLE, dtype=torch.float64)
        side = Side(logits.new_zeros(1, len(logits)), units.new_zeros(1, units.shape[1]))
        self.rows = Rows(side, model.encoder.initial_state(1), nothing.new_zeros(1, 0), nothing, nothing)

    def add(self, parents: list[int], tokens: Int[Tensor, " M"]) -> None:
        """New nodes: each has a row of its own."""
        self.rows = self.rows.join(self.rows_after(parents, tokens))

    def rows_after(self, parents: list[int], tokens: Int[Tensor, " M"]) -> Rows:
        """The rows that follow those of some nodes, with one more output token each."""
        index = torch.tensor(parents, device=self.tokens.device)
        side, state = self.model.read_on(tokens, select_states(self.rows.state, index))
        log_write, log_shift = self._cells(side, slice(None), tokens == END)
        standing = linear_recurrence(self.rows.leave[index], log_write)
        last = self.rows.last.new_full((len(parents),), IMPOSSIBLE)
        if len(self.tokens):
            last = (standing + log_write)[:, -1]
        return Rows(side, state, standing + log_shift, last, torch.logaddexp(self.rows.anywhere[index], last))

    def read(self, token: int, parent: Sequence[int], levels: Sequence[Sequence[int]]) -> None:
        """One more column, for the nodes of the tree level by level from the top."""
        is_first = not len(self.tokens)
        before, state = self._next
        column, state = self.model.follow(torch.tensor([[before]], device=self.tokens.device), state)
        self._next = token, state
        self.tokens = torch.cat([self.tokens, self.tokens.new_tensor([token])])
        self.written = Side(*(torch.cat([old, new[0]]) for old, new in zip(self.written, column, strict=True)))
        not_end = torch.zeros(len(parent), dtype=torch.bool, device=self.tokens.device)
        log_write, log_shift = (cells[:, 0] for cells in self._cells(self.rows.side, slice(-1, None), not_end))
        nothing = torch.full_like(self.rows.last, IMPOSSIBLE)
        leave, last, anywhere = nothing.clone(), nothing.clone(), nothing.clone()
        for nodes in levels:
            above = [parent[node] for node in nodes]
            has_parent = torch.tensor(above, device=nothing.device) >= 0
            standing = torch.logaddexp(self.rows.last[nodes], torch.where(has_parent, leave[above], IMPOSSIBLE))
            last[nodes] = standing + log_write[nodes]
            leave[nodes] = standing + log_shift[nodes]
            anywhere[nodes] = torch.logaddexp(torch.where(has_parent, anywhere[above], IMPOSSIBLE), last[nodes])
            if self._start in nodes:
                last[self._start] = anywhere[self._start] = IMPOSSIBLE
                leave[self._start] = 0.0 if is_first else IMPOSSIBLE
        self.rows = self.rows._replace(
            leave=torch.cat([self.rows.leave, leave[:, None]], 1), last=last, anywhere=anywhere
        )

    def passes(self, node: int, below: int) -> bool:
        """Whether a node's row still adds to those below it."""
        leave = self.rows.leave
        return not leave.shape[1] or bool(leave[node, -1] >= leave[below].amax() - _NEGLIGIBLE)

    def keep(self, nodes: list[int]) -> None:
        """Drops all other nodes, and the columns from which no node can profit any more."""
        self._start = nodes.index(self._start) if self._start in nodes else None
        self.rows = self.rows.select(torch.tensor(nodes, device=self.tokens.device))
        if len(self.tokens):
            leave = self.rows.leave
            matters = (leave >= leave.amax(1, keepdim=True) - _NEGLIGIBLE).any(0)
            first = int(matters.int().argmax())
            self.tokens = self.tokens[first:]
            self.written = Side(*(part[first:] for part in self.written))
            self.rows = self.rows._replace(leave=leave[:, first:])

    def _cells(self, side: Side, columns: slice, is_end: Tensor) -> tuple[Float[Tensor, "N I"], Float[Tensor, "N I"]]:
        """Log probabilities of writing each column's token at a node, and of reading on, as doubles."""
        written, tokens = Side(*(part[columns] for part in self.written)), self.tokens[columns]
        log_odds = self.model.transition.log_odds(side.transition[:, None], written.transition[None])
        log_emit, log_shift = self.model.split_odds(log_odds, is_end[:, None])
        log_z = log_normalisers(side.logits[None], written.logits[None])[0]
        log_word = side.logits[:, tokens] + written.logits.gather(1, tokens[:, None])[:, 0] - log_z
        return (log_emit + log_word).double(), log_shift.double()


class ScoredTree(PrefixTree):
    """The outputs of one stream in the running, with what channel and language model say of them.

    Node ``root`` is the empty output; those above it are features, which the channel alone reads.
    """

    def __init__(self, model: NoisyChannel, conditioning: Conditioning) -> None:
        super().__init__(model.direct, 1)
        self.combined = model
        self.device = self.target.logits.device
        self.channel = GrowingChannel(model.channel) if model.channel is not None else None
        self.language = model.start_language_model(conditioning.in_language_model.to(self.device))
        features = conditioning.in_channel.source[0, :-1].tolist()
        if self.channel is not None:
            for number, feature in enumerate(features):
                self.channel.add([number], torch.tensor([feature], device=self.device))
            self._repeat_root(len(features))

    def _repeat_root(self, count: int) -> None:
        """Puts nodes for features above the root, which say of an output what the root says."""
        index = torch.zeros(count + 1, dtype=torch.long, device=self.device)
        self.owner, self.token = [0] * (count + 1), [START] * (count + 1)
        self.parent, self.length = list(range(-1, count)), list(range(-count, 1))
        self.children = [{} for _ in index]
        self.target = Side(self.target.logits[index], self.target.transition[index])
        self.state = select_states(self.state, index)
        if self.language is not None:
            self.language = _select(self.language, index)

    def read(self, token: int) -> None:
        """One more input token, for the channel to write."""
        if self.channel is None:
            return
        levels: dict[int, list[int]] = {}
        for node, length in enumerate(self.length):
            levels.setdefault(length, []).append(node)
        theirs = int(self.combined.input_in_channel[token])
        self.channel.read(theirs, self.parent, [levels[length] for length in sorted(levels)])

    def keep(self, nodes: list[int]) -> dict[int, int]:
        """Drops all other nodes, here and in channel and language model."""
        index = torch.tensor(nodes, device=self.device)
        if self.channel is not None:
            self.channel.keep(nodes)
        if self.language is not None:
            self.language = _select(self.language, index)
        return super().keep(nodes)

    def _add(self, parents: list[int], tokens: list[int]) -> None:
        index, given = (torch.tensor(part, device=self.device) for part in (parents, tokens))
        if self.channel is not None:
            self.channel.add(parents, self.combined.output_in_channel[given])
        if self.language is not None:
            after = self.combined.step_language_model(self.language, index, given)
            state = join_states(self.language.state, after.state)
            rest = (torch.cat(parts) for parts in zip(self.language[1:], after[1:], strict=True))
            self.language = LanguageState(state, *rest)
        super()._add(parents, tokens)

    def values(self, candidates: list[Candidate], *, ignores_channel: bool) -> list[float]:
        """The objective of candidates, in nats of the model that counts most."""
        log_scores, parents, tokens = zip(*(candidate[:3] for candidate in candidates), strict=True)
        direct = torch.tensor(log_scores, dtype=torch.float64, device=self.device)
        given = torch.tensor(tokens, device=self.device)
        lengths = direct.new_tensor([self.length[node] + 1 for node in parents])
        channel, language = torch.zeros_like(direct), torch.zeros_like(direct)
        if self.channel is not None and not ignores_channel:
            rows = self.channel.rows_after(list(parents), self.combined.output_in_channel[given])
            reads_last = (given == END) | (self.combined.reading == "last")
            channel = torch.where(reads_last, rows.last, rows.anywhere)
        if self.language is not None:
            theirs = self.combined.output_in_language_model[given]
            language = self.language.log_prob[list(parents)] + self.language.log_next[list(parents), theirs]
        objective = self.combined.objective(torch.stack([direct, channel, language, lengths], 1))
        nats: list[float] = (objective / self.combined.weights.of_one_nat).tolist()
        return nats


class NoisyChannelStream(BeamStreams):
    """One stream, in which the direct model proposes and the objective keeps."""

    def __init__(
        self, model: NoisyChannel, settings: BeamSettings, conditioning: Conditioning, emit_bias: float = 0.0
    ) -> None:
        super().__init__(model.direct, 1, settings, emit_bias)
        self.width = max(settings.proposals, settings.beam)
        self.features = int(conditioning.counts[0])
        self.tree: ScoredTree = ScoredTree(model, conditioning)
        self.root = [len(self.tree.owner) - 1]
        self.live = [{self.root[0]: 0.0}]

    def _read(self, streams: Sequence[int], tokens: Sequence[int]) -> Side:
        row = super()._read(streams, tokens)
        if not self._reads_features:
            self.tree.read(tokens[0])
        return row

    @property
    def _reads_features(self) -> bool:
        return self.tokens_read[0] <= self.features

    def _keep(self, candidates: list[Candidate]) -> list[Candidate]:
        """The proposals with the best objective."""
        values = self.tree.values(candidates, ignores_channel=self._reads_features)
        scored = [candidate._replace(value=value) for candidate, value in zip(candidates, values, strict=True)]
        best = nlargest(self.settings.beam, scored, key=attrgetter("value"))
        worst = best[0].value - self.settings.threshold
        return [candidate for candidate in best if candidate.value >= worst]

    def _final_score(self, candidate: Candidate) -> float:
        return candidate.value

    def _needed(self) -> set[int]:
        """Also the nodes above what is written out through which the channel still passes."""
        needed, node = super()._needed(), self.root[0]
        channel = self.tree.channel
        while channel is not None and (node := self.tree.parent[node]) >= 0 and channel.passes(node, self.root[0]):
            needed.add(node)
        return needed


class NoisyChannelStreams:
    """Several streams of a noisy channel; each is searched by itself."""

    def __init__(self, streams: Sequence[NoisyChannelStream]) -> None:
        self._streams = streams

    def read(self, streams: Sequence[int], tokens: Sequence[int]) -> list[list[int]]:
        """One more input token of some streams; what each of them has newly decided to write."""
        return [self._streams[stream].read([0], [token])[0] for stream, token in zip(streams, tokens, strict=True)]

    def finish(self, streams: Sequence[int]) -> list[list[int]]:
        """The end of some inputs; the rest of what each of them writes, without the end symbol."""
        return [self._streams[stream].finish([0])[0] for stream in streams]


def _select(language: LanguageState, index: Tensor) -> LanguageState:
    return LanguageState(select_states(language.state, index), language.log_prob[index], language.log_next[index])
