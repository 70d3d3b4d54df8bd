"""What every trained model offers; what a kind of model cannot do, it refuses."""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Literal, TypedDict, Unpack

from antiphon.api.results import END_SYMBOL, Alignment, Candidate, Evaluation, Prediction, Ranked
from antiphon.build import fitting_measures
from antiphon.config import Recipe
from antiphon.data.codec import PairCodec
from antiphon.data.readers import Pair, Source
from antiphon.data.vocab import UNKNOWN
from antiphon.errors import RunError
from antiphon.metrics import Outputs, Score, perplexity, score_outputs
from antiphon.metrics.delay import Delays, score_delays
from antiphon.streaming import Stream, StreamGroup, Timed, run_streams

_LINES_AT_ONCE = 2048
SourceLike = str | tuple[str, Sequence[str]] | Source
"""A text, or a text with its features."""


class StreamOptions(TypedDict, total=False):
    """How a stream decides what to write.

    ``greedy`` writes as soon as writing is more probable than reading on; ``beam`` writes what all outputs share that
    are at most ``margin`` nats behind the best. A higher ``emit_bias`` and a lower ``margin`` write sooner.
    """

    policy: Literal["greedy", "beam"]
    emit_bias: float
    beam: int | None
    margin: float | None


class Model:
    """A trained model with everything needed to use it."""

    def __init__(self, recipe: Recipe, codec: PairCodec) -> None:
        self.recipe, self.codec = recipe, codec

    @property
    def kind(self) -> str:
        """The kind of model."""
        return self.recipe.model.kind

    @property
    def answers(self) -> bool:
        """Whether the model gives outputs for inputs, as all but language models do."""
        return True

    @property
    def gives_probabilities(self) -> bool:
        """Whether the model can score a given pair."""
        return True

    def predict(self, sources: Iterable[SourceLike], *, beam: int | None = None, nbest: int = 1) -> list[Prediction]:
        """The best outputs of every input, in the same order."""
        return list(self.predict_lazily(sources, beam=beam, nbest=nbest))

    def predict_lazily(
        self, sources: Iterable[SourceLike], *, beam: int | None = None, nbest: int = 1
    ) -> Generator[Prediction, None, None]:
        """Predictions one by one, while only some thousand inputs are held in memory."""
        self.check_answers()
        for window in windows(sources):
            found: dict[int, Prediction] = {}
            for numbers in self.plan(window):
                answers = self.answer([window[n] for n in numbers], beam=beam, nbest=nbest)
                found.update(zip(numbers, answers, strict=True))
            yield from self.complete(window, found)

    def check_answers(self) -> None:
        """Refuses a model that gives no outputs for inputs."""
        if not self.answers:
            raise self._cannot("predict", "a model that maps a source to a target")

    def plan(self, sources: Sequence[Source]) -> list[list[int]]:
        """Numbers of the inputs that are answered together; what has no text is in none."""
        return [[number for number, source in enumerate(sources) if source.text.strip()]]

    def answer(self, sources: Sequence[Source], *, beam: int | None = None, nbest: int = 1) -> list[Prediction]:
        """The best outputs of inputs with text in them, found together."""
        raise NotImplementedError

    def complete(self, sources: Sequence[Source], found: Mapping[int, Prediction]) -> Iterator[Prediction]:
        """A prediction for every input: what was found for its number, else an empty one."""
        for number, source in enumerate(sources):
            yield found.get(number) or self._prediction(source, ())

    def score(self, pairs: Iterable[tuple[SourceLike, str]]) -> list[float]:
        """``log p(target | source)`` of each pair, all alignments summed; a language model passes sources over."""
        if not self.gives_probabilities:
            raise self._cannot("score", "a neural model")
        scored = self._score([(as_source(source), target) for source, target in pairs])
        return [log_prob for log_prob, _ in scored]

    def align(self, pairs: Iterable[tuple[SourceLike, str]]) -> Iterator[Alignment]:
        """Best path and posteriors of each pair; of an attention model, its weights."""
        for source, target in pairs:
            yield self._align(as_source(source), target)

    def rank(self, question: str, sentences: Sequence[str], *, explain: bool = False) -> list[Ranked]:
        """The sentences from the likeliest answer to the least likely; with ``explain``, attention on their words."""
        raise self._cannot("rank", "a matcher or a baseline of answer selection")

    def evaluate(
        self, pairs: Sequence[Pair], *, beam: int | None = None, more_references: Sequence[Sequence[str]] = ()
    ) -> Evaluation:
        """Every metric of the task on pairs with text in them; ``more_references[n]`` adds references to pair ``n``."""
        given = [(Source(pair.source, pair.features), pair.target) for pair in pairs]
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
        predictions = self.predict([source for source, _ in given], beam=beam)
        return self._beside_references([each.nbest[0].tokens for each in predictions], given, more_references)

    def _beside_references(
        self,
        predicted: Sequence[Sequence[str]],
        given: Sequence[tuple[Source, str]],
        more_references: Sequence[Sequence[str]],
    ) -> Outputs:
        target = self.codec.target
        further = more_references or [()] * len(given)
        wanted = [[text, *others] for (_, text), others in zip(given, further, strict=True)]
        return Outputs(
            predicted=[target.tokeniser.join(tokens) for tokens in predicted],
            wanted=[[target.normalised(text) for text in texts] for texts in wanted],
            predicted_tokens=predicted,
            wanted_tokens=[[target.tokens(text) for text in texts] for texts in wanted],
        )

    def stream(self, *, features: Sequence[str] = (), **options: Unpack[StreamOptions]) -> Stream:
        """An input that arrives piece by piece, and is answered while it does; options as for ``streams``."""
        return Stream(self.streams([features], **options))

    def streams(self, features: Sequence[Sequence[str]], **options: Unpack[StreamOptions]) -> StreamGroup:
        """Streams that are advanced together, one for each list of features, which may be empty."""
        raise self._cannot("stream", "a transducer trained with model.encoder=unidirectional")

    def evaluate_online(
        self,
        pairs: Sequence[Pair],
        *,
        more_references: Sequence[Sequence[str]] = (),
        **options: Unpack[StreamOptions],
    ) -> Evaluation:
        """The metrics of the task, of outputs written while their inputs are read token by token, and their delay."""
        given = [(Source(pair.source, pair.features), pair.target) for pair in pairs]
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

    def _score(self, pairs: list[tuple[Source, str]]) -> list[tuple[float, int]]:
        raise NotImplementedError

    def _align(self, source: Source, target: str) -> Alignment:
        raise self._cannot("align", "a transducer or an attention model")

    def _prediction(self, source: Source, nbest: Sequence[Candidate]) -> Prediction:
        symbols = (*self.codec.source_symbols(source), END_SYMBOL)
        return Prediction(source.text, symbols, tuple(nbest) or (Candidate("", 0.0, (), ()),))


def windows(sources: Iterable[SourceLike]) -> Iterator[list[Source]]:
    """Some thousand inputs at a time."""
    remaining = iter(sources)
    while window := [as_source(source) for source in islice(remaining, _LINES_AT_ONCE)]:
        yield window


def as_source(source: SourceLike) -> Source:
    """The source that is meant."""
    if isinstance(source, str):
        return Source(source)
    text, features = source
    return Source(text, tuple(features))
