"""Predictions and streams of a model: checks of inputs, batches and lexicons, whatever computes the outputs.

Nothing here needs PyTorch: ``antiphon.lite`` has the same interface. A model has a search: ``CandidateSearch`` around a
network, or ``RuleSearch``, the answers of suffix rules.
"""

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Unpack

import numpy as np

from antiphon.exceptions import InputError, RunError
from antiphon.torch_free import inputs
from antiphon.torch_free.batch import plan_batches
from antiphon.torch_free.codec import PairCodec
from antiphon.torch_free.frames import Columns, predict_frame
from antiphon.torch_free.hypothesis import BeamSettings, Hypothesis
from antiphon.torch_free.inputs import FeaturesLike, PairLike, PairsLike, PredictOptions, SourceLike, StreamOptions
from antiphon.torch_free.readers import ColumnOrder, NumberedLines, Pair, Source, keep_filled, parse_source
from antiphon.torch_free.results import (
    END_SYMBOL,
    Candidate,
    Lexicon,
    Prediction,
    covering,
    merge_equal_texts,
    total_probability,
)
from antiphon.torch_free.streams import Stream, StreamGroup
from antiphon.torch_free.suffix_rule import RuleMixture, SuffixRules

LexiconLike = Lexicon | str | Path | Iterable[PairLike]
"""A lexicon, or its pairs, or a file of pairs."""
_ALLOW_HINT = " (--allow-unknown-features, in Python and REST allow_unknown_features, predicts anyway)"
LINES_AT_ONCE = 2048
"""Inputs that are in memory at a time."""
MAX_BATCH_CELLS = 100_000
"""Maximum number of padded lattice cells of a batch; to predict, outputs count as long as inputs."""
_MAX_CANDIDATES = 1000
"""A search is not repeated for more candidates than this."""


def cannot(kind: str, verb: str, expected: str) -> RunError:
    """The error of a kind of model that lacks something."""
    return RunError(f"a run of kind {kind} cannot {verb}, expected {expected}")


@dataclass(frozen=True)
class RuleSearch:
    """The outputs of suffix rules: one for every input, and no probabilities."""

    kind: str
    codec: PairCodec
    rules: SuffixRules

    def candidates(self, sources: Sequence[Source], options: PredictOptions) -> list[list[Candidate]]:
        """The output of the rules for each input."""
        if options.cover is not None or options.sample is not None or options.prefix:
            raise cannot(self.kind, "give probabilities", "a neural model for cover, sample and prefix")
        applied = [self.rules.apply(self.codec.source.tokens(source.text), source.features) for source in sources]
        return [[Candidate(self.codec.target.tokeniser.join(tokens), tokens)] for tokens in applied]


