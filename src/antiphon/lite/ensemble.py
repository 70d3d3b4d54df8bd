"""Ensembles, which average the next-token probabilities of several models: ``models/ensemble_model.py`` in numpy."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from antiphon.lite.graphs import IMPOSSIBLE, Array, GraphModel, State
from antiphon.torch_free.batch import PaddedPairs
from antiphon.torch_free.codec import PairCodec
from antiphon.torch_free.vocab import UNKNOWN

Parts = tuple[State, ...]
"""Memory or state of every member."""


def log_softmax(scores: Array) -> Array:
    """Log probabilities along the last axis."""
    shifted = scores - scores.max(-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))


class IdMaps(NamedTuple):
    """The maps from one model's ids of source tokens, target tokens and features to another's."""

    source: Array
    target: Array
    features: Array
    copies_words: bool = False

    @classmethod
    def of(cls, ours: PairCodec, theirs: PairCodec, *, reverse: bool = False) -> "IdMaps":
        """The maps between the vocabularies of two models; with ``reverse``, the other one reads our targets."""
        source, target = (theirs.target, theirs.source) if reverse else (theirs.source, theirs.target)
        return cls(
            ours.source.vocab.ids_in(source.vocab),
            ours.target.vocab.ids_in(target.vocab),
            ours.features.ids_in(theirs.features),
            theirs.copies_words,
        )

    def outputs(self, tokens: Array) -> Array:
        """Target ids of the other model; copied words, and ``NOT_COPIED``, have the same ids in all that copy words."""
        known = (tokens >= 0) & (tokens < len(self.target))
        ids = self.target[np.where(known, tokens, UNKNOWN)]
        return np.where(known, ids, tokens) if self.copies_words else ids

    def pairs(self, pairs: PaddedPairs) -> PaddedPairs:
        """A batch in the ids of the other model."""
        return pairs._replace(
            source=self.source[pairs.source],
            features=self.features[pairs.features],
            target=self.outputs(pairs.target),
            copied=self.outputs(pairs.copied),
        )


class Member(NamedTuple):
    """A model of an ensemble, and the maps to its ids."""

    model: GraphModel
    ids: IdMaps


class Ensemble:
    """Models with the same target tokens, whose ids may differ; ``mean`` is of probabilities or of logs."""

    def __init__(self, members: Sequence[Member], mean: str) -> None:
        self.members, self.mean = members, mean
        self.copies_unknown = any(member.model.copies_unknown for member in members)
        self.aligner, self.attender = self._first("aligns"), self._first("attends")
        self.aligns, self.attends = self.aligner is not None, self.attender is not None

    def _first(self, ability: str) -> Member | None:
        """The first member that has an ability, or None; a member that copies goes first."""
        able = [member for member in self.members if getattr(member.model, ability)]
        return min(able, key=lambda each: not (each.model.copies_unknown or each.ids.copies_words), default=None)

    def start(self, pairs: PaddedPairs) -> tuple[Parts, Parts]:
        """Memory and state of every member."""
        memory, state = zip(*(model.start(ids.pairs(pairs)) for model, ids in self.members), strict=True)
        return memory, state

    def step(self, memory: Parts, state: Parts, tokens: Array, sentence: Array) -> tuple[Array, Parts]:
        """Log probabilities of the token after these, and the states to continue from."""
        log_next, states = [], []
        for (model, ids), its_memory, its_state in zip(self.members, memory, state, strict=True):
            found, after = model.step(its_memory, its_state, ids.outputs(tokens), sentence)
            log_next.append(np.concatenate([found[:, ids.target], found[:, len(ids.target) :]], 1))
            states.append(after)
        width = max(found.shape[1] for found in log_next)
        padded = [np.pad(each, ((0, 0), (0, width - each.shape[1])), constant_values=IMPOSSIBLE) for each in log_next]
        return self._average(np.stack(padded)), tuple(states)

    def _average(self, log_next: Array) -> Array:
        if self.mean == "probabilities":
            return np.asarray(np.logaddexp.reduce(log_next, 0) - math.log(len(log_next)))
        return log_softmax(log_next.mean(0))

    def select(self, state: Parts, index: Array) -> Parts:
        """The states of some hypotheses."""
        return tuple(member.model.select(each, index) for member, each in zip(self.members, state, strict=True))

    def log_rows(self, memory: Parts, state: Parts, parent: Array, tokens: Array, sentence: Array) -> Array:
        """Log probabilities of the input position of one more token: the mean of the transducers among the members."""
        total: Any = 0.0
        for (model, ids), its_memory, its_state in zip(self.members, memory, state, strict=True):
            if model.aligns:
                total = total + np.exp(model.log_rows(its_memory, its_state, parent, ids.outputs(tokens), sentence))
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(total / total.sum(1, keepdims=True)))

    def best_rows(self, pairs: PaddedPairs) -> Array:
        """Those of the member that aligns outputs."""
        assert self.aligner is not None
        return self.aligner.model.best_rows(self.aligner.ids.pairs(pairs))

    def attention(self, pairs: PaddedPairs) -> Array:
        """That of the member that attends."""
        assert self.attender is not None
        return self.attender.model.attention(self.attender.ids.pairs(pairs))
