"""Compression by deletion: which tokens of a source a shorter text keeps.

Published results count the source positions that are kept, since their models label tokens. A text that is written
freely has no such labels, so its positions are found again: those of a longest common subsequence with the source.
Where several are equally long, a reference takes the earliest positions, and an output those that it shares with the
reference, so that a repeated word is not an error. A token that is not in this subsequence counts as kept and wrong.

(F1 over the bags of tokens, whatever their positions, is ROUGE-1.)
"""

from collections.abc import Collection, Sequence


def shared_kept(output: Sequence[str], reference: Sequence[str], source: Sequence[str]) -> int:
    """The number of source positions that both an output and its reference keep."""
    of_reference = kept_positions(reference, source)
    return len(of_reference & kept_positions(output, source, of_reference))


def kept_positions(text: Sequence[str], source: Sequence[str], preferred: Collection[int] = ()) -> frozenset[int]:
    """The positions of a longest common subsequence of a text and its source.

    Of several, the one with most ``preferred`` positions, then the one that matches early. ``best[t][s]`` is the weight
    of the common subsequence of ``text[t:]`` and ``source[s:]``: a match is worth more than all preferences together.
    """
    weights = [len(source) + 1 + (position in preferred) for position in range(len(source))]
    best = [[0] * (len(source) + 1) for _ in range(len(text) + 1)]
    for t in reversed(range(len(text))):
        for s in reversed(range(len(source))):
            matched = best[t + 1][s + 1] + weights[s] if text[t] == source[s] else 0
            best[t][s] = max(matched, best[t + 1][s], best[t][s + 1])
    return _traced(text, source, weights, best)


def _traced(
    text: Sequence[str], source: Sequence[str], weights: Sequence[int], best: Sequence[Sequence[int]]
) -> frozenset[int]:
    """The positions on the path through ``best`` that matches as early as possible."""
    kept: list[int] = []
    t = s = 0
    while t < len(text) and s < len(source):
        if text[t] == source[s] and best[t][s] == best[t + 1][s + 1] + weights[s]:
            kept.append(s)
            t, s = t + 1, s + 1
        elif best[t][s] == best[t + 1][s]:
            t += 1
        else:
            s += 1
    return frozenset(kept)


def is_subsequence(text: Sequence[str], source: Sequence[str]) -> bool:
    """Whether a text is made from its source by deleting tokens."""
    remaining = iter(source)
    return all(token in remaining for token in text)
