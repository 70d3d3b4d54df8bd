"""Models that write outputs: suffix rules, a network, or a noisy channel of several."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import cast

import numpy as np
import torch
from torch import nn

from antiphon.api.model import Model
from antiphon.data.batch import Batch
from antiphon.decode.alignments import add_alignments, replace_unknown
from antiphon.decode.noisy_channel import rescore_outputs
from antiphon.decode.sampling import sample_outputs
from antiphon.decode.streams import start_streams
from antiphon.exceptions import RecipeError, RunError
from antiphon.models.left_to_right import LeftToRight, copies_unknown
from antiphon.models.noisy_channel import NoisyChannel
from antiphon.models.sequence_model import log_prob
from antiphon.models.token_likelihood import output_log_probs
from antiphon.models.transducer import Transducer
from antiphon.recipe.kinds import KINDS
from antiphon.recipe.schema import Recipe, SearchSection
from antiphon.runs.build import build_beam, build_search
from antiphon.runs.run_folder import RunFolder, load_any_network
from antiphon.torch_free.batch import plan_batches
from antiphon.torch_free.codec import PairCodec
from antiphon.torch_free.hypothesis import BeamSettings, Hypothesis, Weights, have_unknown
from antiphon.torch_free.inputs import PredictOptions, StreamOptions
from antiphon.torch_free.prediction import MAX_BATCH_CELLS, CandidateSearch, RuleSearch
from antiphon.torch_free.readers import Source
from antiphon.torch_free.results import END_SYMBOL, Alignment
from antiphon.torch_free.streams import StreamGroup
from antiphon.torch_free.suffix_rule import Rescoring, RuleMixture, SuffixRules


class RuleModel(Model):
    """Suffix rules: one output for every input, and no probabilities."""

    can_score = False

    @classmethod
    def open(cls, folder: RunFolder, recipe: Recipe, device: str) -> "RuleModel":
        """The rules of a run folder; no device is needed."""
        model = cls(recipe, folder.codec(recipe))
        model.search = RuleSearch(model.kind, model.codec, folder.load_rules())
        return model


class NeuralModel(Model):
    """A trained network; ``module`` is the ``torch.nn.Module`` inside."""

    def __init__(self, recipe: Recipe, codec: PairCodec, module: nn.Module, rules: SuffixRules | None = None) -> None:
        super().__init__(recipe, codec, module)
        self.device = next(module.parameters()).device
        self.writer = module.direct if isinstance(module, NoisyChannel) else module
        """The network that proposes the tokens of outputs: of a noisy channel, the direct model."""
        self.mixture: RuleMixture | None = None
        if rules is not None:
            self.mixture = RuleMixture(rules, recipe.search.rule_weight or 0.0, codec, copies_unknown(self.writer))
        self.search = CandidateSearch(codec, build_beam(recipe.search), self._find)

    @classmethod
    def open(cls, folder: RunFolder, recipe: Recipe, device: str) -> "NeuralModel":
        """The network of a run folder, with its suffix rules if they have a weight."""
        rules = folder.load_rules() if recipe.search.rule_weight else None
        return cls(recipe, folder.codec(recipe), load_any_network(folder, recipe).to(device), rules)

    def _find(self, sources: Sequence[Source], options: PredictOptions) -> list[list[Hypothesis]]:
        """What the search finds, or samples, with alignments and copied words."""
        batch = Batch.of_text(self.codec, sources).to(self.device)
        found = self._sampled(batch, options) if options.sample else self._searched(batch, options)
        if self.mixture is not None and self.recipe.search.over == "outputs" and not options.prefix:
            score = partial(output_log_probs, cast(LeftToRight, self.writer), batch)
            if options.sample is None:
                found = self.mixture.add(score, found, sources, options.max_outputs, self._rescoring(batch))
            else:
                found = self.mixture.draw(score, found, sources, options.seed)
        if options.align or have_unknown(found):
            found = add_alignments(self.writer, batch, found)
        if self.recipe.search.replace_unknown:
            found = replace_unknown(self.writer, batch, found, len(self.codec.target.vocab))
        return found

    def _sampled(self, batch: Batch, options: PredictOptions) -> list[list[Hypothesis]]:
        assert options.sample is not None
        settings = build_beam(self.recipe.search)
        return sample_outputs(cast(LeftToRight, self.module), batch, settings, options.sample, options.seed)

    def _searched(self, batch: Batch, options: PredictOptions) -> list[list[Hypothesis]]:
        search = build_search(self.recipe)
        assert search is not None
        prefix = self.codec.target.known_ids(options.prefix, "prefix")
        settings = build_beam(self.recipe.search, beam=options.beam, nbest=options.max_outputs)
        return search(self.module, batch, settings, prefix)

    def _rescoring(self, batch: Batch) -> Rescoring | None:
        """How outputs are ranked by more than the network; None: by the network alone."""
        return None

    def _streams(self, features: Sequence[Sequence[str]], options: StreamOptions) -> StreamGroup:
        """Streams of a unidirectional transducer, or of a noisy channel that has one as its direct model."""
        settings, ids = self._stream_settings(options), self.codec.feature_ids(features)
        policy, emit_bias = options.get("policy", "beam"), options.get("emit_bias", 0.0)
        model = cast(Transducer | NoisyChannel, self.module)
        return StreamGroup(start_streams(model, policy, settings, ids, emit_bias), self.codec, len(features))

    def _stream_settings(self, options: StreamOptions) -> BeamSettings:
        if not isinstance(self.writer, Transducer):
            raise self._cannot("stream", "a transducer trained with model.encoder=unidirectional")
        if self.writer.encoder.bidirectional:
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
        for indices in plan_batches(*lengths, batch_size=self.batch_size, max_cells=MAX_BATCH_CELLS):
            sources, targets = zip(*(pairs[index] for index in indices), strict=True)
            batch = Batch.of_text(self.codec, sources, targets).to(self.device)
            for index, value in zip(indices, log_prob(self.module, batch).tolist(), strict=True):
                mixed = value if self.mixture is None else self.mixture.log_prob(value, *pairs[index])
                scores[index] = (mixed, int(lengths[1][index]))
        return scores

    @torch.inference_mode()
    def _align(self, source: Source, target: str) -> Alignment:
        kind = KINDS[self.kind]
        assert kind.explain is not None
        batch = Batch.of_text(self.codec, [source], [target]).to(self.device)
        explanation = kind.explain()(self.module, batch)
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

    can_score = False
    """The objective is not a probability."""

    @property
    def weights(self) -> Weights:
        """The weights of the feature scores; can be set."""
        return cast(NoisyChannel, self.module).weights

    @weights.setter
    def weights(self, weights: Weights) -> None:
        cast(NoisyChannel, self.module).weights = weights

    @property
    def default_weights(self) -> Weights:
        """The weights that ``combine`` gives by default to the parts that are there."""
        module = cast(NoisyChannel, self.module)
        is_there = (True, module.channel is not None, module.language_model is not None, True)
        return Weights(*(weight * there for weight, there in zip(SearchSection().weights, is_there, strict=True)))

    def _rescoring(self, batch: Batch) -> Rescoring:
        module = cast(NoisyChannel, self.module)
        return Rescoring(partial(rescore_outputs, module, batch, build_beam(self.recipe.search)), module.weights)

    def _find(self, sources: Sequence[Source], options: PredictOptions) -> list[list[Hypothesis]]:
        if options.sample is not None or options.cover is not None:
            raise self._cannot("give probabilities of its own", "a single model or an ensemble for cover and sample")
        return super()._find(sources, options)

    def _streams(self, features: Sequence[Sequence[str]], options: StreamOptions) -> StreamGroup:
        if options.get("policy", "beam") != "beam":
            raise RecipeError("a noisy channel cannot stream with the policy greedy, expected beam")
        if options.get("margin") is None:  # in scores of the direct model, which must not prune what the others prefer
            options = {**options, "margin": math.inf}
        return super()._streams(features, options)
