"""Trained models: what every kind has, those that write outputs, and how models are loaded.

A kind refuses what it cannot do. Models that rank are in ``ranking_model.py``.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Unpack, cast

import torch
from torch import nn

from antiphon.api import evaluation
from antiphon.api.word_links import LinkOptions, WordLinker, WordLinks
from antiphon.data.batch import Batch
from antiphon.decode.alignments import add_alignments
from antiphon.decode.noisy_channel import rescore_outputs
from antiphon.decode.noisy_channel_streams import NoisyChannelStreams
from antiphon.decode.sampling import sample_outputs
from antiphon.decode.streams import TransducerStreams
from antiphon.device import choose_device
from antiphon.exceptions import AntiphonError, RecipeError, RunError
from antiphon.metrics.breakdown import By
from antiphon.metrics.gold_links import GoldLinks
from antiphon.metrics.output_metrics import Outputs
from antiphon.models.left_to_right import LeftToRight, log_prob, output_scorer
from antiphon.models.noisy_channel import NoisyChannel
from antiphon.models.transducer import Transducer
from antiphon.ranking.questions import Judgements, Question, QuestionSet
from antiphon.recipe.kinds import KINDS
from antiphon.recipe.recipe_file import Settings, change_search
from antiphon.recipe.schema import Recipe
from antiphon.recipe.sections import SearchSection
from antiphon.report.error_report import ErrorReport, Suspect
from antiphon.runs.build import build_beam, build_search
from antiphon.runs.run_folder import RunFolder, Shipped, load_any_network
from antiphon.torch_free import inputs
from antiphon.torch_free.codec import PairCodec
from antiphon.torch_free.hypothesis import BeamSettings, Hypothesis, Weights, have_unknown
from antiphon.torch_free.inputs import PairsLike, PredictOptions, StreamOptions
from antiphon.torch_free.prediction import CandidateSearch, PredictionInterface, RuleSearch
from antiphon.torch_free.readers import Pair, Source
from antiphon.torch_free.results import END_SYMBOL, Alignment, Evaluation, Ranked
from antiphon.torch_free.stream_policies import POLICIES
from antiphon.torch_free.streams import StreamGroup, Timed, run_streams
from antiphon.torch_free.suffix_rule import Rescoring, RuleMixture, SuffixRules, add_rules, draw_rules
from antiphon.training.prepare import pairs_of

_IN_PYTHON = {
    "antiphon train --resume": "resume=True",
    r"--(resume|force)\b": r"\1=True",
    r"--set ([\w.]+)=(\w+)": r'settings={"\1": "\2"}',
    r"another --out\b": "another folder",
    r"--(out|device|seeds)\b": r"\1",
}
"""Options of commands in messages, and what they are called in Python."""


def in_python(message: str) -> str:
    """A message in the words of Python instead of those of commands."""
    for option, argument in _IN_PYTHON.items():
        message = re.sub(option, argument, message)
    return message


@contextmanager
def errors_in_python() -> Iterator[None]:
    """Inside, errors speak of arguments instead of options."""
    try:
        yield
    except AntiphonError as error:
        error.args = (in_python(str(error)),)
        raise


class Model(PredictionInterface):
    """A trained model with everything needed to use it."""

    def __init__(self, recipe: Recipe, codec: PairCodec, module: nn.Module | None = None) -> None:
        super().__init__(
            codec,
            recipe.model.kind,
            can_predict=KINDS[recipe.model.kind].predicts,
            reads_features=bool(recipe.data.features),
            swaps_columns=recipe.data.swap,
            column_order=recipe.data.columns,
            batch_size=recipe.search.batch_size,
        )
        self.recipe, self._module = recipe, module
        self.metrics: Mapping[str, Any] = {}
        self.shipped: Shipped | None = None

    @classmethod
    def open(cls, folder: RunFolder, recipe: Recipe, device: str) -> "Model":
        """The trained model of a run folder."""
        raise NotImplementedError

    @property
    def module(self) -> nn.Module:
        """The ``torch.nn.Module``; kinds without a network refuse."""
        if self._module is None:
            raise self._cannot("give a torch.nn.Module", "a neural kind")
        return self._module

    @property
    def can_align(self) -> bool:
        """Whether the model has alignments or attention weights."""
        return KINDS[self.kind].explain is not None

    def check_can_align(self) -> None:
        """Refuses a model without alignments or attention weights."""
        if not self.can_align:
            raise self._cannot("align", "a transducer or an attention model")

    def align(self, pairs: PairsLike) -> Iterator[Alignment]:
        """The most probable alignment of each pair, with posteriors; for an attention model, its weights."""
        self.check_can_align()
        given = self._given_pairs(pairs, "align")
        return (self._align(*inputs.as_pair(pair, reads_features=self.reads_features)) for pair in given)

    def rank(self, question: str, sentences: Sequence[str], *, explain: bool = False) -> list[Ranked]:
        """The sentences, the most probable answer first; with ``explain``, with attention weights of their words."""
        raise self._cannot("rank", "a run of answer selection")

    def evaluate_questions(
        self, questions: Sequence[Question], *, which: QuestionSet = "all", judged: Judgements | None = None
    ) -> Evaluation:
        """MAP, MRR and P@1 of a run of answer selection over a set of labelled questions."""
        raise self._cannot("rank", "a run of answer selection")

    def errors(
        self,
        pairs: PairsLike,
        *,
        against: "Model | None" = None,
        by: Sequence[By] | None = None,
        most: int | None = None,
        beam: int | None = None,
    ) -> ErrorReport:
        """The mistakes of the model in the order of the pairs, accuracy by group, and frequent edits.

        ``by`` chooses the groups: features, length, unseen; None means all. At most ``most`` mistakes are listed.
        With ``against``, another model with the same inputs, pairs that only one of the two gets right are listed too.
        """
        inputs.check_positive("most", most)
        inputs.check_model("against", against)
        self.check_can_predict()
        given = evaluation.locate(self, self._given_pairs(pairs, "errors"))
        by = evaluation.choose_breakdowns(self, by)
        return evaluation.find_errors(self, given, against=against, by=by, most=most, beam=beam)

    def suspicious(self, pairs: PairsLike, *, most: int | None = None, beam: int | None = None) -> list[Suspect]:
        """Pairs with improbable targets, the least probable per token first; at most ``most``."""
        inputs.check_positive("most", most)
        given = evaluation.locate(self, self._given_pairs(pairs, "suspicious"))
        return evaluation.find_suspicious(self, given, most=most, beam=beam)

    def evaluate(
        self,
        pairs: PairsLike,
        *,
        beam: int | None = None,
        more_references: Sequence[Sequence[str]] = (),
        by: Sequence[By] = (),
    ) -> Evaluation:
        """All metrics of the task; ``more_references[n]`` are further references of pair ``n``.

        ``pairs`` can be the path of a file of pairs, here and in ``errors``, ``suspicious``, ``score`` and ``align``.
        ``by`` adds the metrics of groups of pairs: by features, length or unseen.
        """
        if not self.can_predict and not self.can_score:
            raise self._cannot("evaluate pairs", "evaluate_questions")
        given = self._pairs(pairs, "evaluate")
        inputs.check_not_empty(given, "evaluate")
        if by:
            self.check_can_predict()
            evaluation.choose_breakdowns(self, by)
        outputs = self.outputs(given, beam=beam, more_references=more_references) if self.can_predict else None
        scored = self._score(given) if self.can_score else None
        return evaluation.evaluate_outputs(self, given, outputs, scored, by)

    def word_links(self, pairs: PairsLike, **options: Unpack[LinkOptions]) -> Iterator[WordLinks]:
        """The links between the words of each pair.

        Options: ``threshold``, ``reverse``, ``combine`` (see ``LinkOptions``).
        """
        return WordLinker(self, **options).links(self._pairs(pairs, "word_links"))

    def evaluate_alignments(
        self, pairs: PairsLike, gold: Sequence[GoldLinks | str], **options: Unpack[LinkOptions]
    ) -> Evaluation:
        """Alignment error rate, precision and recall of ``word_links``; ``gold[n]`` are the links of pair ``n``.

        Links given as text count words from 0: ``i-j`` is a sure link and ``ipj`` a possible one.
        """
        given = self._pairs(pairs, "evaluate_alignments")
        return evaluation.evaluation_of(self, given, WordLinker(self, **options).scores(given, gold))

    def outputs(
        self,
        given: Sequence[tuple[Source, str]],
        *,
        beam: int | None = None,
        more_references: Sequence[Sequence[str]] = (),
    ) -> Outputs:
        """The outputs of the model with all their references."""
        sources = [source for source, _ in given]
        predictions = self.predict(sources, beam=beam, align=False, allow_unknown_features=True)
        return evaluation.with_references(self.codec, [each.tokens for each in predictions], given, more_references)

    def evaluate_online(
        self,
        pairs: PairsLike,
        *,
        more_references: Sequence[Sequence[str]] = (),
        **options: Unpack[StreamOptions],
    ) -> Evaluation:
        """The metrics and the delay of outputs that are written while inputs are read token by token."""
        given = self._pairs(pairs, "evaluate_online")
        inputs.check_not_empty(given, "evaluate_online")
        sources = [self.codec.source.tokens(source.text) for source, _ in given]
        inputs.check_stream_options(options)
        timed: list[Timed] = []
        for start in range(0, len(given), self.batch_size):
            some = slice(start, start + self.batch_size)
            group = self._streams([source.features for source, _ in given[some]], options)
            timed += run_streams(group, sources[some])
        return evaluation.evaluate_streams(self, given, timed, more_references)

    def target_tokens(self, given: Sequence[tuple[Source, str]]) -> int:
        """The number of target tokens, end symbols included."""
        return sum(len(self.codec.target.tokens(target)) + 1 for _, target in given)

    def _file_pairs(self, path: Path) -> Iterable[Pair]:
        return pairs_of(self.recipe, path)

    def _align(self, source: Source, target: str) -> Alignment:
        raise NotImplementedError


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
        self.writer = cast(LeftToRight, module.direct if isinstance(module, NoisyChannel) else module)
        """The network that proposes the tokens of outputs: of a noisy channel, the direct model."""
        if rules is not None:
            self.mixture = RuleMixture(rules, recipe.search.rule_weight or 0.0, codec, self.writer.copies_unknown)
        self.search = CandidateSearch(codec, build_beam(recipe.search), self._find)

    @classmethod
    def open(cls, folder: RunFolder, recipe: Recipe, device: str) -> "NeuralModel":
        """The network of a run folder, with its suffix rules if they have a weight."""
        codec, rules = folder.codec(recipe), folder.load_rules() if recipe.search.rule_weight else None
        return cls(recipe, codec, load_any_network(folder, recipe).to(device), rules)

    def _find(self, sources: Sequence[Source], options: PredictOptions) -> list[list[Hypothesis]]:
        """What the search finds, or samples, with alignments and copied words."""
        batch = Batch.of_text(self.codec, sources).to(self.device)
        found = self._sampled(batch, options) if options.sample else self._searched(batch, options)
        if self.mixture is not None and self.recipe.search.over == "outputs" and not options.prefix:
            given = output_scorer(self.writer, batch), found, self.mixture.answers(sources), self.mixture.weight
            if options.sample is None:
                found = add_rules(*given, options.max_outputs, self._rescoring(batch))
            else:
                found = draw_rules(*given, options.seed)
        if options.align or have_unknown(found):
            found = add_alignments(self.writer, batch, found)
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
        given = settings, ids, options.get("emit_bias", 0.0)
        if isinstance(self.module, NoisyChannel):
            return StreamGroup(NoisyChannelStreams(self.module, *given), self.codec, len(features))
        policy = POLICIES[options.get("policy", "beam")]
        streams = policy(TransducerStreams(cast(Transducer, self.module)), *given)
        return StreamGroup(streams, self.codec, len(features))

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

    def _log_probs(self, pairs: list[tuple[Source, str]]) -> list[float]:
        """What the network gives each pair of a batch."""
        batch = Batch.of_text(self.codec, *zip(*pairs, strict=True)).to(self.device)
        found: list[float] = log_prob(self.module, batch).tolist()
        return found

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
            log_probability=log_prob(self.module, batch).item(),
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


@errors_in_python()
def load(run: str | Path, *, device: str = "auto", threads: int | None = None, settings: Settings = ()) -> Model:
    """The trained model of a run, to predict, score, align, rank and evaluate.

    ``device`` is "auto", "cpu" or "cuda". ``threads`` sets PyTorch's number of threads for the whole process; None
    leaves it as it is. ``settings`` change how outputs are searched: ``{"search.length_normalisation": 0.7}``.
    """
    inputs.check_threads(threads)
    inputs.check_settings(settings, "search.beam", 20)
    folder = RunFolder.open(inputs.as_path("run", run))
    if threads is not None:
        torch.set_num_threads(threads)
    return load_opened(folder, device=device, settings=settings)


def load_opened(folder: RunFolder, *, device: str = "auto", settings: Settings = ()) -> Model:
    """The trained model of a run whose files are verified already."""
    recipe = change_search(folder.recipe(), settings)
    interface = KINDS[recipe.model.kind].interface()
    with torch.random.fork_rng(devices=[]):
        # initial weights are drawn before the trained ones replace them
        model = interface.open(folder, recipe, choose_device(device))
    model.shipped, model.metrics = folder.shipped, folder.metrics()
    return model
