"""A trained model in Python: ``model = antiphon.load("runs/x")``."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from antiphon.build import build_beam, build_model, writes_phonemes
from antiphon.config import Recipe
from antiphon.data.batch import Batch
from antiphon.data.codec import PairCodec
from antiphon.data.corpus import plan_batches
from antiphon.data.readers import Pair, Source
from antiphon.data.vocab import SPECIALS, UNKNOWN
from antiphon.device import choose_device, choose_threads
from antiphon.errors import RunError
from antiphon.lattice import best_path, posteriors
from antiphon.metrics import Score, perplexity
from antiphon.metrics.task import Outputs, score_outputs
from antiphon.models.transducer import Transducer
from antiphon.run import RunFolder
from antiphon.search.hypothesis import Hypothesis
from antiphon.search.transducer_beam import search_transducer

_LINES_AT_ONCE = 2048
_SCORED_CELLS = 100_000
END_SYMBOL = SPECIALS[3]

SourceLike = str | tuple[str, Sequence[str]] | Source
"""A text, or a text with its features."""


@dataclass(frozen=True)
class Candidate:
    """One possible output.

    ``rows[j]`` is the place in ``source_symbols`` that had been read when token ``j`` of ``tokens`` was written;
    the last place is the end symbol. ``log_score`` is the log probability of output and path together.
    """

    text: str
    log_score: float
    tokens: tuple[str, ...]
    rows: tuple[int, ...]


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

    ``posterior[i, j]`` is the probability that target symbol ``j`` is written when source symbol ``i`` is the last
    one read. Both lists of symbols end in the end symbol, and so do ``rows``.
    """

    source_symbols: tuple[str, ...]
    target_symbols: tuple[str, ...]
    rows: tuple[int, ...]
    posterior: NDArray[np.float32]
    log_prob: float

    def links(self) -> list[tuple[int, int]]:
        """Pairs of source and target place without end symbols; what is written there belongs to the last token."""
        last = max(0, len(self.source_symbols) - 2)
        return [(min(row, last), column) for column, row in enumerate(self.rows[:-1])]

    def pharaoh(self) -> str:
        """The links as ``i-j`` pairs from 0, as word aligners write them."""
        return " ".join(f"{row}-{column}" for row, column in self.links())


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
    codec = folder.codec(recipe)
    module = build_model(recipe.model, len(codec.source.vocab), len(codec.target.vocab))
    try:
        module.load_state_dict(folder.load_weights())
    except RuntimeError as error:
        raise RunError(f"{folder.weights}: not the weights of this run's recipe and vocabularies") from error
    torch.set_num_threads(threads or choose_threads(recipe, len(codec.target.vocab)))
    return Model(recipe, codec, module.eval().to(choose_device(device)))


