"""The interface of every trained model; a kind refuses what it cannot do."""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Unpack

import numpy as np
from torch import nn

from antiphon.api.error_analysis import Given, check_breakdowns, find_errors, find_suspicious
from antiphon.api.evaluation import evaluate_outputs, evaluation_of, score_task, with_references
from antiphon.api.inputs import (
    FeaturesLike,
    PairLike,
    PredictOptions,
    SourceLike,
    StreamOptions,
    as_features,
    as_pair,
    as_source,
    as_tokens,
    check_features,
    check_positive,
    check_several,
    check_stream_options,
)
from antiphon.api.lexicon import Lexicon, check_lexicon_features
from antiphon.api.results import END_SYMBOL, Alignment, Candidate, Evaluation, Prediction, Ranked
from antiphon.api.word_links import LinkOptions, WordLinker, WordLinks
from antiphon.data.codec import PairCodec
from antiphon.data.corpus import plan_batches
from antiphon.data.gold_links import GoldLinks
from antiphon.data.readers import Pair, Source, keep_filled
from antiphon.decode.streaming.text_streams import Stream, StreamGroup, Timed, run_streams
from antiphon.exceptions import InputError, RunError
from antiphon.metrics import Outputs
from antiphon.metrics.breakdown import EVERY_BREAKDOWN, By
from antiphon.metrics.delay import Delays, score_delays
from antiphon.ranking.question_files import Judgements, Question, QuestionSet
from antiphon.recipe.kinds import KINDS
from antiphon.recipe.schema import Recipe
from antiphon.report.error_report import ErrorReport, Suspect
from antiphon.runs.run_folder import RunFolder
from antiphon.training.data.prepare import pairs_of

LexiconLike = Lexicon | str | Path | Iterable[PairLike]
"""A lexicon, or its pairs, or a file of pairs."""
_ALLOWED = " (--allow-unknown-features, in Python allow_unknown_features=True, predicts anyway)"
_LINES_AT_ONCE = 2048
MAX_BATCH_CELLS = 100_000
"""Largest number of padded lattice cells of a batch; to predict, outputs count as long as inputs."""


