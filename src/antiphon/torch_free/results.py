"""Results of a model, lists of candidates, and listed outputs; ``to_dict()`` of a result is what JSON can hold."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from antiphon.torch_free.codec import PairCodec
from antiphon.torch_free.hypothesis import Weights
from antiphon.torch_free.readers import Source
from antiphon.torch_free.vocab import END, SPECIALS

if TYPE_CHECKING:
    from antiphon.metrics.breakdown import Group
    from antiphon.metrics.output_metrics import Score

END_SYMBOL = SPECIALS[END]
_NEGLIGIBLE = 1e-6
"""A candidate that adds less probability than this is left out."""


@dataclass(frozen=True)
class Candidate:
    """One possible output.

    ``log_probability`` is ``log p(output | input)``, all alignments summed, and ``token_probabilities`` has the
    probability of every token and of the end, given what was written before. ``score`` is what candidates are ranked
    by: the log probability with length bias and normalisation. ``rows[j]`` is the position in ``source_symbols`` of the
    last symbol read when token ``j`` of ``tokens`` was written, on the most probable alignment. Where different tokens
    make the same text, the probability is that of all of them, and tokens and alignment are those of the best.

    For a noisy channel, ``score`` is the objective, ``parts`` are the feature scores (direct, channel, language model,
    length), and ``token_probabilities`` are the direct model's. It and suffix rules give outputs no probability.
    """

    text: str
    tokens: tuple[str, ...]
    score: float = 0.0
    log_probability: float | None = None
    token_probabilities: tuple[float, ...] = ()
    rows: tuple[int, ...] = ()
    parts: tuple[float, ...] = ()

    @property
    def probability(self) -> float | None:
        """``p(output | input)``."""
        return None if self.log_probability is None else math.exp(self.log_probability)

    def to_dict(self) -> dict[str, Any]:
        """Text, probability, score and tokens; for a noisy channel also the feature scores."""
        shown: dict[str, Any] = {
            "text": self.text,
            "probability": self.probability,
            "log_probability": self.log_probability,
            "score": self.score,
            "tokens": self.tokens,
            "token_probabilities": self.token_probabilities,
        }
        if self.parts:
            shown["parts"] = Weights(*self.parts)._asdict()
        return shown


SearchScore = Callable[[float, int], float]
"""``BeamSettings.search_score``: what an output is ranked by, given its log probability and its length."""


def merge_equal_texts(candidates: Sequence[Candidate], search_score: SearchScore) -> list[Candidate]:
    """The candidates, best first, each text once.

    Different tokens may make the same text, and so may a word of the vocabulary and its copy. Probabilities of equal
    texts are added, and tokens, alignment and parts are those of the best. Of a noisy channel, whose scores are not
    probabilities, the best is kept.
    """
    if len({each.text for each in candidates}) == len(candidates):
        return list(candidates)
    merged: dict[str, Candidate] = {}
    for each in sorted(candidates, key=lambda candidate: -candidate.score):
        best = merged.get(each.text)
        merged[each.text] = each if best is None else _add(best, each, search_score)
    return sorted(merged.values(), key=lambda candidate: -candidate.score)


def _add(best: Candidate, other: Candidate, search_score: SearchScore) -> Candidate:
    """The best candidate with the probability of both."""
    if best.parts or best.log_probability is None or other.log_probability is None:
        return best
    total = float(np.logaddexp(best.log_probability, other.log_probability))
    length = len(best.tokens) + 1
    gain = search_score(total, length) - search_score(best.log_probability, length)
    return replace(best, score=best.score + gain, log_probability=total)


def total_probability(candidates: Sequence[Candidate]) -> float:
    """The probability of all candidates together."""
    return sum(each.probability or 0.0 for each in candidates)


def covering(candidates: Sequence[Candidate], mass: float) -> list[Candidate]:
    """The most probable candidates whose probabilities sum to ``mass``; if the sum is lower, all that add to it."""
    by_probability = sorted(candidates, key=lambda each: -(each.log_probability or 0.0))
    before = [0.0, *accumulate(each.probability or 0.0 for each in by_probability)]
    needed = [each for each, covered in zip(by_probability, before, strict=False) if covered < mass]
    return [each for n, each in enumerate(needed) if not n or (each.probability or 0.0) > _NEGLIGIBLE]


@dataclass(frozen=True)
class Prediction:
    """The outputs for one input, best first; if there are none, ``reason`` says why."""

    source: str
    source_symbols: tuple[str, ...]
    nbest: tuple[Candidate, ...]
    unknown: tuple[str, ...] = ()
    """Source symbols and features that training never saw; empty if the outputs come from a lexicon."""
    reason: str | None = None
    origin: Literal["model", "lexicon"] = "model"
    """Where the outputs come from; outputs of a lexicon have no probabilities."""

    def to_dict(self) -> dict[str, Any]:
        """The object that ``antiphon predict --format jsonl`` writes."""
        best = self.nbest[0] if self.nbest else None
        return {
            "source": self.source,
            "text": self.text,
            "reason": self.reason,
            "origin": self.origin,
            "probability": best and best.probability,
            "log_probability": best and best.log_probability,
            "score": best and best.score,
            "alignment": self.alignment,
            "source_symbols": self.source_symbols,
            "unknown": self.unknown,
            "tokens": self.tokens,
            "nbest": [candidate.to_dict() for candidate in self.nbest],
        }

    def lines(self, number: int, *, as_json: bool = False, as_list: bool = False) -> Iterator[str]:
        """What is written for input ``number``: a JSON object, or a line for every output, or the best output."""
        if as_json:
            yield json.dumps(self.to_dict(), ensure_ascii=False)
        elif not as_list:
            yield self.text or ""
        for candidate in self.nbest if as_list and not as_json else ():
            probability = "" if candidate.probability is None else f"{candidate.probability:.6g}"
            yield f"{number}\t{probability}\t{candidate.text}"

    @property
    def text(self) -> str | None:
        """The best output."""
        return self.nbest[0].text if self.nbest else None

    @property
    def tokens(self) -> tuple[str, ...]:
        """The tokens of the best output."""
        return self.nbest[0].tokens if self.nbest else ()

    @property
    def score(self) -> float | None:
        """The score of the best output."""
        return self.nbest[0].score if self.nbest else None

    @property
    def probability(self) -> float | None:
        """The probability of the best output."""
        return self.nbest[0].probability if self.nbest else None

    @property
    def log_probability(self) -> float | None:
        """The log probability of the best output."""
        return self.nbest[0].log_probability if self.nbest else None

    @property
    def alignment(self) -> list[tuple[int, int]]:
        """Pairs of positions in input and output, both from 0, as ``align`` has them."""
        return _links(self.nbest[0].rows, self.source_symbols) if self.nbest else []

    @property
    def segments(self) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
        """The best output as segments: the symbols read, and the tokens written after them."""
        if not self.nbest:
            return []
        best, symbols = self.nbest[0], self.source_symbols[:-1]
        turns: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
        done = 0
        for row, written in groupby(zip(best.rows, best.tokens, strict=True), key=lambda pair: pair[0]):
            turns.append((symbols[done : row + 1], tuple(token for _, token in written)))
            done = row + 1
        return [*turns, (symbols[done:], ())] if symbols[done:] else turns


@dataclass(frozen=True)
class Alignment:
    """The most probable alignment of an input and an output, and posterior probabilities.

    For a transducer, ``posterior[i, j]`` is the probability that target symbol ``j`` is written when source symbol
    ``i`` is the last one read, and ``rows[j]`` is that ``i`` on the most probable alignment. For an attention model,
    ``posterior`` holds attention weights, ``rows`` their maxima among the words, and ``method`` is "attention". Both
    lists of symbols, and ``rows``, include the end symbol.
    """

    source_symbols: tuple[str, ...]
    target_symbols: tuple[str, ...]
    rows: tuple[int, ...]
    posterior: NDArray[np.float32]
    log_probability: float
    method: str = "alignment"

    def links(self) -> list[tuple[int, int]]:
        """Pairs of positions in source and target, both from 0, without end symbols."""
        return _links(self.rows[:-1], self.source_symbols)

    def to_dict(self) -> dict[str, Any]:
        """The object that ``antiphon align --format jsonl`` writes."""
        return {
            "source": self.source_symbols,
            "target": self.target_symbols,
            "alignment": self.links(),
            "rows": self.rows,
            "posterior": [[round(float(value), 6) for value in row] for row in self.posterior],
            "method": self.method,
            "log_probability": self.log_probability,
        }

    def pharaoh(self) -> str:
        """The links as ``i-j`` pairs from 0, as word aligners write them."""
        return " ".join(f"{row}-{column}" for row, column in self.links())


def _links(rows: Sequence[int], source_symbols: Sequence[str]) -> list[tuple[int, int]]:
    """Input and output positions of every token; one that was written at the end of the input has its last symbol."""
    last = max(0, len(source_symbols) - 2)
    return [(min(row, last), column) for column, row in enumerate(rows)]


@dataclass(frozen=True)
class Ranked:
    """A ranked sentence; ``index`` is its position among the sentences given, from 0.

    A matcher's ``score`` is the log odds that the sentence answers the question, and ``probability`` is the same
    as a probability; baselines have only a score. ``attention`` pairs words with their attention weights.
    """

    sentence: str
    index: int
    score: float
    probability: float | None = None
    attention: tuple[tuple[str, float], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Sentence, index, score and probability, and attention weights if there are any."""
        shown: dict[str, Any] = {
            "sentence": self.sentence,
            "index": self.index,
            "score": self.score,
            "probability": self.probability,
        }
        if self.attention:
            shown["attention"] = [[word, round(weight, 6)] for word, weight in self.attention]
        return shown


