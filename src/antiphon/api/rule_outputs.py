"""Predictions of suffix rules: one output for every input, and no probabilities."""

from collections.abc import Sequence

from antiphon.api.inputs import PredictOptions
from antiphon.api.prediction_interface import PredictionInterface
from antiphon.api.results import Candidate, Prediction
from antiphon.data.readers import Source
from antiphon.models.suffix_rule import SuffixRules


class RuleOutputs(PredictionInterface):
    """A model of suffix rules alone."""

    rules: SuffixRules

    @property
    def can_score(self) -> bool:
        """False: rules have no probabilities."""
        return False

    def predict_batch(self, sources: Sequence[Source], options: PredictOptions) -> list[Prediction]:
        """The output of the rules for each input."""
        if options.cover is not None or options.sample is not None or options.prefix:
            raise self._cannot("give probabilities", "a neural model for cover, sample and prefix")
        applied = [self.rules.apply(self.codec.source.tokens(source.text), source.features) for source in sources]
        join = self.codec.target.tokeniser.join
        return [
            self._prediction(source, [Candidate(join(tokens), tokens)])
            for source, tokens in zip(sources, applied, strict=True)
        ]
