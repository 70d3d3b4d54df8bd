"""Predictions of models that search for token ids: hypotheses become candidates, each text once."""

import math
from collections.abc import Sequence
from dataclasses import replace

from antiphon.torch_free.candidate_lists import covering, merge_equal_texts, total_probability
from antiphon.torch_free.hypothesis import Hypothesis
from antiphon.torch_free.inputs import PredictOptions
from antiphon.torch_free.prediction_interface import PredictionInterface
from antiphon.torch_free.readers import Source
from antiphon.torch_free.results import Candidate, Prediction
from antiphon.torch_free.rule_mixture import as_answer, mix_log_prob
from antiphon.torch_free.suffix_rule import SuffixRules
from antiphon.torch_free.vocab import END

_MAX_CANDIDATES = 1000
"""A search is not repeated for more candidates than this."""


class CandidateSearch(PredictionInterface):
    """A model whose search finds hypotheses for a batch of inputs, beside suffix rules if these have a weight."""

    rules: SuffixRules | None
    rule_weight: float

    @property
    def beam(self) -> int:
        """The setting of the search."""
        raise NotImplementedError

    @property
    def length_normalisation(self) -> float:
        """The setting of the search."""
        raise NotImplementedError

    @property
    def copies_unknown(self) -> bool:
        """Whether the network writes the unknown token to copy the input token at its position."""
        raise NotImplementedError

    def _candidates(self, sources: Sequence[Source], options: PredictOptions) -> list[list[Candidate]]:
        """What the search finds, or samples, with alignments and copied words."""
        raise NotImplementedError

    def predict_batch(self, sources: Sequence[Source], options: PredictOptions) -> list[Prediction]:
        """The outputs of beam search for one batch, no text twice, or samples."""
        if options.sample:
            found = self._candidates(sources, options)
        elif options.cover is not None:
            found = self._covering(sources, options, options.cover)
        else:
            found = self._distinct(sources, options)
        return [self._prediction(source, candidates) for source, candidates in zip(sources, found, strict=True)]

    def _covering(self, sources: Sequence[Source], options: PredictOptions, mass: float) -> list[list[Candidate]]:
        """The fewest candidates of each source that have this probability together.

        Unless the beam is given, the search is repeated with one as wide as the list where it has found too little.
        """
        found = self._distinct(sources, options)
        short = [n for n, candidates in enumerate(found) if total_probability(candidates) < mass]
        if short and options.beam is None and options.max_outputs > self.beam:
            wide = replace(options, beam=options.max_outputs)
            for n, candidates in zip(short, self._distinct([sources[n] for n in short], wide), strict=True):
                found[n] = candidates
        return [covering(candidates, mass) for candidates in found]

    def _distinct(self, sources: Sequence[Source], options: PredictOptions) -> list[list[Candidate]]:
        """The best candidates of each source with different texts.

        Where equal texts leave fewer than ``nbest``, the search is repeated for more.
        """
        found = self._candidates(sources, options)
        distinct = [merge_equal_texts(each, self.length_normalisation) for each in found]
        counts = zip(map(len, found), map(len, distinct), strict=True)
        short = [n for n, (all_, different) in enumerate(counts) if different < options.max_outputs <= all_]
        if short and options.max_outputs < _MAX_CANDIDATES:
            more = self._distinct([sources[n] for n in short], replace(options, nbest=2 * options.max_outputs))
            for n, candidates in zip(short, more, strict=True):
                distinct[n] = candidates[: options.max_outputs]
        return distinct

    def _candidate(self, hypothesis: Hypothesis, source: Sequence[str]) -> Candidate:
        tokens = tuple(self.codec.decode_copied(hypothesis.tokens, hypothesis.alignment, source))
        return Candidate(
            self.codec.target.tokeniser.join(tokens),
            tokens,
            score=hypothesis.score,
            log_probability=hypothesis.log_prob,
            token_probabilities=tuple(math.exp(min(0.0, log_prob)) for log_prob in hypothesis.token_log_probs),
            rows=hypothesis.alignment[: len(tokens)],
            parts=hypothesis.features,
        )

    def rule_output(self, rules: SuffixRules, source: Source) -> tuple[int, ...]:
        """The token ids of the output of suffix rules; none if the network cannot write it."""
        tokens = rules.apply(self.codec.source.tokens(source.text), source.features)
        return as_answer(self.codec.target.vocab.encode(tokens).tolist(), copies_unknown=self.copies_unknown)

    def _mixed(self, log_probability: float, source: Source, target: str) -> float:
        """The log probability of a target under the mixture of network and suffix rules, if there are rules."""
        if self.rules is None:
            return log_probability
        ids = (*self.codec.target.encode(target).tolist(), END)
        is_of_rules = ids == self.rule_output(self.rules, source)
        return mix_log_prob(log_probability, self.rule_weight, is_answer=is_of_rules)
