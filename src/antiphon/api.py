"""A trained model in Python: ``model = antiphon.load("runs/x")``."""

import math
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from antiphon.build import build_beam, build_text_steps, fitting_measures
from antiphon.combination import load_combination, source_vocab_of
from antiphon.config import Recipe
from antiphon.data.batch import Batch
from antiphon.data.codec import PairCodec, TextCodec, feature_symbol
from antiphon.data.corpus import plan_batches
from antiphon.data.questions import Answer, Judgements, Question, QuestionSet, judgements_of, select_questions
from antiphon.data.readers import Pair, Source
from antiphon.data.tokenise import Words
from antiphon.data.vocab import SPECIALS, UNKNOWN, Vocab
from antiphon.device import choose_device, choose_threads
from antiphon.errors import InputError, RecipeError, RunError
from antiphon.kinds import KINDS, RANKING_KINDS, log_prob
from antiphon.metrics import Outputs, Score, Shares, perplexity, rank_measures, score_outputs
from antiphon.metrics.delay import Delays, score_delays
from antiphon.models.noisy_channel import NoisyChannel, Weights
from antiphon.models.suffix_rule import SuffixRules
from antiphon.models.transducer import Transducer
from antiphon.ranker import load_ranker
from antiphon.run import RunFolder
from antiphon.search.hypothesis import BeamSettings, Hypothesis
from antiphon.search.noisy_channel import Conditioning, search_noisy_channel
from antiphon.search.online import BeamStreams, GreedyStreams, Streams
from antiphon.search.online_noisy_channel import NoisyChannelStream, NoisyChannelStreams
from antiphon.search.ranking import MatchRanker, rankings_of
from antiphon.streaming import Stream, StreamGroup, Timed, run_streams

_LINES_AT_ONCE = 2048
_SCORED_CELLS = 100_000
END_SYMBOL = SPECIALS[3]

STREAMS: dict[str, type[Streams]] = {"greedy": GreedyStreams, "beam": BeamStreams}
SourceLike = str | tuple[str, Sequence[str]] | Source
"""A text, or a text with its features."""
Attention = list[tuple[tuple[str, float], ...]]
"""For each candidate, its words and how much the question looks at each."""


class StreamOptions(TypedDict, total=False):
    """How a stream decides what to write.

    ``greedy`` writes as soon as writing is more probable than reading on; ``beam`` writes what all outputs share that
    are at most ``margin`` nats behind the best. A higher ``emit_bias`` and a lower ``margin`` write sooner.
    """

    policy: Literal["greedy", "beam"]
    emit_bias: float
    beam: int | None
    margin: float | None


@dataclass(frozen=True)
class Candidate:
    """One possible output.

    ``rows[j]`` is the place in ``source_symbols`` that had been read when token ``j`` of ``tokens`` was written;
    the last place is the end symbol. ``log_score`` is the log probability of output and path together. Of a noisy
    channel it is the objective, and ``parts`` are what it weighed: direct, channel, language model, length.
    """

    text: str
    log_score: float
    tokens: tuple[str, ...]
    rows: tuple[int, ...]
    parts: tuple[float, ...] = ()


@dataclass(frozen=True)
class Prediction:
    """The best output for one input, and further ones."""

    source: str
    source_symbols: tuple[str, ...]
    nbest: tuple[Candidate, ...]

    @property
    def text(self) -> str:
        """The best output."""
        return self.nbest[0].text

    @property
    def log_score(self) -> float:
        """The score of the best output."""
        return self.nbest[0].log_score

    @property
    def alignment(self) -> list[tuple[int, int]]:
        """Pairs of a place in ``source_symbols`` and a place in the output, both from 0."""
        return [(row, column) for column, row in enumerate(self.nbest[0].rows)]

    @property
    def segments(self) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
        """The best output as turns of reading and writing: symbols read, then the tokens written on them."""
        best, symbols = self.nbest[0], self.source_symbols[:-1]
        turns: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
        done = 0
        for row, written in groupby(zip(best.rows, best.tokens, strict=True), key=lambda pair: pair[0]):
            turns.append((symbols[done : row + 1], tuple(token for _, token in written)))
            done = row + 1
        return [*turns, (symbols[done:], ())] if symbols[done:] else turns


