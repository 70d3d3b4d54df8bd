"""The outputs of a finished beam search, by following parents from their ends."""

from collections.abc import Sequence
from itertools import pairwise

from antiphon.torch_free.hypothesis import Hypothesis
from antiphon.torch_free.vocab import END

FINISHED_COLUMNS = ("score", "value", "log_prob", "step", "slot")
"""The numbers that a search keeps of a finished output, as one row; its features follow.

``score`` ranks finished outputs, ``value`` is what hypotheses were compared by. The output is the hypothesis that was
in ``slot`` after ``step`` tokens, extended by the end symbol.
"""
SCORE, VALUE, STEP, SLOT = map(FINISHED_COLUMNS.index, ("score", "value", "step", "slot"))
StepLists = tuple[list[list[int]], list[list[int]], list[list[float]]]
"""The record of a step: token, parent slot and log probability of the hypothesis in each slot of each sentence."""


def trace_outputs(
    finished: Sequence[Sequence[Sequence[float]]], steps: Sequence[StepLists], K: int
) -> list[list[Hypothesis]]:
    """The finished hypotheses of every sentence, each given as a row of ``FINISHED_COLUMNS``; ``K`` slots each."""
    answers: list[list[Hypothesis]] = []
    for b, outputs in enumerate(finished):
        answers.append([])
        for score, _, log_prob, step, slot, *features in outputs:
            if score > float("-inf"):
                tokens, log_probs = trace_path(steps[: int(step)], b, int(slot), K)
                each = tuple(after - before for before, after in pairwise([0.0, *log_probs, log_prob]))
                answers[b].append(Hypothesis((*tokens, END), score, log_prob, each, features=tuple(features)))
    return answers


def trace_path(steps: Sequence[StepLists], sentence: int, slot: int, K: int) -> tuple[list[int], list[float]]:
    """The tokens of a hypothesis, and its log probability after each."""
    tokens, log_probs = [], []
    for token, parent, log_prob in reversed(steps):
        rank = slot - sentence * K
        tokens.append(token[sentence][rank])
        log_probs.append(log_prob[sentence][rank])
        slot = parent[sentence][rank]
    return tokens[::-1], log_probs[::-1]
