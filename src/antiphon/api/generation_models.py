"""Models that write outputs: suffix rules, a network, or a noisy channel of several."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from antiphon.api.model import Model
from antiphon.data.batch import Batch
from antiphon.decode.best_alignments import add_alignments
from antiphon.decode.forced_prefix import PrefixModel
from antiphon.decode.rescoring import search_noisy_channel
from antiphon.decode.sampling import sample_outputs
from antiphon.decode.streaming.beam_decoder import BeamDecoder
from antiphon.decode.streaming.greedy_decoder import GreedyDecoder
from antiphon.decode.streaming.noisy_channel_decoder import NoisyChannelDecoder
from antiphon.decode.streaming.online_decoder import OnlineDecoder
from antiphon.decode.unknown_words import replace_unknown
from antiphon.exceptions import RecipeError, RunError
from antiphon.models.left_to_right import LeftToRight, copies_unknown
from antiphon.models.noisy_channel import NoisyChannel
from antiphon.models.sequence_model import log_prob
from antiphon.models.token_likelihood import output_log_probs
from antiphon.models.transducer import Transducer
from antiphon.recipe.kinds import KINDS, resolve
from antiphon.recipe.schema import Recipe
from antiphon.runs.build import build_beam, build_search
from antiphon.runs.run_folder import RunFolder, load_any_network
from antiphon.torch_free.batch import plan_batches
from antiphon.torch_free.candidate_search import CandidateSearch
from antiphon.torch_free.channel_weights import Weights
from antiphon.torch_free.codec import PairCodec
from antiphon.torch_free.hypothesis import BeamSettings, Hypothesis, have_unknown
from antiphon.torch_free.inputs import PredictOptions, StreamOptions
from antiphon.torch_free.prediction_interface import MAX_BATCH_CELLS
from antiphon.torch_free.readers import Source
from antiphon.torch_free.results import END_SYMBOL, Alignment, Candidate
from antiphon.torch_free.rule_mixture import add_rules, draw_rules
from antiphon.torch_free.rule_outputs import RuleOutputs
from antiphon.torch_free.suffix_rule import SuffixRules
from antiphon.torch_free.text_streams import StreamGroup

STREAMS: dict[str, type[OnlineDecoder]] = {"greedy": GreedyDecoder, "beam": BeamDecoder}


class RuleModel(RuleOutputs, Model):
    """Suffix rules: one output for every input, and no probabilities."""

    def __init__(self, recipe: Recipe, codec: PairCodec, rules: SuffixRules) -> None:
        super().__init__(recipe, codec)
        self.rules = rules

    @classmethod
    def open(cls, folder: RunFolder, recipe: Recipe, device: str) -> "RuleModel":
        """The rules of a run folder; no device is needed."""
        return cls(recipe, folder.codec(recipe), folder.load_rules())


class NeuralModel(CandidateSearch, Model):
    """A trained network; ``module`` is the ``torch.nn.Module`` inside."""

    def __init__(self, recipe: Recipe, codec: PairCodec, module: nn.Module, rules: SuffixRules | None = None) -> None:
        super().__init__(recipe, codec, module)
        self.device = next(module.parameters()).device
        self.rules, self.rule_weight = rules, (recipe.search.rule_weight or 0.0) if rules else 0.0

    @classmethod
    def open(cls, folder: RunFolder, recipe: Recipe, device: str) -> "NeuralModel":
        """The network of a run folder, with its suffix rules if they have a weight."""
        rules = folder.load_rules() if recipe.search.rule_weight else None
        return cls(recipe, folder.codec(recipe), load_any_network(folder, recipe).to(device), rules)

    @property
    def beam(self) -> int:
        """The setting of the search."""
        return self.recipe.search.beam

    @property
    def length_normalisation(self) -> float:
        """The setting of the search."""
        return self.recipe.search.length_normalisation

    @property
    def copies_unknown(self) -> bool:
        """Whether the network writes the unknown token to copy the input token at its position."""
        return copies_unknown(self.module)

    def _candidates(self, sources: Sequence[Source], options: PredictOptions) -> list[list[Candidate]]:
        """What the search finds, or samples, with alignments and copied words."""
        batch = Batch.of_text(self.codec, sources).to(self.device)
        found = self._search(batch, options)
        if self.rules is not None and self.recipe.search.over == "outputs" and not options.prefix:
            found = self._add_rules(self.rules, sources, batch, found, options)
        if options.align or have_unknown(found):
            found = add_alignments(self._writer, batch, found)
        if self.recipe.search.replace_unknown:
            found = replace_unknown(self._writer, batch, found, len(self.codec.target.vocab))
        symbols = [self.codec.source.tokens(source.text) for source in sources]
        return [[self._candidate(each, own) for each in some] for some, own in zip(found, symbols, strict=True)]

    @property
    def _writer(self) -> nn.Module:
        """The network that proposes the tokens of outputs."""
        return self.module

    def _search(self, batch: Batch, options: PredictOptions) -> list[list[Hypothesis]]:
        settings = build_beam(self.recipe.search, beam=options.beam, nbest=options.max_outputs)
        if options.sample is not None:
            return sample_outputs(cast(LeftToRight, self.module), batch, settings, options.sample, options.seed)
        search = build_search(self.recipe)
        assert search is not None
        if not options.prefix:
            return search(self.module, batch, settings)
        if self.recipe.search.over != "outputs":
            raise RecipeError('search.over = "paths": no prefix can be given, expected a search over outputs')
        return search(PrefixModel(self.module, self.codec.target.known_ids(options.prefix, "prefix")), batch, settings)

    def _add_rules(
        self,
        rules: SuffixRules,
        sources: Sequence[Source],
        batch: Batch,
        found: list[list[Hypothesis]],
        options: PredictOptions,
    ) -> list[list[Hypothesis]]:
        """The hypotheses of network and rules together."""
        of_rules = [self.rule_output(rules, source) for source in sources]
        score = partial(output_log_probs, cast(LeftToRight, self.module), batch)
        if options.sample is None:
            return add_rules(score, found, of_rules, self.rule_weight, options.max_outputs)
        return draw_rules(score, found, of_rules, self.rule_weight, options.seed)

    def _streams(self, features: Sequence[Sequence[str]], options: StreamOptions) -> StreamGroup:
        """Streams of a unidirectional transducer."""
        if not isinstance(self.module, Transducer):
            return super()._streams(features, options)
        policy = STREAMS[options.get("policy", "beam")]
        settings = self._stream_settings(self.module, options)
        streams = policy(self.module, self._feature_ids(features), settings, options.get("emit_bias", 0.0))
        return StreamGroup(streams, self.codec, len(features))

    def _feature_ids(self, features: Sequence[Sequence[str]]) -> Tensor:
        return torch.from_numpy(self.codec.feature_ids(features))

    def _stream_settings(self, proposer: nn.Module, options: StreamOptions) -> BeamSettings:
        if not isinstance(proposer, Transducer):
            raise self._cannot("stream", "a transducer trained with model.encoder=unidirectional")
        if proposer.encoder.bidirectional:
            raise RunError(
                "this run has a bidirectional encoder and cannot write before its input has ended, "
                "expected one trained with --set model.encoder=unidirectional"
            )
        settings = build_beam(self.recipe.search, beam=options.get("beam"))
        margin = options.get("margin")
        return settings if margin is None else replace(settings, commit_margin=margin)

    def _score(self, pairs: list[tuple[Source, str]]) -> list[tuple[float, int]]:
        """Log probability and target length, end symbol included, of each pair."""
        sides = (
            (self.codec.source.tokens(source.text) for source, _ in pairs),
            (self.codec.target.tokens(target) for _, target in pairs),
        )
        lengths = [np.array([len(tokens) + 1 for tokens in side]) for side in sides]
        scores = [(0.0, 0)] * len(pairs)
        for indices in plan_batches(*lengths, batch_size=self.recipe.search.batch_size, max_cells=MAX_BATCH_CELLS):
            sources, targets = zip(*(pairs[index] for index in indices), strict=True)
            batch = Batch.of_text(self.codec, sources, targets).to(self.device)
            for index, value in zip(indices, log_prob(self.module, batch).tolist(), strict=True):
                scores[index] = (self._mixed(value, *pairs[index]), int(lengths[1][index]))
        return scores

    @torch.inference_mode()
    def _align(self, source: Source, target: str) -> Alignment:
        kind = KINDS[self.kind]
        assert kind.explain is not None
        batch = Batch.of_text(self.codec, [source], [target]).to(self.device)
        explanation = resolve(kind.explain)(self.module, batch)
        return Alignment(
            source_symbols=(*self.codec.source.tokens(source.text), END_SYMBOL),
            target_symbols=(*self.codec.target.tokens(target), END_SYMBOL),
            rows=tuple(explanation.alignment.tolist()),
            posterior=explanation.weights.float().cpu().numpy(),
            log_prob=log_prob(self.module, batch).item(),
            method=kind.explanation,
        )


class NoisyChannelModel(NeuralModel):
    """Direct model, channel model, language model and length bias, searched together."""

    @property
    def can_score(self) -> bool:
        """False: the objective is not a probability."""
        return False

    @property
    def weights(self) -> Weights:
        """The weights of the feature scores; can be set."""
        return cast(NoisyChannel, self.module).weights

    @weights.setter
    def weights(self, weights: Weights) -> None:
        cast(NoisyChannel, self.module).weights = weights

    def _search(self, batch: Batch, options: PredictOptions) -> list[list[Hypothesis]]:
        if options.sample is not None or options.cover is not None:
            raise self._cannot("give probabilities of its own", "a single model or an ensemble for cover and sample")
        settings = build_beam(self.recipe.search, beam=options.beam, nbest=options.max_outputs)
        prefix = self.codec.target.known_ids(options.prefix, "prefix")
        return search_noisy_channel(cast(NoisyChannel, self.module), batch, settings, prefix=prefix)

    @property
    def _writer(self) -> nn.Module:
        """The direct model."""
        return cast(NoisyChannel, self.module).direct

    def _streams(self, features: Sequence[Sequence[str]], options: StreamOptions) -> StreamGroup:
        """Streams of a noisy channel whose direct model is unidirectional."""
        if options.get("policy", "beam") != "beam":
            raise RecipeError("a noisy channel cannot stream with the policy greedy, expected beam")
        module = cast(NoisyChannel, self.module)
        margin = options.get("margin")
        if margin is None:  # it is in scores of the direct model alone, which must not discard what the others prefer
            margin = math.inf
        settings = self._stream_settings(module.direct, {**options, "margin": margin})
        emit_bias = options.get("emit_bias", 0.0)
        streams = NoisyChannelDecoder(module, self._feature_ids(features), settings, emit_bias)
        return StreamGroup(streams, self.codec, len(features))