@dataclass(frozen=True)
class Alignment:
    """How an input and an output go together: the best path, and how probable each place is.

    Of a transducer, ``posterior[i, j]`` is the probability that target symbol ``j`` is written when source symbol ``i``
    is the last one read. Of an attention model it holds attention weights, ``rows`` their peaks, and ``method`` says
    "attention": no alignment. Both lists of symbols end in the end symbol, and so do ``rows``.
    """

    source_symbols: tuple[str, ...]
    target_symbols: tuple[str, ...]
    rows: tuple[int, ...]
    posterior: NDArray[np.float32]
    log_prob: float
    method: str = "alignment"

    def links(self) -> list[tuple[int, int]]:
        """Pairs of source and target place without end symbols; what is written there belongs to the last token."""
        last = max(0, len(self.source_symbols) - 2)
        return [(min(row, last), column) for column, row in enumerate(self.rows[:-1])]

    def pharaoh(self) -> str:
        """The links as ``i-j`` pairs from 0, as word aligners write them."""
        return " ".join(f"{row}-{column}" for row, column in self.links())


@dataclass(frozen=True)
class Ranked:
    """A sentence that was ranked, ``place`` being where it stood among those given, from 0.

    Of a matcher, ``score`` is the log odds that it answers the question, and ``probability`` says the same; of a
    baseline it is what the baseline counts. ``attention`` pairs its words with how much the question looks at each.
    """

    sentence: str
    place: int
    score: float
    probability: float | None = None
    attention: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Evaluation:
    """All metrics of a file of pairs, and how many of its symbols training never saw."""

    examples: int
    metrics: dict[str, Score]
    unknown_source: int
    unknown_target: int

    def as_json(self) -> dict[str, Any]:
        """What ``antiphon evaluate --json`` prints."""
        metrics = {name: {"value": score.value, "signature": score.signature} for name, score in self.metrics.items()}
        unknown = {"source": self.unknown_source, "target": self.unknown_target}
        return {"examples": self.examples, "metrics": metrics, "unknown_symbols": unknown}


def load(run: str | Path, *, device: str = "auto", threads: int | None = None) -> "Model":
    """The trained model of a run folder, ready to predict, score and align."""
    folder = RunFolder.open(Path(run))
    recipe = folder.recipe()
    if recipe.model.kind in RANKING_KINDS:
        torch.set_num_threads(threads or choose_threads(recipe, recipe.model.hidden_size))
        return RankingModel(recipe, folder, choose_device(device))
    codec = folder.codec(recipe)
    if recipe.model.kind == "suffix_rule":
        return RuleModel(recipe, codec, folder.load_rules())
    torch.set_num_threads(threads or choose_threads(recipe, len(codec.target.vocab)))
    if recipe.model.kind == "noisy_channel":
        combination = load_combination(folder, recipe)
        vocabs = source_vocab_of(folder, "channel"), source_vocab_of(folder, "lm")
        return NoisyChannelModel(recipe, codec, combination.to(choose_device(device)), *vocabs)
    return NeuralModel(recipe, codec, folder.load_module(recipe, codec).to(choose_device(device)))


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
        scored = self._score([(_as_source(source), target) for source, target in pairs])
        return [log_prob for log_prob, _ in scored]

    def align(self, pairs: Iterable[tuple[SourceLike, str]]) -> Iterator[Alignment]:
        """Best path and posteriors of each pair; of an attention model, its weights."""
        for source, target in pairs:
            yield self._align(_as_source(source), target)

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


class RuleModel(Model):
    """Suffix rules: one output for every input, and no probabilities."""

    def __init__(self, recipe: Recipe, codec: PairCodec, rules: SuffixRules) -> None:
        super().__init__(recipe, codec)
        self.rules = rules

    @property
    def gives_probabilities(self) -> bool:
        """Rules have none."""
        return False

    def answer(self, sources: Sequence[Source], *, beam: int | None = None, nbest: int = 1) -> list[Prediction]:
        """What the rules make of each input."""
        applied = [self.rules.apply(self.codec.source.tokens(source.text), source.features) for source in sources]
        join = self.codec.target.tokeniser.join
        return [
            self._prediction(source, [Candidate(join(tokens), 0.0, tokens, ())])
            for source, tokens in zip(sources, applied, strict=True)
        ]


