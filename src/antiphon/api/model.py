"""What every trained model offers; what a kind of model cannot do, it refuses."""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Unpack

import numpy as np
from torch import nn

from antiphon.api.diagnosis import Given, check_breakdowns, find_errors, find_suspicious, traits_of
from antiphon.api.inputs import (
    FeaturesLike,
    PairLike,
    PredictOptions,
    SourceLike,
    StreamOptions,
    as_features,
    as_pair,
    as_source,
    check_features,
    check_positive,
    check_stream_options,
    refuse_single,
)
from antiphon.api.lexicon import Lexicon, check_lexicon_features
from antiphon.api.results import END_SYMBOL, Alignment, Candidate, Evaluation, Prediction, Ranked
from antiphon.data.codec import PairCodec
from antiphon.data.corpus import plan_batches
from antiphon.data.readers import Pair, Source, keep_filled
from antiphon.decode.streaming.text_streams import Stream, StreamGroup, Timed, run_streams
from antiphon.exceptions import InputError, RunError
from antiphon.metrics import Outputs, Score, perplexity, score_outputs
from antiphon.metrics.breakdown import EVERY_BREAKDOWN, By, Group, break_down
from antiphon.metrics.delay import Delays, score_delays
from antiphon.recipe.schema import Recipe
from antiphon.report.error_report import ErrorReport, Suspect
from antiphon.runs.build import task_metrics
from antiphon.runs.kinds import KINDS
from antiphon.train.prepare import pairs_of

LexiconLike = Lexicon | str | Path | Iterable[PairLike]
"""A lexicon, a file of one, or its pairs."""
_ALLOWED = " (--allow-unknown-features, in Python allow_unknown_features=True, predicts all the same)"
_LINES_AT_ONCE = 2048
MAX_BATCH_CELLS = 100_000
"""Bound on inputs * longest input squared of a batch to predict, and on padded lattice cells of one to score."""