@dataclass(frozen=True)
class CandidateSearch:
    """The outputs of a network, no text twice; ``find`` gives hypotheses, or samples, for a batch of inputs.

    ``settings`` are those of the search, unless the options of a prediction have others.
    """

    codec: PairCodec
    settings: BeamSettings
    find: Callable[[Sequence[Source], PredictOptions], list[list[Hypothesis]]]

    def candidates(self, sources: Sequence[Source], options: PredictOptions) -> list[list[Candidate]]:
        """The outputs for each input of a batch, best first, or samples."""
        if options.sample:
            return self._found(sources, options)
        if options.cover is None:
            return self._distinct(sources, options)
        return self._covering(sources, options, options.cover)

    def _covering(self, sources: Sequence[Source], options: PredictOptions, mass: float) -> list[list[Candidate]]:
        """The fewest candidates of each source that have this probability together.

        Unless the beam is given, the search is repeated with one as wide as the list where it has found too little.
        """
        found = self._distinct(sources, options)
        short = [n for n, candidates in enumerate(found) if total_probability(candidates) < mass]
        if short and options.beam is None and options.max_outputs > self.settings.beam:
            wide = replace(options, beam=options.max_outputs)
            for n, candidates in zip(short, self._distinct([sources[n] for n in short], wide), strict=True):
                found[n] = candidates
        return [covering(candidates, mass) for candidates in found]

    def _distinct(self, sources: Sequence[Source], options: PredictOptions) -> list[list[Candidate]]:
        """The best candidates of each source with different texts.

        Where equal texts leave fewer than ``nbest``, the search is repeated for more.
        """
        found = self._found(sources, options)
        distinct = [merge_equal_texts(each, self.settings.search_score) for each in found]
        counts = zip(map(len, found), map(len, distinct), strict=True)
        short = [n for n, (all_, different) in enumerate(counts) if different < options.max_outputs <= all_]
        if short and options.max_outputs < _MAX_CANDIDATES:
            more = self._distinct([sources[n] for n in short], replace(options, nbest=2 * options.max_outputs))
            for n, candidates in zip(short, more, strict=True):
                distinct[n] = candidates[: options.max_outputs]
        return distinct

    def _found(self, sources: Sequence[Source], options: PredictOptions) -> list[list[Candidate]]:
        found, tokens = self.find(sources, options), (self.codec.source.tokens(source.text) for source in sources)
        return [[self._candidate(each, own) for each in some] for some, own in zip(found, tokens, strict=True)]

    def _candidate(self, hypothesis: Hypothesis, source: Sequence[str]) -> Candidate:
        tokens = tuple(self.codec.decode_copied(hypothesis.tokens, hypothesis.alignment, source))
        return Candidate(
            self.codec.target.tokeniser.join(tokens),
            tokens,
            score=hypothesis.score,
            log_probability=None if hypothesis.features else hypothesis.log_prob,
            token_probabilities=tuple(math.exp(min(0.0, log_prob)) for log_prob in hypothesis.token_log_probs),
            rows=hypothesis.alignment[: len(tokens)],
            parts=hypothesis.features,
        )