class NeuralModel(Model):
    """A trained network; ``module`` is the ``torch.nn.Module`` inside."""

    def __init__(self, recipe: Recipe, codec: PairCodec, module: nn.Module) -> None:
        super().__init__(recipe, codec)
        self.module = module
        self.device = next(module.parameters()).device

    @property
    def answers(self) -> bool:
        """Whether there is a search for this kind."""
        return KINDS[self.kind].search is not None

    def plan(self, sources: Sequence[Source]) -> list[list[int]]:
        """Numbers of the inputs of each batch: those of like length go together."""
        answerable = np.array([n for n, source in enumerate(sources) if source.text.strip()], dtype=np.int64)
        lengths = np.array([len(self.codec.encode_source(sources[n])) for n in answerable], dtype=np.int64)
        batch_size = self.recipe.search.batch_size
        batches = plan_batches(lengths, lengths, batch_size=batch_size, max_cells=_SCORED_CELLS)
        return [answerable[places].tolist() for places in batches]

    def answer(self, sources: Sequence[Source], *, beam: int | None = None, nbest: int = 1) -> list[Prediction]:
        """The best outputs of one batch."""
        settings = build_beam(self.recipe.search, beam=beam, nbest=nbest)
        batch = Batch.of([self.codec.encode_source(source) for source in sources]).to(self.device)
        return [
            self._prediction(source, [self._candidate(hypothesis) for hypothesis in hypotheses])
            for source, hypotheses in zip(sources, self._search(sources, batch, settings), strict=True)
        ]

    def _search(self, sources: Sequence[Source], batch: Batch, settings: BeamSettings) -> list[list[Hypothesis]]:
        search = KINDS[self.kind].search
        assert search is not None
        return search(self.module, batch, settings)

    def streams(self, features: Sequence[Sequence[str]], **options: Unpack[StreamOptions]) -> StreamGroup:
        """Streams of a unidirectional transducer."""
        if not isinstance(self.module, Transducer):
            return super().streams(features)
        policy = STREAMS[options.get("policy", "beam")]
        settings = self._stream_settings(self.module, options)
        streams = policy(self.module, len(features), settings, options.get("emit_bias", 0.0))
        return StreamGroup(streams, self.codec, features)

    def _stream_settings(self, proposer: Transducer, options: StreamOptions) -> BeamSettings:
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
        text = self.codec.target.tokeniser.join(tokens)
        return Candidate(text, hypothesis.log_score, tokens, hypothesis.rows[: len(tokens)], hypothesis.parts)

    def _score(self, pairs: list[tuple[Source, str]]) -> list[tuple[float, int]]:
        """Log probability and target length, end symbol counted, of each pair."""
        sources = [self.codec.encode_source(source) for source, _ in pairs]
        targets = [self.codec.target.encode(target) for _, target in pairs]
        lengths = [np.array([len(ids) + 1 for ids in side]) for side in (sources, targets)]
        scores = [(0.0, 0)] * len(pairs)
        for numbers in plan_batches(*lengths, batch_size=self.recipe.search.batch_size, max_cells=_SCORED_CELLS):
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
            method=kind.links_are,
        )


class NoisyChannelModel(NeuralModel):
    """Direct model, channel model, language model and length bias, searched together."""

    def __init__(
        self, recipe: Recipe, codec: PairCodec, module: NoisyChannel, channel_vocab: Vocab, language_vocab: Vocab
    ) -> None:
        super().__init__(recipe, codec, module)
        self.channel_vocab, self.language_vocab = channel_vocab, language_vocab

    @property
    def answers(self) -> bool:
        """Always."""
        return True

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

    def _search(self, sources: Sequence[Source], batch: Batch, settings: BeamSettings) -> list[list[Hypothesis]]:
        return search_noisy_channel(cast(NoisyChannel, self.module), batch, settings, self._conditioning(sources))

    def _conditioning(self, sources: Sequence[Source]) -> Conditioning:
        """The features of each source, in the numbers of channel and language model."""
        symbols = [[feature_symbol(feature) for feature in source.features] for source in sources]
        # A language model of unpaired text without tags knows no features: it reads none.
        known = [[symbol for symbol in each if symbol in self.language_vocab] for each in symbols]
        return Conditioning(
            Batch.of([self.channel_vocab.encode(each) for each in symbols]),
            Batch.of([self.language_vocab.encode(each) for each in known]),
        )

    def streams(self, features: Sequence[Sequence[str]], **options: Unpack[StreamOptions]) -> StreamGroup:
        """Streams of a noisy channel whose direct model is unidirectional."""
        if options.get("policy", "beam") != "beam":
            raise RecipeError("a noisy channel has several outputs in the running, expected the policy beam")
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


