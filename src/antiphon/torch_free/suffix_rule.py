"""Suffix rules: a baseline for character tasks that learns by counting.

The longest common prefix of a pair is removed; the rest is a rule that replaces one ending by another. The rule is
stored for every suffix of the source that contains its ending. An input is mapped by the most frequent rule of its
longest suffix that was seen with its tag::

    Wort -> Wörtern  under DAT;PL      teaches   ort -> örtern   for  ort, Wort
    Fremdwort        under DAT;PL      longest suffix known is  wort -> wörtern  (from other words on -wort)

Beside a network, outputs are a mixture of the network's and the answer of the rules:

    p(y | x) = (1 - w) p_network(y | x) + w [y is the rules' answer to x]

A mixture of whole outputs: it gives a probability for every output, prefix and token. From few pairs, rules learn more
than a network, so ``w`` is fitted on held-out pairs: with 0 the answers are the network's, with 1 the rules', and the
best weight is never worse on those pairs than either of them.

In a noisy channel the network is the direct model: the mixture is its score of an output, and the rules' answer is a
candidate that the other models score too.
"""

import math
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from antiphon.exceptions import RunError
from antiphon.torch_free.codec import PairCodec
from antiphon.torch_free.hypothesis import Hypothesis, Weights
from antiphon.torch_free.readers import Source, is_count, read_lines
from antiphon.torch_free.vocab import END, UNKNOWN

Tokens = tuple[str, ...]
Ids = tuple[int, ...]
Scorer = Callable[[Sequence[int], Sequence[Ids]], Sequence[Hypothesis]]
"""Makes hypotheses of the network of outputs for the sources with these indices."""
Outputs = list[list[Hypothesis]]
"""The outputs of every source of a batch."""
_SEPARATOR = "\x1f"
_COLUMNS = 5
_ESCAPES = {"\\": "\\\\", "\t": "\\t", _SEPARATOR: "\\u"}
_CHARACTERS = {escape: character for character, escape in _ESCAPES.items()}


class SuffixRules:
    """For each tag and suffix, the counts of the rules seen with them."""

    def __init__(self) -> None:
        self._counts: dict[tuple[Tokens, Tokens], Counter[tuple[Tokens, Tokens]]] = defaultdict(Counter)

    @classmethod
    def learn(cls, examples: Iterable[tuple[Sequence[str], Sequence[str], Sequence[str]]]) -> "SuffixRules":
        """The rules learnt from examples, each a source, a target and its features."""
        rules = cls()
        for source, target, features in examples:
            rules._count(tuple(source), tuple(target), _tag(features))
        return rules

    def apply(self, source: Sequence[str], features: Sequence[str] = ()) -> Tokens:
        """The output for a source; a copy of the source if no rule of its tag applies."""
        tokens, tag = tuple(source), _tag(features)
        for start in range(len(tokens) + 1):
            counted = self._counts.get((tag, tokens[start:]))
            if counted:
                ending, replacement = _most_frequent(counted)
                return tokens[: len(tokens) - len(ending)] + replacement
        return tokens

    def __len__(self) -> int:
        return len(self._counts)

    def save(self, path: Path) -> None:
        """Writes one rule per line: tag, suffix, ending, replacement, count."""
        with path.open("w", encoding="utf-8", newline="\n") as file:
            for (tag, suffix), counted in sorted(self._counts.items()):
                for (ending, replacement), count in sorted(counted.items()):
                    parts = (_SEPARATOR.join(map(_escaped, part)) for part in (tag, suffix, ending, replacement))
                    file.write("\t".join((*parts, str(count))) + "\n")

    @classmethod
    def load(cls, path: Path) -> "SuffixRules":
        """Reads what ``save`` wrote."""
        rules = cls()
        for line_number, line in enumerate(read_lines(path), 1):
            columns = line.split("\t")
            if len(columns) != _COLUMNS or not is_count(columns[-1]):
                raise RunError(
                    f"{path}:{line_number}: not a suffix rule, expected {_COLUMNS} columns ending in a count"
                )
            tag, suffix, ending, replacement = (_split(column) for column in columns[:-1])
            rules._counts[_tag(tag), suffix][ending, replacement] += int(columns[-1])
        return rules

    def _count(self, source: Tokens, target: Tokens, tag: Tokens) -> None:
        shared = _common_prefix(source, target)
        rule = source[shared:], target[shared:]
        for start in range(shared + 1):
            self._counts[tag, source[start:]][rule] += 1


