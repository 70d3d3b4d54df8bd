"""Predictions of suffix rules: one output for every input, and no probabilities."""

from collections.abc import Sequence

from antiphon.torch_free.inputs import PredictOptions
from antiphon.torch_free.prediction_interface import PredictionInterface
from antiphon.torch_free.readers import Source
from antiphon.torch_free.results import Candidate, Prediction
from antiphon.torch_free.suffix_rule import SuffixRules


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