@dataclass(frozen=True)
class Evaluation:
    """All metrics of a test set, and the number of symbols that training never saw; ``groups`` if requested."""

    examples: int
    metrics: "dict[str, Score]"
    unknown_source: int
    unknown_target: int
    groups: "tuple[Group, ...]" = ()

    def to_dict(self) -> dict[str, Any]:
        """The object that ``antiphon evaluate --json`` prints."""
        metrics = {name: score.to_dict() for name, score in self.metrics.items()}
        unknown = {"source": self.unknown_source, "target": self.unknown_target}
        shown = {"examples": self.examples, "metrics": metrics, "unknown_symbols": unknown}
        return shown | {"groups": [group.to_dict() for group in self.groups]} if self.groups else shown


_Key = tuple[tuple[str, ...], tuple[str, ...]]


class Lexicon:
    """The listed outputs of each input, best first.

    Inputs are compared as the model reads them: normalised, as tokens, and with their features.
    """

    def __init__(self, codec: PairCodec, pairs: Iterable[tuple[Source, str]] = ()) -> None:
        self._codec = codec
        self._outputs: dict[_Key, list[str]] = {}
        for source, output in pairs:
            listed = self._outputs.setdefault(self._key(source), [])
            if output not in listed:
                listed.append(output)

    def __len__(self) -> int:
        return len(self._outputs)

    def __contains__(self, source: Source) -> bool:
        return bool(self.outputs(source))

    def outputs(self, source: Source) -> Sequence[str]:
        """The listed outputs of an input; none if it is not listed or blank."""
        return self._outputs.get(self._key(source), ()) if self._outputs and source.text.strip() else ()

    def _key(self, source: Source) -> _Key:
        return tuple(self._codec.source.tokens(source.text)), tuple(sorted(set(source.features)))