class Model:
    """A trained model with everything needed to use it."""

    def __init__(self, recipe: Recipe, codec: PairCodec, module: nn.Module | None = None) -> None:
        self.recipe, self.codec, self._module = recipe, codec, module

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
    def kind(self) -> str:
        """The kind of model."""
        return self.recipe.model.kind

    @property
    def can_predict(self) -> bool:
        """Whether the model writes outputs for inputs, as all but language models and rankers do."""
        return KINDS[self.kind].predicts

    @property
    def reads_features(self) -> bool:
        """Whether the model was trained with features."""
        return bool(self.recipe.data.features)

    @property
    def can_score(self) -> bool:
        """Whether the model has ``log p(target | source)`` of a given pair."""
        return True

    @property
    def can_align(self) -> bool:
        """Whether the model has alignments or attention weights."""
        return KINDS[self.kind].explain is not None

    def predict(
        self,
        sources: Iterable[SourceLike],
        *,
        beam: int | None = None,
        nbest: int = 1,
        cover: float | None = None,
        sample: int | None = None,
        seed: int = 1,
        align: bool = True,
        allow_unknown_features: bool = False,
        lexicon: LexiconLike | None = None,
        prefix: Sequence[str] = (),
    ) -> list[Prediction]:
        """A prediction for every input, in the same order, with at most ``nbest`` outputs, best first.

        ``beam`` is the beam size; None takes that of the recipe. ``cover=0.9`` gives the fewest outputs whose
        probabilities add up to 0.9, at most ``nbest``. ``sample=5`` draws five outputs with the random seed ``seed``
        instead. ``align=False`` skips alignments, which is faster. A feature that training never saw is refused unless
        ``allow_unknown_features=True``. Inputs listed in ``lexicon`` (pairs, or a file) get all outputs listed there.
        Outputs begin with the tokens of ``prefix``.
        """
        options = PredictOptions(beam, nbest, cover, sample, seed, align, allow_unknown_features, as_tokens(prefix))
        listed = None if lexicon is None else self.lexicon(lexicon)
        return list(self.predict_lazily(sources, options, listed))

    def predict_lazily(
        self, sources: Iterable[SourceLike], options: PredictOptions | None = None, lexicon: Lexicon | None = None
    ) -> Generator[Prediction, None, None]:
        """Predictions one by one; only a few thousand inputs are in memory at a time."""
        self.check_can_predict()
        options = options or PredictOptions()
        lexicon = lexicon or Lexicon(self.codec)
        for window in self.windows(sources, options, lexicon):
            found: dict[int, Prediction] = {}
            for indices in self.plan(window, lexicon):
                predictions = self.predict_batch([window[index] for index in indices], options)
                found.update(zip(indices, predictions, strict=True))
            yield from self.fill_blank_inputs(window, found, lexicon)

    def lexicon(self, lexicon: LexiconLike) -> Lexicon:
        """The lexicon of pairs, or of a file that is read like training pairs."""
        if isinstance(lexicon, Lexicon):
            return lexicon
        if not isinstance(lexicon, str | Path):  # a string is the name of a file
            return Lexicon(self.codec, self._pairs(lexicon, "lexicon"))
        pairs, _ = keep_filled(pairs_of(self.recipe, Path(lexicon)), lexicon)
        if self.reads_features:
            check_lexicon_features(pairs, lexicon)
        return Lexicon(self.codec, self._pairs(pairs, "lexicon"))

    def windows(
        self, sources: Iterable[SourceLike], options: PredictOptions, lexicon: Lexicon
    ) -> Iterator[list[Source]]:
        """The checked inputs, a few thousand at a time."""
        check_several(sources, "predict")
        remaining = iter(sources)
        while some := list(islice(remaining, _LINES_AT_ONCE)):
            window = [as_source(source, reads_features=self.reads_features) for source in some]
            for source in window:
                self.check_source(source, f"input {source.text!r}", options, lexicon)
            yield window

    def check_source(self, source: Source, where: str, options: PredictOptions, lexicon: Lexicon) -> None:
        """Refuses an input with unknown features, unless these are allowed or a lexicon lists it."""
        if source.features and not options.allow_unknown_features and source not in lexicon:
            check_features(source.features, self.codec.known_features, where, _ALLOWED)

    def check_can_predict(self) -> None:
        """Refuses a model that writes no outputs."""
        if not self.can_predict:
            raise self._cannot("predict", "a model that maps a source to a target")

    def check_can_align(self) -> None:
        """Refuses a model without alignments or attention weights."""
        if not self.can_align:
            raise self._cannot("align", "a transducer or an attention model")

    def plan(self, sources: Sequence[Source], lexicon: Lexicon) -> list[list[int]]:
        """Indices of the inputs of each batch, sorted by length; blank and listed inputs are in none."""
        wanted = [n for n, source in enumerate(sources) if source.text.strip() and source not in lexicon]
        indices = np.array(wanted, dtype=np.int64)
        lengths = np.array([len(self.codec.source.tokens(sources[n].text)) for n in indices], dtype=np.int64)
        batch_size = self.recipe.search.batch_size
        batches = plan_batches(lengths, lengths, batch_size=batch_size, max_cells=MAX_BATCH_CELLS)
        return [indices[batch].tolist() for batch in batches]

    def predict_batch(self, sources: Sequence[Source], options: PredictOptions) -> list[Prediction]:
        """A prediction for each input of one batch; none of them is blank."""
        raise NotImplementedError

    def fill_blank_inputs(
        self, sources: Sequence[Source], found: Mapping[int, Prediction], lexicon: Lexicon
    ) -> Iterator[Prediction]:
        """A prediction for every input: the one found, or that of the lexicon, or an empty one that says why."""
        for index, source in enumerate(sources):
            yield found.get(index) or self._without_model(source, lexicon.outputs(source))

    def _without_model(self, source: Source, outputs: Sequence[str]) -> Prediction:
        """The prediction for an input that is blank or listed in a lexicon."""
        if not outputs:
            return self._prediction(source, (), reason="the input is empty")
        listed = [Candidate(output, tuple(self.codec.target.tokens(output))) for output in outputs]
        return replace(self._prediction(source, listed), unknown=(), origin="lexicon")

    def score(self, pairs: Iterable[PairLike]) -> list[float]:
        """``log p(target | source)`` of each pair, summed over all alignments; a language model ignores sources."""
        if not self.can_score:
            raise self._cannot("score", "a neural model")
        scored = self._score(self._pairs(pairs, "score"))
        return [log_prob for log_prob, _ in scored]

    def align(self, pairs: Iterable[PairLike]) -> Iterator[Alignment]:
        """The most probable alignment of each pair, with posteriors; for an attention model, its weights."""
        self.check_can_align()
        check_several(pairs, "align")
        return (self._align(*as_pair(pair, reads_features=self.reads_features)) for pair in pairs)

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
        pairs: Iterable[PairLike],
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
        check_positive("most", most)
        self.check_can_predict()
        given = self._located(pairs, "errors")
        by = self._breakdowns(by)
        return find_errors(self, given, against=against, by=by, most=most, beam=beam)

    def suspicious(
        self, pairs: Iterable[PairLike], *, most: int | None = None, beam: int | None = None
    ) -> list[Suspect]:
        """Pairs with improbable targets, the least probable per token first; at most ``most``."""
        check_positive("most", most)
        return find_suspicious(self, self._located(pairs, "suspicious"), most=most, beam=beam)

    def _located(self, pairs: Iterable[PairLike], name: str) -> list[Given]:
        """The pairs with their file and line, if known."""
        check_several(pairs, name)
        return [
            Given(*as_pair(pair, reads_features=self.reads_features), pair.where if isinstance(pair, Pair) else "")
            for pair in pairs
        ]

    def _breakdowns(self, by: Sequence[By] | None) -> Sequence[By]:
        """The requested groups, or all that apply to the model."""
        if by is None:
            return [each for each in EVERY_BREAKDOWN if each != "features" or self.reads_features]
        return check_breakdowns(self, by)

    def evaluate(
        self,
        pairs: Iterable[PairLike],
        *,
        beam: int | None = None,
        more_references: Sequence[Sequence[str]] = (),
        by: Sequence[By] = (),
    ) -> Evaluation:
        """All metrics of the task; ``more_references[n]`` are further references of pair ``n``.

        ``by`` adds the metrics of groups of pairs: by features, length or unseen.
        """
        given = self._pairs(pairs, "evaluate")
        if by:
            self.check_can_predict()
            check_breakdowns(self, by)
        outputs = self.outputs(given, beam=beam, more_references=more_references) if self.can_predict else None
        scored = self._score(given) if self.can_score else None
        return evaluate_outputs(self, given, outputs, scored, by)

    def word_links(self, pairs: Iterable[PairLike], **options: Unpack[LinkOptions]) -> Iterator[WordLinks]:
        """The links between the words of each pair.

        Options: ``threshold``, ``reverse``, ``combine`` (see ``LinkOptions``).
        """
        return WordLinker(self, **options).links(self._pairs(pairs, "word_links"))

    def evaluate_alignments(
        self, pairs: Iterable[PairLike], gold: Sequence[GoldLinks | str], **options: Unpack[LinkOptions]
    ) -> Evaluation:
        """Alignment error rate, precision and recall of ``word_links``; ``gold[n]`` are the links of pair ``n``.

        Links given as text count words from 0: ``i-j`` is a sure link and ``ipj`` a possible one.
        """
        given = self._pairs(pairs, "evaluate_alignments")
        return evaluation_of(self, given, WordLinker(self, **options).scores(given, gold))

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
        return with_references(self.codec, [each.tokens for each in predictions], given, more_references)

    def stream(self, *, features: FeaturesLike | None = None, **options: Unpack[StreamOptions]) -> Stream:
        """A stream: it takes one input piece by piece and returns output tokens as soon as they are decided.

        Options: ``policy``, ``emit_bias``, ``beam``, ``margin`` (see ``StreamOptions``). A model that reads features
        needs ``features``; ``()`` means none.
        """
        if features is None and self.reads_features:
            raise InputError("stream: no features, but the run was trained with them, expected features='N;DAT;PL'")
        return Stream(self.streams([features or ()], **options))

    def streams(self, features: Iterable[FeaturesLike], **options: Unpack[StreamOptions]) -> StreamGroup:
        """Streams that advance together as a batch, one for each list of features, which may be empty."""
        check_several(features, "streams")
        check_stream_options(options)
        read = [as_features(each, "stream") for each in features]
        for each in read:
            check_features(each, self.codec.known_features, "stream")
        return self._streams(read, options)

    def evaluate_online(
        self,
        pairs: Iterable[PairLike],
        *,
        more_references: Sequence[Sequence[str]] = (),
        **options: Unpack[StreamOptions],
    ) -> Evaluation:
        """The metrics and the delay of outputs that are written while inputs are read token by token."""
        given = self._pairs(pairs, "evaluate_online")
        sources = [self.codec.source.tokens(source.text) for source, _ in given]
        check_stream_options(options)
        timed: list[Timed] = []
        for start in range(0, len(given), self.recipe.search.batch_size):
            some = slice(start, start + self.recipe.search.batch_size)
            group = self._streams([source.features for source, _ in given[some]], options)
            timed += run_streams(group, sources[some])
        outputs = with_references(self.codec, [each.tokens for each in timed], given, more_references)
        delays = [
            Delays(each.read, len(source), len(wanted[0]))
            for each, source, wanted in zip(timed, sources, outputs.reference_tokens, strict=True)
        ]
        return evaluation_of(self, given, score_task(self, outputs) | score_delays(delays))

    def target_tokens(self, given: Sequence[tuple[Source, str]]) -> int:
        """The number of target tokens, end symbols included."""
        return sum(len(self.codec.target.tokens(target)) + 1 for _, target in given)

    def _cannot(self, verb: str, expected: str) -> RunError:
        return RunError(f"a run of kind {self.kind} cannot {verb}, expected {expected}")

    def _pairs(self, pairs: Iterable[PairLike], name: str) -> list[tuple[Source, str]]:
        check_several(pairs, name)
        return [as_pair(pair, reads_features=self.reads_features) for pair in pairs]

    def _streams(self, features: Sequence[Sequence[str]], options: StreamOptions) -> StreamGroup:
        raise self._cannot("stream", "a transducer trained with model.encoder=unidirectional")

    def _score(self, pairs: list[tuple[Source, str]]) -> list[tuple[float, int]]:
        raise NotImplementedError

    def _align(self, source: Source, target: str) -> Alignment:
        raise NotImplementedError

    def _prediction(
        self,
        source: Source,
        nbest: Sequence[Candidate],
        reason: str = "no output that reads the whole input was found within the length limit",
    ) -> Prediction:
        """The prediction for an input; ``reason`` is why there is no candidate, if there is none."""
        symbols = (*self.codec.source.tokens(source.text), END_SYMBOL)
        unknown = self.unseen_symbols(source)
        return Prediction(source.text, symbols, tuple(nbest), unknown, None if nbest else reason)

    def unseen_symbols(self, source: Source) -> tuple[str, ...]:
        """The symbols and features of an input that training never saw."""
        unknown = (token for token in self.codec.source.tokens(source.text) if token not in self.codec.source.vocab)
        return (*unknown, *(feature for feature in source.features if feature not in self.codec.features))
