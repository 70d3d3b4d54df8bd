"""Which words of a candidate a network looks at, to explain a ranking."""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from antiphon.ranking.cross_encoder import CrossEncoder
from antiphon.ranking.joint_batches import JointCorpus
from antiphon.ranking.matcher import Matcher
from antiphon.ranking.pretrained_encoder import WordPieces
from antiphon.ranking.question_batches import PairCorpus
from antiphon.ranking.question_files import Question
from antiphon.ranking.rankers import (
    BATCH_SIZE,
    EncodeQuestions,
    ExplainRanking,
    Scores,
    SplitWords,
    WordWeights,
    plan_match_batches,
)


def explain_by_attention(matcher: Matcher, encode: EncodeQuestions, words: SplitWords) -> ExplainRanking:
    """The attention weights of each question over the words of its candidates."""

    @torch.inference_mode()
    def explain(questions: Sequence[Question]) -> list[WordWeights]:
        weights = _rows(encode(questions), matcher.attention, matcher.device)
        return [
            tuple(zip(split, row.tolist(), strict=False))
            for split, row in zip(map(words, _sentences(questions)), weights, strict=True)
        ]

    return explain


def explain_by_gradient(matcher: CrossEncoder, pieces: WordPieces) -> ExplainRanking:
    """The share of each word in how much the pieces of a candidate change the log odds."""

    def explain(questions: Sequence[Question]) -> list[WordWeights]:
        rows = _rows(JointCorpus.of(questions, pieces.encode_pair), matcher.saliency, matcher.device)
        pairs = [(question.text, answer.text) for question in questions for answer in question.answers]
        return [_sum_by_word(row, pieces.piece_words(*pair), pair[1]) for row, pair in zip(rows, pairs, strict=True)]

    return explain


def _sum_by_word(weights: Scores, words: Sequence[int | None], sentence: str) -> WordWeights:
    """The words of a sentence with the sum of the weights of their pieces; all sum to 1."""
    split = sentence.split()
    sums = np.zeros(len(split))
    for word, weight in zip(words, weights, strict=False):
        if word is not None:
            sums[word] += weight
    return tuple(zip(split, (sums / (sums.sum() or 1.0)).tolist(), strict=True))


def _rows(corpus: PairCorpus, weigh: Callable[..., torch.Tensor], device: torch.device) -> list[Scores]:
    """The weights of the tokens of each pair."""
    weights: list[Scores] = [np.zeros(0)] * len(corpus)
    lengths = corpus.sentence_lengths
    for indices in plan_match_batches(corpus, BATCH_SIZE):
        found = weigh(corpus.batch(indices).to(device)).double().cpu().numpy()
        for index, row in zip(indices, found, strict=True):
            weights[index] = row[: lengths[index]]
    return weights


def _sentences(questions: Sequence[Question]) -> list[str]:
    return [answer.text for question in questions for answer in question.answers]
