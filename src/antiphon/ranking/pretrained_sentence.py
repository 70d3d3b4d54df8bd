"""A pretrained encoder as a sentence model: its states are pooled into one vector of length 1."""

from typing import Any, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from antiphon.nn.recurrent import valid_positions
from antiphon.ranking.pooling import Pooling, pool_states
from antiphon.ranking.sentence_models import SentenceModel

_COSINE_SCALE = 10.0
"""Log odds between a cosine of 0 and one of 1 before training; a cosine of a half is even."""
_MAX_CACHED = 200_000
"""Texts whose vectors a frozen encoder caches at most."""


def text_inputs(encoder: nn.Module, tokens: Int[Tensor, "B I"], valid: Bool[Tensor, "B I"]) -> dict[str, Tensor]:
    """What an encoder of ``transformers`` is called with."""
    padding = cast(Any, encoder.config).pad_token_id or 0
    return {"input_ids": tokens.masked_fill(~valid, padding), "attention_mask": valid.long()}


class PretrainedSentence(SentenceModel):
    """The pooled states of an encoder of ``transformers``; before training, the match is the cosine.

    A frozen encoder caches the vectors of texts, so that training encodes every distinct one once. The cache is cleared
    when weights change.
    """

    initial_bias = -_COSINE_SCALE / 2

    def __init__(self, encoder: nn.Module, pooling: Pooling, *, frozen: bool) -> None:
        super().__init__()
        self.output_size = cast(Any, encoder.config).hidden_size
        self.pooling, self.frozen = pooling, frozen
        self.encoder = encoder.requires_grad_(not frozen)
        self._cache: dict[tuple[int, ...], Tensor] = {}
        self._cache_key: tuple[tuple[int, int], ...] = ()

    def train(self, mode: bool = True) -> "PretrainedSentence":
        """Switches dropout, which a frozen encoder never uses."""
        super().train(mode)
        self.encoder.train(mode and not self.frozen)
        return self

    def read(self, tokens: Int[Tensor, "B I"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B D"]:
        """The vector of each text."""
        return self._cached(tokens, lengths) if self.frozen else self._encode(tokens, lengths)

    def initial_match(self) -> Float[Tensor, "D D"]:
        """The identity, scaled: the match starts as the cosine of both vectors."""
        return _COSINE_SCALE * torch.eye(self.output_size)

    def _encode(self, tokens: Int[Tensor, "B I"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B D"]:
        valid = valid_positions(lengths, tokens.shape[1])
        states: Tensor = self.encoder(**text_inputs(self.encoder, tokens, valid)).last_hidden_state
        return nn.functional.normalize(pool_states(states, valid, self.pooling), dim=1)

    @torch.no_grad()
    def _cached(self, tokens: Int[Tensor, "B I"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B D"]:
        if self._cache_key != (current := self._weights_key()):
            self._cache.clear()
            self._cache_key = current
        texts = [tuple(ids[:length]) for ids, length in zip(tokens.tolist(), lengths.tolist(), strict=True)]
        new = [index for index, text in enumerate(texts) if text not in self._cache]
        if len(self._cache) + len(new) > _MAX_CACHED:
            self._cache.clear()
            new = list(range(len(texts)))
        if new:
            vectors = self._encode(tokens[new], lengths[new])
            self._cache.update(zip((texts[index] for index in new), vectors, strict=True))
        return torch.stack([self._cache[text] for text in texts])

    def _weights_key(self) -> tuple[tuple[int, int], ...]:
        """Changes whenever weights do: the address of each tensor, and its version counter; no device sync."""
        return tuple((weight.data_ptr(), weight._version) for weight in self.encoder.parameters())