def _tag(features: Sequence[str]) -> Tokens:
    """Features as a set: N;PL;DAT is N;DAT;PL."""
    return tuple(sorted(set(features)))


def _common_prefix(source: Tokens, target: Tokens) -> int:
    shared = 0
    for ours, theirs in zip(source, target, strict=False):
        if ours != theirs:
            break
        shared += 1
    return shared


def _most_frequent(counted: Counter[tuple[Tokens, Tokens]]) -> tuple[Tokens, Tokens]:
    return max(counted, key=lambda rule: (counted[rule], rule))


def _split(column: str) -> Tokens:
    return tuple(map(_unescaped, column.split(_SEPARATOR))) if column else ()


def _escaped(token: str) -> str:
    """A token with the separators of the file escaped."""
    return "".join(_ESCAPES.get(character, character) for character in token)


def _unescaped(text: str) -> str:
    """The inverse of ``_escaped``."""
    return re.sub(r"\\[\\tu]", lambda found: _CHARACTERS[found[0]], text)


class Rescoring(NamedTuple):
    """How a noisy channel ranks outputs: ``rescore`` gives those of its direct model the scores of all models."""

    rescore: Callable[[Outputs], Outputs]
    weights: Weights


@dataclass(frozen=True)
class RuleMixture:
    """Suffix rules with their weight beside a network, which may be one that copies unknown tokens."""

    rules: SuffixRules
    weight: float
    codec: PairCodec
    copies_unknown: bool

    def answers(self, sources: Iterable[Source]) -> list[Ids]:
        """The answers of the rules, as ``add_rules`` and ``draw_rules`` mix them with outputs of the network."""
        return [self._answer(source) for source in sources]

    def log_prob(self, log_prob: float, source: Source, target: str) -> float:
        """The log probability of a target in the mixture, given that of the network."""
        ids = (*self.codec.target.encode(target).tolist(), END)
        return mix_log_prob(log_prob, self.weight, is_answer=ids == self._answer(source))

    def _answer(self, source: Source) -> Ids:
        tokens = self.rules.apply(self.codec.source.tokens(source.text), source.features)
        return as_answer(self.codec.target.vocab.encode(tokens).tolist(), copies_unknown=self.copies_unknown)


class HeldOutAnswers(NamedTuple):
    """The answers of network and rules to a held-out pair: the network's log probability of each, and who is right."""

    log_prob: float
    rule_log_prob: float
    is_right: bool
    rule_is_right: bool

    @property
    def break_even(self) -> float:
        """The weight above which the rules' answer wins: ``d / (1 + d)`` with ``d = p(network's) - p(rules')``.

        ``p`` is the network's probability of an answer. If it prefers the rules' answer, which its search has missed,
        the weight is 0.
        """
        lead = math.exp(self.log_prob) - math.exp(self.rule_log_prob)
        return max(0.0, lead / (1 + lead))


def add_rules(
    score: Scorer,
    found: Sequence[list[Hypothesis]],
    answers: Sequence[Ids],
    weight: float,
    nbest: int,
    rescoring: Rescoring | None = None,
) -> Outputs:
    """The ``nbest`` best outputs of network and rules together; ``answers`` are those of the rules to each source.

    The mixture lowers the score of all outputs but the answer alike, so no other output is missed.
    """
    listed = _with_answers(score, found, answers, rescoring)
    weights = None if rescoring is None else rescoring.weights
    mixed = [
        [_mix(each, answer, weight, weights) for each in some] for some, answer in zip(listed, answers, strict=True)
    ]
    return [sorted(some, key=lambda each: -each.score)[:nbest] for some in mixed]


def draw_rules(
    score: Scorer,
    found: Sequence[list[Hypothesis]],
    answers: Sequence[Ids],
    weight: float,
    seed: int,
) -> list[list[Hypothesis]]:
    """Samples of the mixture: samples of the network, some replaced by the rules' answer with the given weight."""
    drawn = []
    for listed, own, answer in zip(_with_answers(score, found, answers), found, answers, strict=True):
        random = np.random.default_rng([seed, zlib.crc32(repr(answer).encode())]).random(len(own))
        by_rule = next((each for each in listed if each.tokens == answer), None)
        chosen = [by_rule if by_rule and value < weight else each for each, value in zip(own, random, strict=True)]
        drawn.append([_mix(each, answer, weight) for each in chosen])
    return drawn