class Model:
    """A trained model with everything needed to use it."""

    def __init__(self, recipe: Recipe, codec: PairCodec, module: nn.Module | None = None) -> None:
        self.recipe, self.codec, self._module = recipe, codec, module

    @property
    def module(self) -> nn.Module:
        """The ``torch.nn.Module`` inside; kinds that only count have none and refuse."""
        if self._module is None:
            raise self._cannot("give a torch.nn.Module", "a neural kind")
        return self._module

    @property
    def kind(self) -> str:
        """The kind of model."""
        return self.recipe.model.kind

    @property
    def answers(self) -> bool:
        """Whether the model gives outputs for inputs, as all but language models do."""
        return self.kind not in KINDS or KINDS[self.kind].search is not None

    @property
    def reads_features(self) -> bool:
        """Whether the model was trained with features."""
        return bool(self.recipe.data.features)

    @property
    def gives_probabilities(self) -> bool:
        """Whether the model can score a given pair."""
        return True

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
    ) -> list[Prediction]:
        """The best outputs of every input, in the same order: at most ``nbest``, best first.

        With ``cover`` only as many as have that much probability together; with ``sample`` that many are drawn by
        ``seed`` instead. Without ``align`` they come without alignments, which is quicker. A feature that training
        never saw is refused unless ``allow_unknown_features``. Inputs listed in ``lexicon``, a file or pairs, are
        answered from there, with all their outputs.
        """
        options = PredictOptions(beam, nbest, cover, sample, seed, align, allow_unknown_features)
        listed = None if lexicon is None else self.lexicon(lexicon)
        return list(self.predict_lazily(sources, options, listed))

    def predict_lazily(
        self, sources: Iterable[SourceLike], options: PredictOptions | None = None, lexicon: Lexicon | None = None
    ) -> Generator[Prediction, None, None]:
        """Predictions one by one, while only some thousand inputs are held in memory."""
        self.check_answers()
        options = options or PredictOptions()
        lexicon = lexicon or Lexicon(self.codec)
        for window in self.windows(sources, options, lexicon):
            found: dict[int, Prediction] = {}
            for numbers in self.plan(window, lexicon):
                answers = self.answer([window[n] for n in numbers], options)
                found.update(zip(numbers, answers, strict=True))
            yield from self.complete(window, found, lexicon)

    def lexicon(self, lexicon: LexiconLike) -> Lexicon:
        """The lexicon of a TSV file that is read like training pairs, or of pairs."""
        if isinstance(lexicon, Lexicon):
            return lexicon
        if not isinstance(lexicon, str | Path):
            return Lexicon(self.codec, self._pairs(lexicon, "lexicon"))
        pairs, _ = keep_filled(pairs_of(self.recipe, Path(lexicon)), lexicon)
        if self.reads_features:
            check_lexicon_features(pairs, lexicon)
        return Lexicon(self.codec, self._pairs(pairs, "lexicon"))

    def windows(
        self, sources: Iterable[SourceLike], options: PredictOptions, lexicon: Lexicon
    ) -> Iterator[list[Source]]:
        """Some thousand inputs at a time."""
        refuse_single(sources, "predict")
        remaining = iter(sources)
        while some := list(islice(remaining, _LINES_AT_ONCE)):
            window = [as_source(source, reads_features=self.reads_features) for source in some]
            for source in window:
                self.check_source(source, f"input {source.text!r}", options, lexicon)
            yield window

    def check_source(self, source: Source, where: str, options: PredictOptions, lexicon: Lexicon) -> None:
        """Refuses an input that the model would have to answer and whose features it does not know."""
        if source.features and not options.allow_unknown_features and source not in lexicon:
            check_features(source.features, self.codec.known_features, where, _ALLOWED)

    def check_answers(self) -> None:
        """Refuses a model that gives no outputs for inputs."""
        if not self.answers:
            raise self._cannot("predict", "a model that maps a source to a target")

    def plan(self, sources: Sequence[Source], lexicon: Lexicon) -> list[list[int]]:
        """Indices of the inputs of each batch: those of like length go together; what is listed or empty is in none."""
        asked = [n for n, source in enumerate(sources) if source.text.strip() and source not in lexicon]
        answerable = np.array(asked, dtype=np.int64)
        lengths = np.array([len(self.codec.source.tokens(sources[n].text)) for n in answerable], dtype=np.int64)
        batch_size = self.recipe.search.batch_size
        batches = plan_batches(lengths, lengths, batch_size=batch_size, max_cells=MAX_BATCH_CELLS)
        return [answerable[places].tolist() for places in batches]

    def answer(self, sources: Sequence[Source], options: PredictOptions) -> list[Prediction]:
        """The best outputs of inputs with text in them, found together."""
        raise NotImplementedError

    def complete(
        self, sources: Sequence[Source], found: Mapping[int, Prediction], lexicon: Lexicon
    ) -> Iterator[Prediction]:
        """A prediction for every input: what was found for it or is listed, else one that says why there is none."""
        for number, source in enumerate(sources):
            yield found.get(number) or self._without_model(source, lexicon.outputs(source))

    def _without_model(self, source: Source, outputs: Sequence[str]) -> Prediction:
        """The prediction for an input that is listed in a lexicon, or empty."""
        if not outputs:
            return self._prediction(source, (), reason="the input is empty")
        listed = [Candidate(output, tuple(self.codec.target.tokens(output))) for output in outputs]
        return replace(self._prediction(source, listed), unknown=(), origin="lexicon")

    def score(self, pairs: Iterable[PairLike]) -> list[float]:
        """``log p(target | source)`` of each pair, all alignments summed; a language model passes sources over."""
        if not self.gives_probabilities:
            raise self._cannot("score", "a neural model")
        scored = self._score(self._pairs(pairs, "score"))
        return [log_prob for log_prob, _ in scored]

    def align(self, pairs: Iterable[PairLike]) -> Iterator[Alignment]:
        """Best path and posteriors of each pair; of an attention model, its weights."""
        refuse_single(pairs, "align")
        for pair in pairs:
            yield self._align(*as_pair(pair, reads_features=self.reads_features))

    def rank(self, question: str, sentences: Sequence[str], *, explain: bool = False) -> list[Ranked]:
        """The sentences from the likeliest answer to the least likely; with ``explain``, attention on their words."""
        raise self._cannot("rank", "a matcher or a baseline of answer selection")

    def errors(
        self,
        pairs: Iterable[PairLike],
        *,
        against: "Model | None" = None,
        by: Sequence[By] | None = None,
        most: int | None = None,
        beam: int | None = None,
    ) -> ErrorReport:
        """What the model gets wrong: mistakes in order, accuracy of groups, frequent edits.

        ``by`` chooses the groups among features, length and unseen; None is all that there are. At most ``most``
        mistakes are listed. ``against`` is a model that reads pairs alike: the report then says what one gets right
        and the other wrong.
        """
        check_positive("most", most)
        self.check_answers()
        given = self._located(pairs, "errors")
        by = self._breakdowns(by)
        return find_errors(self, given, against=against, by=by, most=most, beam=beam)

    def suspicious(
        self, pairs: Iterable[PairLike], *, most: int | None = None, beam: int | None = None
    ) -> list[Suspect]:
        """Pairs whose targets the model finds improbable, the least probable per token first; at most ``most``."""
        check_positive("most", most)
        return find_suspicious(self, self._located(pairs, "suspicious"), most=most, beam=beam)

    def _located(self, pairs: Iterable[PairLike], name: str) -> list[Given]:
        """The pairs with where they stand, if that is known."""
        refuse_single(pairs, name)
        return [
            Given(*as_pair(pair, reads_features=self.reads_features), pair.where if isinstance(pair, Pair) else "")
            for pair in pairs
        ]

    def _breakdowns(self, by: Sequence[By] | None) -> Sequence[By]:
        """The groups that are asked for, or all that the model's pairs have."""
        if by is None:
            return [each for each in EVERY_BREAKDOWN if each != "features" or self.reads_features]
        check_breakdowns(self, by)
        return by

    def evaluate(
        self,
        pairs: Iterable[PairLike],
        *,
        beam: int | None = None,
        more_references: Sequence[Sequence[str]] = (),
        by: Sequence[By] = (),
    ) -> Evaluation:
        """Every metric of the task on pairs with text in them; ``more_references[n]`` adds references to pair ``n``.

        ``by`` adds all metrics of outputs of every group: by features, length or unseen.
        """
        given = self._pairs(pairs, "evaluate")
        metrics: dict[str, Score] = {}
        groups: list[Group] = []
        if by:
            self.check_answers()
            check_breakdowns(self, by)
        if self.answers:
            measures = task_metrics(self.recipe.data)
            outputs = self.outputs(given, beam=beam, more_references=more_references)
            metrics |= score_outputs(outputs, measures)
            groups = break_down(outputs, traits_of(self, given), by, measures) if by else []
        if self.gives_probabilities:
            scored = self._score(given)
            metrics["perplexity"] = perplexity(sum(log_prob for log_prob, _ in scored), sum(n for _, n in scored))
        return self._evaluation(given, metrics, groups)

    def _evaluation(
        self, given: Sequence[tuple[Source, str]], metrics: dict[str, Score], groups: Sequence[Group] = ()
    ) -> Evaluation:
        return Evaluation(
            examples=len(given),
            metrics=metrics,
            unknown_source=sum(len(self.unseen_symbols(source)) for source, _ in given),
            unknown_target=sum(self.codec.target.count_unknown(wanted) for _, wanted in given),
            groups=tuple(groups),
        )

    def outputs(
        self,
        given: Sequence[tuple[Source, str]],
        *,
        beam: int | None = None,
        more_references: Sequence[Sequence[str]] = (),
    ) -> Outputs:
        """The model's outputs beside all their references."""
        sources = [source for source, _ in given]
        predictions = self.predict(sources, beam=beam, align=False, allow_unknown_features=True)
        return self._beside_references([each.tokens for each in predictions], given, more_references)

    def _beside_references(
        self,
        predicted: Sequence[Sequence[str]],
        given: Sequence[tuple[Source, str]],
        more_references: Sequence[Sequence[str]],
    ) -> Outputs:
        further = more_references or [()] * len(given)
        references = [[text, *others] for (_, text), others in zip(given, further, strict=True)]
        return Outputs.of(self.codec.target, predicted, references)

    def stream(self, *, features: FeaturesLike | None = None, **options: Unpack[StreamOptions]) -> Stream:
        """An input that arrives piece by piece, and is answered while it does; options as for ``streams``.

        A model that was trained with features wants them; ``()`` says that there are none.
        """
        if features is None and self.reads_features:
            raise InputError("stream: no features, but the run was trained with them, expected features='N;DAT;PL'")
        return Stream(self.streams([features or ()], **options))

    def streams(self, features: Iterable[FeaturesLike], **options: Unpack[StreamOptions]) -> StreamGroup:
        """Streams that are advanced together, one for each list of features, which may be empty."""
        refuse_single(features, "streams")
        check_stream_options(options)
        read = [as_features(each) for each in features]
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
        """The metrics of the task, of outputs written while their inputs are read token by token, and their delay."""
        given = self._pairs(pairs, "evaluate_online")
        sources = [self.codec.source.tokens(source.text) for source, _ in given]
        check_stream_options(options)
        timed: list[Timed] = []
        for start in range(0, len(given), self.recipe.search.batch_size):
            some = slice(start, start + self.recipe.search.batch_size)
            group = self._streams([source.features for source, _ in given[some]], options)
            timed += run_streams(group, sources[some])
        outputs = self._beside_references([each.tokens for each in timed], given, more_references)
        delays = [
            Delays(each.read, len(source), len(wanted[0]))
            for each, source, wanted in zip(timed, sources, outputs.wanted_tokens, strict=True)
        ]
        return self._evaluation(given, score_outputs(outputs, task_metrics(self.recipe.data)) | score_delays(delays))

    def target_tokens(self, given: Sequence[tuple[Source, str]]) -> int:
        """How many target tokens the pairs have, end symbols counted."""
        return sum(len(self.codec.target.tokens(target)) + 1 for _, target in given)

    def _cannot(self, verb: str, expected: str) -> RunError:
        return RunError(f"a run of kind {self.kind} cannot {verb}, expected {expected}")

    def _pairs(self, pairs: Iterable[PairLike], name: str) -> list[tuple[Source, str]]:
        refuse_single(pairs, name)
        return [as_pair(pair, reads_features=self.reads_features) for pair in pairs]

    def _streams(self, features: Sequence[Sequence[str]], options: StreamOptions) -> StreamGroup:
        raise self._cannot("stream", "a transducer trained with model.encoder=unidirectional")

    def _score(self, pairs: list[tuple[Source, str]]) -> list[tuple[float, int]]:
        raise NotImplementedError

    def _align(self, source: Source, target: str) -> Alignment:
        raise self._cannot("align", "a transducer or an attention model")

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
        """The symbols of an input that training never saw, features among them."""
        unknown = (token for token in self.codec.source.tokens(source.text) if token not in self.codec.source.vocab)
        return (*unknown, *(feature for feature in source.features if feature not in self.codec.features))
