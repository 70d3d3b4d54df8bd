"""Writing while reading: what a unidirectional transducer writes before its input has ended.

Row ``i`` of the lattice holds all that is written between reading token ``i`` and reading the next one, so the rows
are taken one by one as tokens arrive, many streams at a time. With an ``emit_bias`` the log odds of writing are raised
or lowered in every cell, which trades delay for quality. Two policies decide what is written:

greedy   write the most probable token as long as writing is more probable than reading on;
beam     keep in every row the best outputs of each length, the sum over all alignments as the score of each; after
         each row, write what all outputs begin with that are at most ``commit_margin`` nats behind the best, and drop
         those that begin otherwise. Without a margin all active outputs count, and what is written is never
         regretted: at the end, the answer is the one that a search of the whole input finds.

After a row, the score of an output is that of leaving the row: the probability of having read so far and written
exactly this. Whatever is ``threshold`` nats behind the best is dropped, and no more than a hundred tokens are held
back, so the work of a row does not grow with what was read and written before.

Thesis: chapter 5, online generation.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from antiphon.data.vocab import END, START
from antiphon.decode.hypothesis import BeamSettings, never_written
from antiphon.lattice.moves import IMPOSSIBLE
from antiphon.models.transducer import Transducer
from antiphon.nn.cell_factors import CellFactors, SideState


class OnlineDecoder(ABC):
    """A number of inputs that arrive token by token, and their outputs; there is one for each row of ``features``."""

    writes_at_once = False

    def __init__(
        self, model: Transducer, features: Int[Tensor, "N F"], settings: BeamSettings, emit_bias: float = 0.0
    ) -> None:
        self.model, self.settings, self.emit_bias = model, settings, emit_bias
        self.device = model.source_logits.weight.device
        self.tokens_read = [0] * len(features)
        self._source = model.source_state(features.to(self.device))

    @torch.inference_mode()
    def read(self, streams: Sequence[int], tokens: Sequence[int]) -> list[list[int]]:
        """One more input token of some streams; what each of them has newly decided to write."""
        return self._write(list(streams), self._read(streams, tokens), is_last=False)

    @torch.inference_mode()
    def finish(self, streams: Sequence[int]) -> list[list[int]]:
        """The end of some inputs; the rest of what each of them writes, without the end symbol."""
        return self._write(list(streams), self._read(streams, [END] * len(streams)), is_last=True)

    def _read(self, streams: Sequence[int], tokens: Sequence[int]) -> CellFactors:
        """The input's part of the row that the tokens begin."""
        index = torch.tensor(list(streams), device=self.device)
        given = torch.tensor(list(tokens), device=self.device)
        side, state = self.model.encode_step(given, self._source.select(index))
        self._source.put(index, state)
        for stream in streams:
            self.tokens_read[stream] += 1
        return side

    @abstractmethod
    def _write(self, streams: list[int], row: CellFactors, *, is_last: bool) -> list[list[int]]:
        """What is written in a row."""

    def _longest_output(self, stream: int) -> int:
        """How many tokens, end symbol counted, the output may have by now."""
        return int(self.tokens_read[stream] * self.settings.max_length_ratio) + self.settings.max_length_extra

    def _log_moves(
        self, source: Float[Tensor, "N T"], target: Float[Tensor, "N T"], *, is_last: bool
    ) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
        """Log probabilities of writing and of reading on, with the bias."""
        log_odds = self.model.transition.log_odds(source, target) + self.emit_bias
        return self.model.split_odds(log_odds, torch.full_like(log_odds, is_last, dtype=torch.bool))

    def _log_token_probs(
        self, source: Float[Tensor, "N V"], target: Float[Tensor, "N V"], *, can_end: bool
    ) -> Float[Tensor, "N V"]:
        """Log probabilities of the tokens that may be written."""
        log_words = (source + target).log_softmax(1)
        log_words[:, [*never_written(self.model), *([] if can_end else [END])]] = IMPOSSIBLE
        return log_words


def start_decoder(model: Transducer, features: Int[Tensor, "N F"]) -> tuple[CellFactors, SideState]:
    """The output's part after the start symbol."""
    features = features.to(model.source_logits.weight.device)
    start = torch.full((len(features),), START, device=features.device)
    return step_decoder(model, start, model.target_state(features))


def step_decoder(model: Transducer, tokens: Tensor, state: SideState) -> tuple[CellFactors, SideState]:
    """The output's part after one more token of each output."""
    target, state = model.decode_prefix(tokens[:, None], state)
    return CellFactors(target.logits[:, 0], target.transition[:, 0]), state


def select_factors(side: CellFactors, positions: list[int]) -> CellFactors:
    """The factors of some of the cells."""
    return CellFactors(side.logits[positions], side.transition[positions])
