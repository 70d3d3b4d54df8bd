"""The tree of output prefixes that online beam search keeps."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from antiphon.torch_free.vocab import START


class OutputTree(ABC):
    """The active outputs and their prefixes: a node for each, with what the decoder computed after it.

    Node ``n`` belongs to the stream ``owner[n]`` and has ``length[n]`` tokens: those of ``parent[n]``, -1 at a root,
    and ``token[n]``.
    """

    def __init__(self, count: int) -> None:
        self.owner = list(range(count))
        self.parent, self.token, self.length = [-1] * count, [START] * count, [0] * count
        self._children: dict[tuple[int, int], int] = {}

    def add_roots(self, owners: Sequence[int], target: Any, state: Any) -> list[int]:
        """New nodes without tokens, for these streams, with what the decoder gives for the start symbol of each."""
        first = len(self.owner)
        for owner in owners:
            self._append(owner, -1, START, 0)
        self._store(target, state)
        return list(range(first, len(self.owner)))

    def grow(self, parents: list[int], tokens: list[int]) -> list[int]:
        """The nodes after one more token each; missing ones are added."""
        grown = list(zip(parents, tokens, strict=True))
        new = [each for each in grown if each not in self._children]
        if new:
            self._add(*map(list, zip(*new, strict=True)))
        return [self._children[each] for each in grown]

    def _add(self, parents: list[int], tokens: list[int]) -> None:
        """Adds nodes after one more token of each parent."""
        target, state = self._step(parents, tokens)
        for parent, token in zip(parents, tokens, strict=True):
            self._children[parent, token] = len(self.owner)
            self._append(self.owner[parent], parent, token, self.length[parent] + 1)
        self._store(target, state)

    @abstractmethod
    def _step(self, parents: list[int], tokens: list[int]) -> tuple[Any, Any]:
        """The target's contribution and state after one more token of each parent."""

    @abstractmethod
    def _store(self, target: Any, state: Any) -> None:
        """Stores what belongs to the last nodes."""

    @abstractmethod
    def _keep_stored(self, nodes: list[int]) -> None:
        """Drops what is stored for all other nodes."""

    def _append(self, owner: int, parent: int, token: int, length: int) -> None:
        self.owner.append(owner)
        self.parent.append(parent)
        self.token.append(token)
        self.length.append(length)

    def path(self, node: int, above: int) -> list[int]:
        """The tokens of ``node`` after those of its ancestor ``above``."""
        tokens = []
        while node != above:
            tokens.append(self.token[node])
            node = self.parent[node]
        return tokens[::-1]

    def prefix(self, node: int, length: int) -> int:
        """The ancestor of a node that has this many tokens; the node itself if it has no more."""
        while self.length[node] > length:
            node = self.parent[node]
        return node

    def shared_prefix(self, nodes: list[int], above: int) -> int:
        """The longest prefix that all these nodes share; all of them descend from ``above``."""
        shared = nodes[0]
        for node in nodes:
            other = self.prefix(node, self.length[shared])
            shared = self.prefix(shared, self.length[other])
            while shared != other:
                shared, other = self.parent[shared], self.parent[other]
            if shared == above:
                break
        return shared

    def keep(self, nodes: list[int]) -> dict[int, int]:
        """Drops all other nodes; the new index of each of these."""
        moved = {node: index for index, node in enumerate(nodes)}
        self.owner = [self.owner[node] for node in nodes]
        self.parent = [moved.get(self.parent[node], -1) for node in nodes]
        self.token = [self.token[node] for node in nodes]
        self.length = [self.length[node] for node in nodes]
        self._children = {
            (parent, token): node
            for node, (parent, token) in enumerate(zip(self.parent, self.token, strict=True))
            if parent >= 0
        }
        self._keep_stored(nodes)
        return moved