@dataclass(eq=False, repr=False)
class PredictionInterface:
    """A model that predicts and streams; what it is made of is left to its kind."""

    codec: PairCodec
    kind: str
    """The kind of model."""
    _: KW_ONLY
    can_predict: bool
    """Whether the model writes outputs for inputs, as all but language models and rankers do."""
    reads_features: bool
    """Whether the model was trained with features."""
    swaps_columns: bool
    """Whether the model maps the targets of its files to their sources."""
    column_order: ColumnOrder
    """The columns of files of pairs."""
    batch_size: int
    """Inputs decoded at once."""
    search: RuleSearch | CandidateSearch = field(init=False)
    mixture: RuleMixture | None = field(init=False, default=None)
    """Suffix rules beside the network."""
    can_score: ClassVar[bool] = True
    """Whether the model has ``log p(target | source)`` of a given pair."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: a {self.kind}{' that reads features' if self.reads_features else ''}>"

    def predict(
        self,
        sources: Iterable[SourceLike],
        *,
        beam: int | None = None,
        nbest: int | None = None,
        cover: float | None = None,
        sample: int | None = None,
        seed: int = 1,
        align: bool = True,
        allow_unknown_features: bool = False,
        lexicon: LexiconLike | None = None,
        prefix: Sequence[str] = (),
    ) -> list[Prediction]:
        """A prediction for every input, in the same order, with at most ``nbest`` outputs (1), best first.

        ``beam`` is the beam size; None takes that of the recipe. ``cover=0.9`` gives the fewest outputs whose
        probabilities add up to 0.9, at most ``nbest`` (100), and widens the beam where it has to. ``sample=5`` draws
        five outputs with the random seed ``seed`` instead. ``align=False`` skips alignments, which is faster. A feature
        that training never saw is refused unless ``allow_unknown_features=True``. Inputs listed in ``lexicon`` (pairs,
        or a file) get all outputs listed there. Outputs begin with the tokens of ``prefix``.
        """
        options = PredictOptions(
            beam, nbest, cover, sample, seed, align, allow_unknown_features, inputs.as_tokens(prefix)
        )
        listed = None if lexicon is None else self.lexicon(lexicon)
        return list(self.predict_lazily(sources, options, listed))

    def predict_frame(
        self, frame: Any, source: str = "source", features: str | None = None, prefix: str = "", **options: Any
    ) -> Any:
        """The frame of pandas or polars with the columns ``prediction`` and ``probability``, after ``prefix``.

        ``source`` and ``features`` name columns. Options are ``beam``, ``nbest``, ``cover``, ``sample``, ``seed`` and
        ``allow_unknown_features`` of ``predict``; where there can be several outputs, the columns ``nbest`` and
        ``nbest_probability`` hold lists.
        """
        return predict_frame(self, frame, Columns(source, features, prefix), PredictOptions(align=False, **options))

    def predict_lazily(
        self,
        sources: Iterable[SourceLike],
        options: PredictOptions | None = None,
        lexicon: Lexicon | None = None,
    ) -> Generator[Prediction, None, None]:
        """Predictions one by one; only a few thousand inputs are in memory at a time."""
        self.check_can_predict()
        options = options or PredictOptions()
        lexicon = lexicon or Lexicon(self.codec)
        inputs.check_several(sources, "predict")
        remaining = iter(sources)
        while some := list(islice(remaining, LINES_AT_ONCE)):
            window = [inputs.as_source(source, reads_features=self.reads_features) for source in some]
            for source in window:
                self.check_source(source, f"input {source.text!r}", options, lexicon)
            yield from self._predict_window(window, options, lexicon)

    def _predict_window(
        self, window: Sequence[Source], options: PredictOptions, lexicon: Lexicon
    ) -> Iterator[Prediction]:
        """A prediction for every input; batches are of similar length, and blank and listed inputs are in none."""
        wanted = [n for n, source in enumerate(window) if source.text.strip() and source not in lexicon]
        lengths = np.array([len(self.codec.source.tokens(window[n].text)) for n in wanted], dtype=np.int64)
        found: dict[int, Prediction] = {}
        for batch in plan_batches(lengths, lengths, batch_size=self.batch_size, max_cells=MAX_BATCH_CELLS):
            indices = [wanted[n] for n in batch]
            candidates = self.search.candidates([window[n] for n in indices], options)
            found |= {n: self._prediction(window[n], each) for n, each in zip(indices, candidates, strict=True)}
        for index, source in enumerate(window):
            yield found.get(index) or self._without_model(source, lexicon.outputs(source))

    def lexicon(self, lexicon: LexiconLike) -> Lexicon:
        """The lexicon of pairs, or of a file that is read like training pairs."""
        if isinstance(lexicon, Lexicon):
            return lexicon
        if not isinstance(lexicon, str | Path):  # a string is the name of a file
            return Lexicon(self.codec, self._pairs(lexicon, "lexicon"))
        pairs = keep_filled(self._file_pairs(Path(lexicon)), lexicon)
        return Lexicon(self.codec, self._pairs(pairs, "lexicon"))

    def read_sources(
        self, lines: NumberedLines, name: str, options: PredictOptions, lexicon: Lexicon
    ) -> Iterator[Source]:
        """The checked inputs on lines of the file ``name``."""
        for number, line in lines:
            where = f"{name}:{number}"
            source = parse_source(
                line, where, features=self.reads_features, swap=self.swaps_columns, columns=self.column_order
            )
            self.check_source(source, where, options, lexicon)
            yield source

    def check_source(self, source: Source, where: str, options: PredictOptions, lexicon: Lexicon) -> None:
        """Refuses an input with unknown features, unless these are allowed or a lexicon lists it."""
        if source.features and not options.allow_unknown_features and source not in lexicon:
            inputs.check_features(source.features, self.codec.known_features, where, _ALLOW_HINT)

    def check_can_predict(self) -> None:
        """Refuses a model that writes no outputs."""
        if not self.can_predict:
            raise self._cannot("predict", "a model that maps a source to a target")

    def _without_model(self, source: Source, outputs: Sequence[str]) -> Prediction:
        """The prediction for an input that is blank or listed in a lexicon."""
        if not outputs:
            return self._prediction(source, (), reason="the input is empty")
        listed = [Candidate(output, tuple(self.codec.target.tokens(output))) for output in outputs]
        return replace(self._prediction(source, listed), unknown=(), origin="lexicon")

    def score(self, pairs: PairsLike) -> list[float]:
        """``log p(target | source)`` of each pair, summed over all alignments; a language model ignores sources."""
        if not self.can_score:
            raise self._cannot("score", "a neural model")
        scored = self._score(self._pairs(pairs, "score"))
        return [log_prob for log_prob, _ in scored]

    def stream(self, *, features: FeaturesLike | None = None, **options: Unpack[StreamOptions]) -> Stream:
        """A stream: it takes one input piece by piece and returns output tokens as soon as they are decided.

        Options: ``policy``, ``emit_bias``, ``beam``, ``margin`` (see ``StreamOptions``). A model that reads features
        needs ``features``; ``()`` means none.
        """
        if features is None and self.reads_features:
            raise InputError("stream: no features, but the run was trained with them, expected features='N;DAT;PL'")
        return Stream(self.streams([() if features is None else features], **options))

    def streams(self, features: Iterable[FeaturesLike], **options: Unpack[StreamOptions]) -> StreamGroup:
        """Streams that advance together as a batch, one for each list of features, which may be empty."""
        inputs.check_several(features, "streams")
        inputs.check_stream_options(options)
        read = [inputs.as_features(each, "stream") for each in features]
        if not read:  # a batch without sequences would abort onnxruntime
            raise InputError("streams: none, expected the features of at least one, such as [()]")
        for each in read:
            inputs.check_features(each, self.codec.known_features, "stream")
        return self._streams(read, options)

    def _file_pairs(self, path: Path) -> Iterable[Pair]:
        """The pairs of a file, in the direction and with the columns that the model reads."""
        raise NotImplementedError

    def _score(self, pairs: list[tuple[Source, str]]) -> list[tuple[float, int]]:
        """Log probability and target length, end symbol included, of each pair."""
        sides = (
            (self.codec.source.tokens(source.text) for source, _ in pairs),
            (self.codec.target.tokens(target) for _, target in pairs),
        )
        lengths = [np.array([len(tokens) + 1 for tokens in side], dtype=np.int64) for side in sides]
        scores = [(0.0, 0)] * len(pairs)
        for indices in plan_batches(*lengths, batch_size=self.batch_size, max_cells=MAX_BATCH_CELLS):
            for index, value in zip(indices, self._log_probs([pairs[index] for index in indices]), strict=True):
                mixed = value if self.mixture is None else self.mixture.log_prob(value, *pairs[index])
                scores[index] = mixed, int(lengths[1][index])
        return scores

    def _log_probs(self, pairs: list[tuple[Source, str]]) -> list[float]:
        """What the network gives each pair of a batch."""
        raise NotImplementedError

    def _cannot(self, verb: str, expected: str) -> RunError:
        return cannot(self.kind, verb, expected)

    def _pairs(self, pairs: PairsLike, name: str) -> list[tuple[Source, str]]:
        return [inputs.as_pair(pair, reads_features=self.reads_features) for pair in self._given_pairs(pairs, name)]

    def _given_pairs(self, pairs: PairsLike, name: str) -> Iterable[PairLike]:
        """The pairs, or those of a file; its lines without a source or a target are skipped."""
        if isinstance(pairs, str | Path):
            path = inputs.as_path(name, pairs)
            if not path.exists():
                raise InputError(
                    f"{name}: {str(pairs)!r} is not a file, expected a file of pairs, or [('source', 'target')]"
                )
            return keep_filled(self._file_pairs(path), path, targets_only=not self.can_predict)
        inputs.check_several(pairs, name)
        return pairs

    def _streams(self, features: Sequence[Sequence[str]], options: StreamOptions) -> StreamGroup:
        raise self._cannot("stream", "a transducer trained with model.encoder=unidirectional")

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
