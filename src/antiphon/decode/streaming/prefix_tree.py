"""The tree of output prefixes that online beam search keeps, with the decoder state after each."""

import torch
from jaxtyping import Int
from torch import Tensor

from antiphon.decode.streaming.online_decoder import select_factors, start_decoder, step_decoder
from antiphon.models.transducer import Transducer
from antiphon.nn.cell_factors import CellFactors, SideState
from antiphon.torch_free.output_tree import OutputTree


class PrefixTree(OutputTree):
    """The active outputs and their prefixes, with the decoder's contribution after each.

    ``target`` and ``state`` may have room for more nodes than there are.
    """

    def __init__(self, model: Transducer, features: Int[Tensor, "N F"]) -> None:
        super().__init__(len(features))
        self.model = model
        self.target, self.state = start_decoder(model, features)

    def _step(self, parents: list[int], tokens: list[int]) -> tuple[CellFactors, SideState]:
        index, given = (torch.tensor(part, device=self.target.logits.device) for part in (parents, tokens))
        return step_decoder(self.model, given, self.state.select(index))

    def _store(self, target: CellFactors, state: SideState) -> None:
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
        self.state = self.state.replace(slice(first, stop), state)

    def _keep_stored(self, nodes: list[int]) -> None:
        """Moves what is kept to the front, so that there is as much room as before."""
        index, kept = torch.tensor(nodes, device=self.target.logits.device), slice(0, len(nodes))
        for whole in self.target:
            whole[kept] = whole.index_select(0, index)
        self.state = self.state.replace(kept, self.state.select(index))