def mix_log_prob(log_prob: float, weight: float, *, is_answer: bool) -> float:
    """The log probability of an output in the mixture, given whether it is the rules' answer."""
    from_network = math.log1p(-weight) + log_prob if weight < 1 else -math.inf
    return float(np.logaddexp(from_network, math.log(weight))) if is_answer and weight else from_network


def as_answer(tokens: Sequence[int], *, copies_unknown: bool) -> Ids:
    """The rules' tokens as an output; empty if they contain an unknown token that the network cannot write."""
    return () if UNKNOWN in tokens and not copies_unknown else (*tokens, END)


def held_out_answers(
    score: Scorer, found: Sequence[list[Hypothesis]], answers: Sequence[Ids], references: Sequence[Ids]
) -> list[HeldOutAnswers]:
    """The answers of network and rules to the held-out pairs of one batch."""
    compared = []
    scored = _with_answers(score, found, answers)
    for own, listed, answer, wanted in zip(found, scored, answers, references, strict=True):
        best = own[0] if own else None
        log_prob = next((each.log_prob for each in listed if each.tokens == answer), -math.inf)
        is_right = best is not None and best.tokens == wanted
        compared.append(HeldOutAnswers(best.log_prob if best else -math.inf, log_prob, is_right, answer == wanted))
    return compared


def fit_weight(answers: Iterable[HeldOutAnswers]) -> float:
    """The weight that gets most held-out pairs right, 0 if none gets more right than 0.

    Between two break-even points all weights do the same: the middle of the best interval is chosen.
    """
    pairs = sorted(answers, key=lambda each: each.break_even)
    ends = np.array([0.0, *(pair.break_even for pair in pairs), 1.0])
    gained = np.cumsum([0, *(int(pair.rule_is_right) - int(pair.is_right) for pair in pairs)])
    is_empty = np.diff(ends) <= 0
    gained = np.where(is_empty, gained.min() - 1, gained)
    best = int(gained.argmax())
    return 0.0 if gained[best] <= 0 else float(ends[best] + ends[best + 1]) / 2


def _with_answers(
    score: Scorer, found: Sequence[list[Hypothesis]], answers: Sequence[Ids], rescoring: Rescoring | None = None
) -> Outputs:
    """The hypotheses found and the rules' answers, scored by the network, and by all models of a noisy channel."""
    missing = [
        b
        for b, (hypotheses, answer) in enumerate(zip(found, answers, strict=True))
        if answer and all(each.tokens != answer for each in hypotheses)
    ]
    added: Outputs = [[] for _ in found]
    if missing:
        for b, scored in zip(missing, score(missing, [answers[b] for b in missing]), strict=True):
            added[b].append(scored)
        added = added if rescoring is None else rescoring.rescore(added)
    return [[*hypotheses, *more] for hypotheses, more in zip(found, added, strict=True)]


def _mix(hypothesis: Hypothesis, answer: Ids, weight: float, weights: Weights | None = None) -> Hypothesis:
    """A hypothesis of the network with its probabilities in the mixture; ``weights`` are those of a noisy channel."""
    before, written, mixed = 0.0, 0.0, []
    for length, log_prob in enumerate(hypothesis.token_log_probs, 1):
        written += log_prob
        agrees = hypothesis.tokens[:length] == answer[:length]
        prefix = mix_log_prob(written, weight, is_answer=agrees)
        mixed.append(prefix - before)
        before = prefix
    log_prob = mix_log_prob(hypothesis.log_prob, weight, is_answer=hypothesis.tokens == answer)
    features = (log_prob, *hypothesis.features[1:]) if hypothesis.features else ()
    score = hypothesis.score + log_prob - hypothesis.log_prob
    if weights is not None and not weights.only_direct:
        score = weights.weigh(features)
    return replace(hypothesis, score=score, log_prob=log_prob, token_log_probs=tuple(mixed), features=features)
