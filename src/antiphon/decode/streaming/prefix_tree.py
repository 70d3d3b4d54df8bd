"""The tree of output prefixes that online beam search keeps, with the decoder state after each."""

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from antiphon.data.vocab import START
from antiphon.decode.streaming.online_decoder import select_factors, start_decoder, step_decoder
from antiphon.models.transducer import Transducer
from antiphon.nn.cell_factors import CellFactors, SideState


class PrefixTree:
    """The active outputs and their prefixes: a node for each, with the decoder's contribution after it.

    ``target`` and ``state`` may have room for more nodes than there are.
    """

    def __init__(self, model: Transducer, features: Int[Tensor, "N F"]) -> None:
        self.model, count = model, len(features)
        self.owner = list(range(count))
        self.parent, self.token, self.length = [-1] * count, [START] * count, [0] * count
        self.children: list[dict[int, int]] = [{} for _ in range(count)]
        self.target, self.state = start_decoder(model, features)

    def add_roots(self, owners: Sequence[int], target: CellFactors, state: SideState) -> list[int]:
        """New nodes without tokens, for these streams, with what ``start_decoder`` gives for each."""
        first = len(self.owner)
        for owner in owners:
            self._append(owner, -1, START, 0)
        self._extend(target, state)
        return list(range(first, len(self.owner)))

    def grow(self, parents: list[int], tokens: list[int]) -> list[int]:
        """The nodes after one more token each; missing ones are added."""
        grown = list(zip(parents, tokens, strict=True))
        new = [(parent, token) for parent, token in grown if token not in self.children[parent]]
        if new:
            self._add(*map(list, zip(*new, strict=True)))
        return [self.children[parent][token] for parent, token in grown]

    def _add(self, parents: list[int], tokens: list[int]) -> None:
        index, given = (torch.tensor(part, device=self.target.logits.device) for part in (parents, tokens))
        target, state = step_decoder(self.model, given, self.state.select(index))
        for parent, token in zip(parents, tokens, strict=True):
            self.children[parent][token] = len(self.owner)
            self._append(self.owner[parent], parent, token, self.length[parent] + 1)
        self._extend(target, state)

    def _append(self, owner: int, parent: int, token: int, length: int) -> None:
        self.children.append({})
        self.owner.append(owner)
        self.parent.append(parent)
        self.token.append(token)
        self.length.append(length)

    def _extend(self, target: CellFactors, state: SideState) -> None:
        """Stores what belongs to the last nodes; there is room for as many again whenever it has to grow."""
        stop, room = len(self.owner), len(self.target.logits)
        first = stop - len(target.logits)
        if stop > room:
            more = torch.zeros(max(stop - room, room), dtype=torch.long, device=self.target.logits.device)
            blank = select_factors(self.target, more)
            self.target = CellFactors(*(torch.cat(parts) for parts in zip(self.target, blank, strict=True)))
            self.state = self.state.join(self.state.select(more))
        for whole, part in zip(self.target, target, strict=True):
            whole[first:stop] = part
        self.state = self.state.replace(torch.arange(first, stop, device=self.target.logits.device), state)

    def path(self, node: int, above: int) -> list[int]:
        """The tokens below one node, down to another."""
        tokens = []
        while node != above:
            tokens.append(self.token[node])
            node = self.parent[node]
        return tokens[::-1]

    def keep(self, nodes: list[int]) -> dict[int, int]:
        """Drops all other nodes; the new index of each of these."""
        moved = {node: index for index, node in enumerate(nodes)}
        self.owner = [self.owner[node] for node in nodes]
        self.parent = [moved.get(self.parent[node], -1) for node in nodes]
        self.token = [self.token[node] for node in nodes]
        self.length = [self.length[node] for node in nodes]
        self.children = [
            {token: moved[child] for token, child in self.children[node].items() if child in moved} for node in nodes
        ]
        self.target = select_factors(self.target, nodes)
        self.state = self.state.select(torch.tensor(nodes, device=self.target.logits.device))
        return moved
