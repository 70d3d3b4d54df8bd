"""What every trained model offers; what a kind of model cannot do, it refuses."""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Unpack

import numpy as np
from torch import nn

from antiphon.api.inputs import (
    FeaturesLike,
    PairLike,
    PredictOptions,
    SourceLike,
    StreamOptions,
    as_features,
    as_pair,
    as_source,
    check_stream_options,
    refuse_single,
)
from antiphon.api.results import END_SYMBOL, Alignment, Candidate, Evaluation, Prediction, Ranked
from antiphon.build import fitting_measures
from antiphon.config import Recipe
from antiphon.data.codec import PairCodec
from antiphon.data.corpus import plan_batches
from antiphon.data.readers import Source
from antiphon.data.vocab import UNKNOWN
from antiphon.errors import InputError, RunError
from antiphon.kinds import KINDS
from antiphon.metrics import Outputs, Score, perplexity, score_outputs
from antiphon.metrics.delay import Delays, score_delays
from antiphon.streaming import Stream, StreamGroup, Timed, run_streams

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
    ) -> list[Prediction]:
        """The best outputs of every input, in the same order: at most ``nbest``, best first.

        With ``cover`` only as many as have that much probability together; with ``sample`` that many are drawn by
        ``seed`` instead. Without ``align`` they come without alignments, which is quicker.
        """
        options = PredictOptions(beam, nbest, cover, sample, seed, align)
        return list(self.predict_lazily(sources, options))

    def predict_lazily(
        self, sources: Iterable[SourceLike], options: PredictOptions | None = None
    ) -> Generator[Prediction, None, None]:
        """Predictions one by one, while only some thousand inputs are held in memory."""
        self.check_answers()
        options = options or PredictOptions()
        for window in self.windows(sources):
            found: dict[int, Prediction] = {}
            for numbers in self.plan(window):
                answers = self.answer([window[n] for n in numbers], options)
                found.update(zip(numbers, answers, strict=True))
            yield from self.complete(window, found)

    def windows(self, sources: Iterable[SourceLike]) -> Iterator[list[Source]]:
        """Some thousand inputs at a time."""
        refuse_single(sources, "predict")
        remaining = iter(sources)
        while some := list(islice(remaining, _LINES_AT_ONCE)):
            yield [as_source(source, reads_features=self.reads_features) for source in some]

    def check_answers(self) -> None:
        """Refuses a model that gives no outputs for inputs."""
        if not self.answers:
            raise self._cannot("predict", "a model that maps a source to a target")

    def plan(self, sources: Sequence[Source]) -> list[list[int]]:
        """Indices of the inputs of each batch: those of like length go together, and what has no text is in none."""
        answerable = np.array([n for n, source in enumerate(sources) if source.text.strip()], dtype=np.int64)
        lengths = np.array([len(self.codec.encode_source(sources[n])) for n in answerable], dtype=np.int64)
        batch_size = self.recipe.search.batch_size
        batches = plan_batches(lengths, lengths, batch_size=batch_size, max_cells=MAX_BATCH_CELLS)
        return [answerable[places].tolist() for places in batches]

    def answer(self, sources: Sequence[Source], options: PredictOptions) -> list[Prediction]:
        """The best outputs of inputs with text in them, found together."""
        raise NotImplementedError

    def complete(self, sources: Sequence[Source], found: Mapping[int, Prediction]) -> Iterator[Prediction]:
        """A prediction for every input: what was found for it, else one that says why there is none."""
        for number, source in enumerate(sources):
            yield found.get(number) or self._prediction(source, (), reason="the input is empty")

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

    def evaluate(
        self, pairs: Iterable[PairLike], *, beam: int | None = None, more_references: Sequence[Sequence[str]] = ()
    ) -> Evaluation:
        """Every metric of the task on pairs with text in them; ``more_references[n]`` adds references to pair ``n``."""
        given = self._pairs(pairs, "evaluate")
        metrics: dict[str, Score] = {}
        if self.answers:
            outputs = self.outputs(given, beam=beam, more_references=more_references)
            metrics |= score_outputs(outputs, fitting_measures(self.recipe.data))
        if self.gives_probabilities:
            scored = self._score(given)
            metrics["perplexity"] = perplexity(sum(log_prob for log_prob, _ in scored), sum(n for _, n in scored))
        return self._evaluation(given, metrics)

    def _evaluation(self, given: Sequence[tuple[Source, str]], metrics: dict[str, Score]) -> Evaluation:
        return Evaluation(
            examples=len(given),
            metrics=metrics,
            unknown_source=sum(int((self.codec.encode_source(source) == UNKNOWN).sum()) for source, _ in given),
            unknown_target=sum(self.codec.target.unknown(wanted) for _, wanted in given),
        )

    def outputs(
        self,
        given: Sequence[tuple[Source, str]],
        *,
        beam: int | None = None,
        more_references: Sequence[Sequence[str]] = (),
    ) -> Outputs:
        """The model's outputs beside all their references."""
        predictions = self.predict([source for source, _ in given], beam=beam, align=False)
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
        return self._streams([as_features(each) for each in features], options)

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
        timed: list[Timed] = []
        for start in range(0, len(given), self.recipe.search.batch_size):
            some = slice(start, start + self.recipe.search.batch_size)
            group = self.streams([source.features for source, _ in given[some]], **options)
            timed += run_streams(group, sources[some])
        outputs = self._beside_references([each.tokens for each in timed], given, more_references)
        delays = [
            Delays(each.read, len(source), len(wanted[0]))
            for each, source, wanted in zip(timed, sources, outputs.wanted_tokens, strict=True)
        ]
        return self._evaluation(
            given, score_outputs(outputs, fitting_measures(self.recipe.data)) | score_delays(delays)
        )

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
        symbols = self.codec.source_symbols(source)
        unknown = tuple(symbol for symbol in symbols if symbol not in self.codec.source.vocab)
        return Prediction(source.text, (*symbols, END_SYMBOL), tuple(nbest), unknown, None if nbest else reason)
