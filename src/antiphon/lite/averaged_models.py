"""Ensembles, which average the next-token probabilities of several models: ``models/ensemble_model.py`` in numpy."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from antiphon.lite.copied_positions import copies_as_unknown
from antiphon.lite.log_space import IMPOSSIBLE, Array, log_of, log_softmax, log_sum
from antiphon.lite.step_model import RowBand, StepModel
from antiphon.lite.summed_transducer import SummedTransducer
from antiphon.torch_free.batch import PaddedPairs
from antiphon.torch_free.codec import PairCodec


class Member(NamedTuple):
    """A model, and the maps from the ensemble's ids of source tokens, target tokens and features to its own."""

    model: StepModel
    source: Array
    target: Array
    features: Array

    @classmethod
    def of(cls, model: StepModel, theirs: PairCodec, ours: PairCodec) -> "Member":
        """A member with the maps of its vocabularies."""
        return cls(
            model,
            ours.source.vocab.ids_in(theirs.source.vocab),
            ours.target.vocab.ids_in(theirs.target.vocab),
            ours.features.ids_in(theirs.features),
        )

    @property
    def copies_words(self) -> bool:
        """Whether the member copies words of the source."""
        return bool(getattr(self.model, "copies_words", False))

    def target_ids(self, tokens: Array) -> Array:
        """Target ids of the member; copied words, and ``NOT_COPIED``, have the same ids in all members."""
        size = len(self.target)
        if not self.copies_words:
            return np.asarray(self.target[copies_as_unknown(tokens, size).clip(0)])
        return np.where((tokens >= 0) & (tokens < size), self.target[tokens.clip(0, size - 1)], tokens)

    def pairs(self, pairs: PaddedPairs) -> PaddedPairs:
        """A batch in the ids of the member."""
        return pairs._replace(
            source=self.source[pairs.source],
            features=self.features[pairs.features],
            target=self.target_ids(pairs.target),
            copied=self.target_ids(pairs.copied),
        )


class AveragedModels:
    """Models with the same target tokens, whose ids may differ; ``mean`` is of probabilities or of logs."""

    def __init__(self, members: Sequence[Member], mean: str) -> None:
        self.members, self.mean = members, mean
        self.copies_unknown = any(member.model.copies_unknown for member in members)

    def start(self, pairs: PaddedPairs) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Memory and state of every member."""
        memory, state = zip(*(member.model.start(member.pairs(pairs)) for member in self.members), strict=True)
        return memory, state

    def step(
        self, memory: tuple[Any, ...], state: tuple[Any, ...], tokens: Array, sentence: Array
    ) -> tuple[Array, tuple[Any, ...]]:
        """Log probabilities of the token after these, and the states to continue from."""
        log_next, states = [], []
        for member, its_memory, its_state in zip(self.members, memory, state, strict=True):
            found, after = member.model.step(its_memory, its_state, member.target_ids(tokens), sentence)
            log_next.append(np.concatenate([found[:, member.target], found[:, len(member.target) :]], 1))
            states.append(after)
        width = max(found.shape[1] for found in log_next)
        padded = [np.pad(each, ((0, 0), (0, width - each.shape[1])), constant_values=IMPOSSIBLE) for each in log_next]
        return self._average(np.stack(padded)), tuple(states)

    def _average(self, log_next: Array) -> Array:
        if self.mean == "probabilities":
            return log_sum(log_next, 0) - math.log(len(log_next))
        return log_softmax(log_next.mean(0))

    def select(self, state: tuple[Any, ...], index: Array) -> tuple[Any, ...]:
        """The states of some hypotheses."""
        return tuple(member.model.select(each, index) for member, each in zip(self.members, state, strict=True))

    def log_rows(
        self, memory: tuple[Any, ...], state: tuple[Any, ...], parent: Array, tokens: Array, sentence: Array
    ) -> RowBand:
        """Log probabilities of the input position of one more token: the mean of the transducers among the members."""
        aligned = [
            (member, member.model, its_memory, its_state)
            for member, its_memory, its_state in zip(self.members, memory, state, strict=True)
            if isinstance(member.model, SummedTransducer)
        ]
        total = np.zeros((len(tokens), max(its_memory.token_table.logits.shape[1] for _, _, its_memory, _ in aligned)))
        for member, model, its_memory, its_state in aligned:
            first, log_prob = model.log_rows(its_memory, its_state, parent, member.target_ids(tokens), sentence)
            total[:, first : first + log_prob.shape[1]] += np.exp(log_prob)
        return RowBand(0, log_of(total / total.sum(1, keepdims=True)))

    def member_with(self, ability: str) -> Member | None:
        """The first member that has a method, or None; a member that copies goes first."""
        able = [member for member in self.members if getattr(member.model, ability, None) is not None]
        return min(able, key=lambda each: not (each.model.copies_unknown or each.copies_words), default=None)

    @property
    def best_rows(self) -> Any:
        """The method of the transducer that aligns outputs, None if there is none."""
        return self._by_member("best_rows")

    @property
    def attention(self) -> Any:
        """The method of the member that gives attention weights, None if there is none."""
        return self._by_member("attention")

    def _by_member(self, ability: str) -> Any:
        member = self.member_with(ability)
        return None if member is None else lambda pairs: getattr(member.model, ability)(member.pairs(pairs))
