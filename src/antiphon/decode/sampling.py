"""Samples outputs from ``p(y | x)``.

Tokens are drawn one after another until the end symbol. Some probability belongs to no token, such as that of reading
past the end; a draw that falls there, or exceeds the length limit, is discarded and repeated. So samples follow
``p(y | x)`` exactly, given that there is an output.
"""

import zlib

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from antiphon.data.batch import Batch
from antiphon.models.left_to_right import LeftToRight, never_written, select
from antiphon.torch_free.hypothesis import BeamSettings, Hypothesis
from antiphon.torch_free.vocab import END, START

_ATTEMPTS = 100
"""Attempts at most; a model that loses nearly all of its probability gives fewer samples."""


@torch.inference_mode()
def sample_outputs(
    model: LeftToRight, batch: Batch, settings: BeamSettings, count: int, seed: int
) -> list[list[Hypothesis]]:
    """``count`` outputs of every source, in the order drawn; each source has its own random generator."""
    draw = Sampler(model, batch, settings, seed)
    found: list[list[Hypothesis]] = [[] for _ in batch.source]
    for _ in range(_ATTEMPTS):
        missing = [count - len(each) for each in found]
        if not any(missing):
            break
        for sentence, hypothesis in draw(missing):
            found[sentence].append(hypothesis)
    return found


class Sampler:
    """Draws outputs for a batch of sources."""

    def __init__(self, model: LeftToRight, batch: Batch, settings: BeamSettings, seed: int) -> None:
        self.model = model
        self.never_written = never_written(model)
        self.memory, self.first_state = model.start(batch)
        self.limits = settings.length_limits(batch.source_lengths)
        self.device = batch.source.device
        sources = zip(batch.source.tolist(), batch.source_lengths.tolist(), strict=True)
        self.random = [
            torch.Generator().manual_seed(zlib.crc32(repr((seed, ids[:length])).encode())) for ids, length in sources
        ]

    def __call__(self, missing: list[int]) -> list[tuple[int, Hypothesis]]:
        """One attempt at this many outputs of each source: those that succeeded, with their sentence."""
        sentence = torch.arange(len(missing)).repeat_interleave(torch.tensor(missing)).to(self.device)
        tokens, log_probs = torch.full_like(sentence, START)[:, None], torch.zeros(len(sentence), 0, device=self.device)
        state = select(self.first_state, sentence)
        found: list[tuple[int, Hypothesis]] = []
        while len(sentence):
            log_next, state = self.model.step(self.memory, state, tokens[:, -1], sentence)
            token, exists = self._draw(log_next, sentence)
            log_prob = log_next.double().gather(1, token[:, None])
            tokens, log_probs = torch.cat([tokens, token[:, None]], 1), torch.cat([log_probs, log_prob], 1)
            ended = (exists & (token == END)).nonzero()[:, 0]
            found += zip(sentence[ended].tolist(), map(_hypothesis, tokens[ended], log_probs[ended]), strict=True)
            goes_on = (exists & (token != END) & (tokens.shape[1] <= self.limits[sentence])).nonzero()[:, 0]
            sentence, tokens, log_probs = sentence[goes_on], tokens[goes_on], log_probs[goes_on]
            state = select(state, goes_on)
        return found

    def _draw(
        self, log_next: Float[Tensor, "N V"], sentence: Int[Tensor, " N"]
    ) -> tuple[Int[Tensor, " N"], Bool[Tensor, " N"]]:
        """The next token of each prefix, and whether there is one."""
        log_next[:, self.never_written] = float("-inf")
        below = log_next.double().exp().cumsum(1)
        counts = torch.bincount(sentence, minlength=len(self.random)).tolist()
        drawn = [torch.rand(n, generator=self.random[b], dtype=torch.float64) for b, n in enumerate(counts)]
        token = torch.searchsorted(below, torch.cat(drawn).to(self.device)[:, None], right=True)[:, 0]
        return token.clamp(max=below.shape[1] - 1), token < below.shape[1]


def _hypothesis(tokens: Int[Tensor, " n"], log_probs: Float[Tensor, " m"]) -> Hypothesis:
    total = log_probs.sum().item()
    return Hypothesis(tuple(tokens[1:].tolist()), total, total, tuple(log_probs.tolist()))