class RankingModel(Model):
    """A matcher, or a baseline of it: it ranks given sentences and writes none."""

    def __init__(self, recipe: Recipe, folder: RunFolder, device: str) -> None:
        self.knows_words = folder.words.exists()
        words = TextCodec(
            build_text_steps(recipe.data), Words(), folder.vocab("words") if self.knows_words else Vocab(())
        )
        super().__init__(recipe, PairCodec(words, words))
        self.ranker = load_ranker(folder, recipe, device)

    @property
    def answers(self) -> bool:
        """It chooses among answers, but writes none."""
        return False

    @property
    def gives_probabilities(self) -> bool:
        """It has none of a target given a source."""
        return False

    def rank(self, question: str, sentences: Sequence[str], *, explain: bool = False) -> list[Ranked]:
        """The sentences from the likeliest answer to the least likely; equals stay in their order."""
        if not sentences:
            raise InputError("rank: no sentences, expected at least one candidate")
        asked = Question("", question, tuple(Answer(str(place), text) for place, text in enumerate(sentences)))
        (ranked,) = self.rank_questions([asked], explain=explain)
        return ranked

    def align(self, pairs: Iterable[tuple[SourceLike, str]]) -> Iterator[Alignment]:
        """Refuses: a ranking has no alignment."""
        raise self._cannot("align", "a transducer or an attention model")

    def evaluate(
        self, pairs: Sequence[Pair], *, beam: int | None = None, more_references: Sequence[Sequence[str]] = ()
    ) -> Evaluation:
        """Refuses: it is questions that are evaluated, by ``evaluate_questions``."""
        raise self._cannot("evaluate pairs", "evaluate_questions")

    def rank_questions(self, questions: Sequence[Question], *, explain: bool = False) -> list[list[Ranked]]:
        """The candidates of every question, the likeliest first."""
        nothing: list[Attention] = [[()] * len(question.answers) for question in questions]
        looked = self._attention(questions) if explain else nothing
        return [
            self._ranked(question, scores.tolist(), attention)
            for question, scores, attention in zip(questions, self.ranker.score(questions), looked, strict=True)
        ]

    def evaluate_questions(
        self, questions: Sequence[Question], *, which: QuestionSet = "all", judged: Judgements | None = None
    ) -> Evaluation:
        """MAP, MRR and P@1 over a set of labelled questions, or over all questions that ``judged`` judges."""
        asked = select_questions(questions, which)
        measured = self.measure_questions(questions, which=which, judged=judged)
        texts = (
            [question.text for question in asked],
            [answer.text for question in asked for answer in question.answers],
        )
        unknown = [sum(map(self.codec.source.unknown, side)) if self.knows_words else 0 for side in texts]
        return Evaluation(len(texts[1]), {name: shares.score() for name, shares in measured.items()}, *unknown)

    def measure_questions(
        self, questions: Sequence[Question], *, which: QuestionSet = "all", judged: Judgements | None = None
    ) -> dict[str, Shares]:
        """What every question adds to each measure."""
        asked = select_questions(questions, which)
        if not asked:
            raise InputError(f"--questions {which}: none of {len(questions)} questions belongs to it, expected some")
        about = which if judged is None else f"of qrels, {len(asked)} ranked: {which}"
        return rank_measures(judged or judgements_of(asked), rankings_of(self.ranker, asked), about)

    def unknown_questions(self, questions: Sequence[Question]) -> int:
        """How many questions have no word that the model knows."""
        if not self.knows_words:
            return 0
        source = self.codec.source
        return sum(source.unknown(question.text) == len(source.tokens(question.text)) for question in questions)

    def _ranked(self, question: Question, scores: list[float], attention: Attention) -> list[Ranked]:
        is_matcher = self.kind == "matcher"
        ranked = [
            Ranked(answer.text, place, score, 0.5 + 0.5 * math.tanh(score / 2) if is_matcher else None, looked)
            for place, (answer, score, looked) in enumerate(zip(question.answers, scores, attention, strict=True))
        ]
        return sorted(ranked, key=lambda candidate: -candidate.score)

    def _attention(self, questions: Sequence[Question]) -> list[Attention]:
        if not isinstance(self.ranker, MatchRanker) or not self.ranker.attends:
            raise self._cannot("explain", "a matcher with model.sentence = lstm_attention")
        weights = iter(self.ranker.attention(questions))
        words = self.codec.target.tokens
        return [
            [tuple(zip(words(answer.text), next(weights).tolist(), strict=False)) for answer in question.answers]
            for question in questions
        ]


def windows(sources: Iterable[SourceLike]) -> Iterator[list[Source]]:
    """Some thousand inputs at a time."""
    remaining = iter(sources)
    while window := [_as_source(source) for source in islice(remaining, _LINES_AT_ONCE)]:
        yield window


def _as_source(source: SourceLike) -> Source:
    if isinstance(source, str):
        return Source(source)
    text, features = source
    return Source(text, tuple(features))
