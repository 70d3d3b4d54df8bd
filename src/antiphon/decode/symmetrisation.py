"""Word alignments of both directions combined into one (symmetrisation)."""

from collections.abc import Callable, Collection

from antiphon.metrics.gold_links import Link

_NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


def intersect(forward: Collection[Link], backward: Collection[Link]) -> frozenset[Link]:
    """The links of both directions."""
    return frozenset(forward) & frozenset(backward)


def unite(forward: Collection[Link], backward: Collection[Link]) -> frozenset[Link]:
    """The links of either direction."""
    return frozenset(forward) | frozenset(backward)


def grow_diagonally(forward: Collection[Link], backward: Collection[Link]) -> frozenset[Link]:
    """The intersection, grown by neighbours in the union (grow-diag of Koehn, Och and Marcu, 2003).

    A link of the union is added if it is beside a link that is in, diagonals included, and if its source word or its
    target word has no link yet; links are visited in the order of their words until none can be added.
    """
    union, grown = unite(forward, backward), set(intersect(forward, backward))
    sources, targets = {i for i, _ in grown}, {j for _, j in grown}
    before = -1
    while len(grown) > before:
        before = len(grown)
        for i, j in (link for link in sorted(union) if link in grown):
            for row, column in ((i + down, j + right) for down, right in _NEIGHBOURS):
                if (row, column) in union and not (row in sources and column in targets):
                    grown.add((row, column))
                    sources.add(row)
                    targets.add(column)
    return frozenset(grown)


COMBINATIONS: dict[str, Callable[[Collection[Link], Collection[Link]], frozenset[Link]]] = {
    "intersection": intersect,
    "union": unite,
    "grow-diag": grow_diagonally,
}