class Model:
    """A trained model with everything needed to use it; ``module`` is the ``torch.nn.Module`` inside."""

    def __init__(self, recipe: Recipe, codec: PairCodec, module: Transducer) -> None:
        self.recipe, self.codec, self.module = recipe, codec, module
        self.device = next(module.parameters()).device

    def predict(self, sources: Iterable[SourceLike], *, beam: int | None = None, nbest: int = 1) -> list[Prediction]:
        """The best outputs of every input, in the same order."""
        return list(self.predict_lazily(sources, beam=beam, nbest=nbest))

    def predict_lazily(
        self, sources: Iterable[SourceLike], *, beam: int | None = None, nbest: int = 1
    ) -> Iterator[Prediction]:
        """Predictions one by one, while only some thousand inputs are held in memory."""
        remaining = iter(sources)
        while window := [_as_source(source) for source in islice(remaining, _LINES_AT_ONCE)]:
            yield from self._predict_window(window, beam, nbest)

    def score(self, pairs: Iterable[tuple[SourceLike, str]]) -> list[float]:
        """``log p(target | source)`` of each pair, all alignments summed."""
        return [log_prob for log_prob, _ in self._score([(_as_source(source), target) for source, target in pairs])]

    def align(self, pairs: Iterable[tuple[SourceLike, str]]) -> Iterator[Alignment]:
        """Best path and posteriors of each pair."""
        for source, target in pairs:
            yield self._align(_as_source(source), target)

    def evaluate(self, pairs: Iterable[Pair], *, beam: int | None = None) -> Evaluation:
        """Every metric of the task on pairs with text in them."""
        given = [(Source(pair.source, pair.features), pair.target) for pair in pairs]
        target = self.codec.target
        predictions = self.predict([source for source, _ in given], beam=beam)
        scored = self._score(given)
        outputs = Outputs(
            predicted=[prediction.text for prediction in predictions],
            wanted=[target.normalised(wanted) for _, wanted in given],
            predicted_tokens=[prediction.nbest[0].tokens for prediction in predictions],
            wanted_tokens=[target.tokens(wanted) for _, wanted in given],
        )
        metrics = score_outputs(outputs, phonemes=writes_phonemes(self.recipe.data))
        metrics["perplexity"] = perplexity(sum(log_prob for log_prob, _ in scored), sum(n for _, n in scored))
        return Evaluation(
            examples=len(given),
            metrics=metrics,
            unknown_source=sum(int((self.codec.encode_source(source) == UNKNOWN).sum()) for source, _ in given),
            unknown_target=sum(target.unknown(wanted) for _, wanted in given),
        )

    def _predict_window(self, sources: list[Source], beam: int | None, nbest: int) -> Iterator[Prediction]:
        settings = build_beam(self.recipe.search, beam=beam, nbest=nbest)
        encoded = [self.codec.encode_source(source) for source in sources]
        found: dict[int, list[Hypothesis]] = {}
        lengths = np.array([len(ids) for ids in encoded])
        answerable = np.array([n for n, source in enumerate(sources) if source.text.strip()], dtype=np.int64)
        plan = plan_batches(
            lengths[answerable], lengths[answerable], batch_size=self.recipe.search.batch_size, max_cells=_SCORED_CELLS
        )
        for places in plan:
            numbers = answerable[places]
            batch = Batch.of([encoded[n] for n in numbers]).to(self.device)
            found.update(zip(numbers.tolist(), search_transducer(self.module, batch, settings), strict=True))
        for number, source in enumerate(sources):
            yield self._prediction(source, found.get(number, []))

    def _prediction(self, source: Source, hypotheses: list[Hypothesis]) -> Prediction:
        vocab, join = self.codec.target.vocab, self.codec.target.tokeniser.join
        nbest = []
        for hypothesis in hypotheses:
            tokens = tuple(vocab.decode(hypothesis.tokens))
            nbest.append(Candidate(join(tokens), hypothesis.log_score, tokens, hypothesis.rows[: len(tokens)]))
        symbols = (*self.codec.source_symbols(source), END_SYMBOL)
        return Prediction(source.text, symbols, tuple(nbest) or (Candidate("", 0.0, (), ()),))

    @torch.inference_mode()
    def _score(self, pairs: list[tuple[Source, str]]) -> list[tuple[float, int]]:
        """Log probability and target length, end symbol counted, of each pair."""
        sources = [self.codec.encode_source(source) for source, _ in pairs]
        targets = [self.codec.target.encode(target) for _, target in pairs]
        lengths = [np.array([len(ids) + 1 for ids in side]) for side in (sources, targets)]
        scores = [(0.0, 0)] * len(pairs)
        for numbers in plan_batches(*lengths, batch_size=self.recipe.search.batch_size, max_cells=_SCORED_CELLS):
            batch = Batch.of([sources[n] for n in numbers], [targets[n] for n in numbers]).to(self.device)
            log_probs = self.module.log_prob(batch).tolist()
            for number, log_prob in zip(numbers, log_probs, strict=True):
                scores[number] = (log_prob, len(targets[number]) + 1)
        return scores

    @torch.inference_mode()
    def _align(self, source: Source, target: str) -> Alignment:
        batch = Batch.of([self.codec.encode_source(source)], [self.codec.target.encode(target)]).to(self.device)
        lattice = (*self.module.moves(batch), batch.source_lengths, batch.target_lengths)
        return Alignment(
            source_symbols=(*self.codec.source_symbols(source), END_SYMBOL),
            target_symbols=(*self.codec.target.tokens(target), END_SYMBOL),
            rows=tuple(best_path(*lattice).rows[0].tolist()),
            posterior=posteriors(*lattice).write[0].float().cpu().numpy(),
            log_prob=self.module.log_prob(batch).item(),
        )


def _as_source(source: SourceLike) -> Source:
    if isinstance(source, str):
        return Source(source)
    text, features = source
    return Source(text, tuple(features))
