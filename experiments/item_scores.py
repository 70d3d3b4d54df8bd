"""Scores of single items: accuracy by what of an item was in the training pairs, and a paired test over many sets.

Items of inflection are grouped as in SIGMORPHON 2022: whether lemma and tags (as a whole) were seen in training. The
test draws the items of every set with replacement, the same for both systems, a thousand times. As in ``antiphon
compare``, p is the share of samples whose difference of means over sets, moved to mean zero, is at least as far from
zero as the one observed.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from antiphon.metrics.output_metrics import nfc
from antiphon.torch_free.readers import Pair

GROUPS = {
    (True, True): "seen lemma and tags",
    (True, False): "seen lemma",
    (False, True): "seen tags",
    (False, False): "neither seen",
}
_SAMPLES = 1000


def mark_right(outputs: Sequence[str], items: Sequence[Pair]) -> NDArray[np.bool_]:
    """Whether each output is the target of its item."""
    return np.array([nfc(output) == nfc(item.target) for output, item in zip(outputs, items, strict=True)])


def seen_accuracies(train: Sequence[Pair], items: Sequence[Pair], right: NDArray[np.bool_]) -> dict[str, Any]:
    """Accuracy of all items and of each group that has any."""
    lemmas, tags = {nfc(pair.source) for pair in train}, {pair.features for pair in train}
    groups = np.array([GROUPS[nfc(item.source) in lemmas, item.features in tags] for item in items])
    chosen = {"accuracy": np.ones(len(items), bool)} | {name: groups == name for name in GROUPS.values()}
    return {
        name: {"value": float(100 * right[of].mean()), "signature": "exact match|nfc|percent", "items": int(of.sum())}
        for name, of in chosen.items()
        if of.any()
    }


def pack(right: NDArray[np.bool_]) -> str:
    """Marks as a number in hexadecimal, with a one in front."""
    return f"{int('1' + ''.join('01'[int(mark)] for mark in right), 2):x}"


def unpack(text: str) -> NDArray[np.bool_]:
    """The marks of a number."""
    return np.array([mark == "1" for mark in f"{int(text, 16):b}"[1:]])


def p_value(ours: Sequence[NDArray[np.bool_]], theirs: Sequence[NDArray[np.bool_]], seed: int = 1) -> float:
    """Two-sided p of the difference in mean accuracy over sets, given the marks of both systems for every set."""
    generator, differences, observed = np.random.default_rng(seed), np.zeros(_SAMPLES), 0.0
    for one, other in zip(ours, theirs, strict=True):
        change = one.astype(int) - other
        observed += change.mean()
        shares = [(change == value).mean() for value in (-1, 0, 1)]
        worse, _, better = generator.multinomial(len(change), shares, _SAMPLES).T
        differences += (better - worse) / len(change)
    as_extreme = int((np.abs(differences - differences.mean()) >= abs(observed)).sum())
    return (as_extreme + 1) / (_SAMPLES + 1)
