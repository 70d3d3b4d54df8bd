"""Models that write: by rules, by one network, or by several that are combined."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import torch
from torch import nn

from antiphon.api.inputs import PredictOptions, StreamOptions
from antiphon.api.model import MAX_BATCH_CELLS, Model
from antiphon.api.results import END_SYMBOL, Alignment, Candidate, Prediction
from antiphon.build import build_beam, build_search
from antiphon.config import Recipe
from antiphon.data.batch import Batch
from antiphon.data.codec import PairCodec
from antiphon.data.corpus import plan_batches
from antiphon.data.readers import Source
from antiphon.data.vocab import Vocab
from antiphon.errors import RecipeError, RunError
from antiphon.kinds import KINDS, log_prob
from antiphon.models.noisy_channel import NoisyChannel, Weights
from antiphon.models.suffix_rule import SuffixRules
from antiphon.models.transducer import Transducer
from antiphon.search.alignments import add_alignments
from antiphon.search.beam_search import LeftToRight
from antiphon.search.hypothesis import BeamSettings, Hypothesis, covering
from antiphon.search.online import BeamStreams, GreedyStreams, Streams
from antiphon.search.online_noisy_channel import NoisyChannelStream, NoisyChannelStreams
from antiphon.search.rescoring import Conditioning, search_noisy_channel
from antiphon.search.sampling import sample_outputs
from antiphon.streaming import StreamGroup

STREAMS: dict[str, type[Streams]] = {"greedy": GreedyStreams, "beam": BeamStreams}


class RuleModel(Model):
    """Suffix rules: one output for every input, and no probabilities."""

    def __init__(self, recipe: Recipe, codec: PairCodec, rules: SuffixRules) -> None:
        super().__init__(recipe, codec)
        self.rules = rules

    @property
    def gives_probabilities(self) -> bool:
        """Rules have none."""
        return False

    def answer(self, sources: Sequence[Source], options: PredictOptions) -> list[Prediction]:
        """What the rules make of each input."""
        if options.cover is not None or options.sample is not None:
            raise self._cannot("give probabilities", "a neural model for cover and sample")
        applied = [self.rules.apply(self.codec.source.tokens(source.text), source.features) for source in sources]
        join = self.codec.target.tokeniser.join
        return [
            self._prediction(source, [Candidate(join(tokens), tokens)])
            for source, tokens in zip(sources, applied, strict=True)
        ]


class NeuralModel(Model):
    """A trained network; ``module`` is the ``torch.nn.Module`` inside."""

    def __init__(self, recipe: Recipe, codec: PairCodec, module: nn.Module) -> None:
        super().__init__(recipe, codec, module)
        self.device = next(module.parameters()).device

    def answer(self, sources: Sequence[Source], options: PredictOptions) -> list[Prediction]:
        """The best outputs of one batch, or samples."""
        batch = Batch.of([self.codec.encode_source(source) for source in sources]).to(self.device)
        found = self._search(sources, batch, options)
        if options.cover is not None:
            found = [covering(hypotheses, options.cover) for hypotheses in found]
        if options.align:
            found = self._with_alignments(batch, found)
        return [
            self._prediction(source, [self._candidate(hypothesis) for hypothesis in hypotheses])
            for source, hypotheses in zip(sources, found, strict=True)
        ]

    def _search(self, sources: Sequence[Source], batch: Batch, options: PredictOptions) -> list[list[Hypothesis]]:
        settings = build_beam(self.recipe.search, beam=options.beam, nbest=options.nbest)
        if options.sample is not None:
            return sample_outputs(cast(LeftToRight, self.module), batch, settings, options.sample, options.seed)
        search = build_search(self.recipe)
        assert search is not None
        return search(self.module, batch, settings)

    def _with_alignments(self, batch: Batch, found: list[list[Hypothesis]]) -> list[list[Hypothesis]]:
        """Hypotheses of a transducer with the best path of each."""
        return add_alignments(self.module, batch, found) if isinstance(self.module, Transducer) else found

    def _streams(self, features: Sequence[Sequence[str]], options: StreamOptions) -> StreamGroup:
        """Streams of a unidirectional transducer."""
        if not isinstance(self.module, Transducer):
            return super()._streams(features, options)
        policy = STREAMS[options.get("policy", "beam")]
        settings = self._stream_settings(self.module, options)
        streams = policy(self.module, len(features), settings, options.get("emit_bias", 0.0))
        return StreamGroup(streams, self.codec, features)

    def _stream_settings(self, proposer: nn.Module, options: StreamOptions) -> BeamSettings:
        if not isinstance(proposer, Transducer):
            raise self._cannot("stream", "a transducer trained with model.encoder=unidirectional")
        if proposer.encoder.bidirectional:
            raise RunError(
                "this run reads its input from both ends and cannot write before it has ended, "
                "expected one trained with --set model.encoder=unidirectional"
            )
        settings = build_beam(self.recipe.search, beam=options.get("beam"))
        margin = options.get("margin")
        return settings if margin is None else replace(settings, commit_margin=margin)

    def _candidate(self, hypothesis: Hypothesis) -> Candidate:
        tokens = tuple(self.codec.target.vocab.decode(hypothesis.tokens))
        return Candidate(
            self.codec.target.tokeniser.join(tokens),
            tokens,
            score=hypothesis.score,
            log_probability=hypothesis.log_prob,
            token_probabilities=tuple(math.exp(log_prob) for log_prob in hypothesis.token_log_probs),
            rows=hypothesis.alignment[: len(tokens)],
            parts=hypothesis.features,
        )

    def _score(self, pairs: list[tuple[Source, str]]) -> list[tuple[float, int]]:
        """Log probability and target length, end symbol counted, of each pair."""
        sources = [self.codec.encode_source(source) for source, _ in pairs]
        targets = [self.codec.target.encode(target) for _, target in pairs]
        lengths = [np.array([len(ids) + 1 for ids in side]) for side in (sources, targets)]
        scores = [(0.0, 0)] * len(pairs)
        for numbers in plan_batches(*lengths, batch_size=self.recipe.search.batch_size, max_cells=MAX_BATCH_CELLS):
            batch = Batch.of([sources[n] for n in numbers], [targets[n] for n in numbers]).to(self.device)
            for number, value in zip(numbers, log_prob(self.module, batch).tolist(), strict=True):
                scores[number] = (value, len(targets[number]) + 1)
        return scores

    @torch.inference_mode()
    def _align(self, source: Source, target: str) -> Alignment:
        kind = KINDS[self.kind]
        if kind.explain is None:
            return super()._align(source, target)
        batch = Batch.of([self.codec.encode_source(source)], [self.codec.target.encode(target)]).to(self.device)
        links = kind.explain(self.module, batch)
        return Alignment(
            source_symbols=(*self.codec.source_symbols(source), END_SYMBOL),
            target_symbols=(*self.codec.target.tokens(target), END_SYMBOL),
            rows=tuple(links.rows.tolist()),
            posterior=links.weights.float().cpu().numpy(),
            log_prob=log_prob(self.module, batch).item(),
            method=kind.explanation,
        )


class NoisyChannelModel(NeuralModel):
    """Direct model, channel model, language model and length bias, searched together."""

    def __init__(
        self, recipe: Recipe, codec: PairCodec, module: NoisyChannel, channel_vocab: Vocab, language_vocab: Vocab
    ) -> None:
        super().__init__(recipe, codec, module)
        self.channel_vocab, self.language_vocab = channel_vocab, language_vocab

    @property
    def gives_probabilities(self) -> bool:
        """The objective is no probability."""
        return False

    @property
    def weights(self) -> Weights:
        """How much each part counts; can be set."""
        return cast(NoisyChannel, self.module).weights

    @weights.setter
    def weights(self, weights: Weights) -> None:
        cast(NoisyChannel, self.module).weights = weights

    def _search(self, sources: Sequence[Source], batch: Batch, options: PredictOptions) -> list[list[Hypothesis]]:
        if options.sample is not None or options.cover is not None:
            raise self._cannot("give probabilities of its own", "a single model or an ensemble for cover and sample")
        settings = build_beam(self.recipe.search, beam=options.beam, nbest=options.nbest)
        return search_noisy_channel(cast(NoisyChannel, self.module), batch, settings, self._conditioning(sources))

    def _with_alignments(self, batch: Batch, found: list[list[Hypothesis]]) -> list[list[Hypothesis]]:
        """Hypotheses with the best path of each in the direct model."""
        direct = cast(NoisyChannel, self.module).direct
        return add_alignments(direct, batch, found) if isinstance(direct, Transducer) else found

    def _conditioning(self, sources: Sequence[Source]) -> Conditioning:
        """The features of each source, in the numbers of channel and language model."""
        symbols = [self.codec.feature_symbols(source.features) for source in sources]
        # A language model of unpaired text without tags knows no features: it reads none.
        known = [[symbol for symbol in each if symbol in self.language_vocab] for each in symbols]
        return Conditioning(
            Batch.of([self.channel_vocab.encode(each) for each in symbols]),
            Batch.of([self.language_vocab.encode(each) for each in known]),
        )

    def _streams(self, features: Sequence[Sequence[str]], options: StreamOptions) -> StreamGroup:
        """Streams of a noisy channel whose direct model is unidirectional."""
        if options.get("policy", "beam") != "beam":
            raise RecipeError("a noisy channel has several active outputs, expected the policy beam")
        module = cast(NoisyChannel, self.module)
        # Outputs are compared by the direct model alone, which must not decide before the others have had their say.
        margin = options.get("margin")
        options["margin"] = math.inf if margin is None else margin
        settings = self._stream_settings(module.direct, options)
        emit_bias = options.get("emit_bias", 0.0)
        each = [
            NoisyChannelStream(module, settings, self._conditioning([Source("", tuple(names))]), emit_bias)
            for names in features
        ]
        return StreamGroup(NoisyChannelStreams(each), self.codec, features)

    def _align(self, source: Source, target: str) -> Alignment:
        raise self._cannot("align", "one of the runs it is made of")
