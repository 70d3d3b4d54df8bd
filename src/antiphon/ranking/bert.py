"""A BERT encoder, as in most small sentence encoders, and the pooling of its states into one vector."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from antiphon.nn.recurrent import valid_positions
from antiphon.ranking.sentence_models import SentenceModel

_COSINE_SCALE = 10.0
"""Log odds between a cosine of 0 and one of 1 before training; a cosine of a half is even."""

_REMEMBERED = 200_000
"""Maximum number of texts whose vectors a frozen encoder caches."""


@dataclass(frozen=True)
class BertShape:
    """The sizes of a BERT encoder, by the names of its own ``config.json``."""

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    max_position_embeddings: int
    type_vocab_size: int = 2
    hidden_dropout_prob: float = 0.1
    layer_norm_eps: float = 1e-12


class Bert(nn.Module):
    """Token, position and segment vectors, then layers of self-attention, each followed by its norm."""

    def __init__(self, shape: BertShape) -> None:
        super().__init__()
        size, eps = shape.hidden_size, shape.layer_norm_eps
        self.words = nn.Embedding(shape.vocab_size, size)
        self.positions = nn.Embedding(shape.max_position_embeddings, size)
        self.segments = nn.Embedding(shape.type_vocab_size, size)
        self.norm = nn.LayerNorm(size, eps)
        self.dropout = nn.Dropout(shape.hidden_dropout_prob)
        layer = nn.TransformerEncoderLayer(
            size,
            shape.num_attention_heads,
            shape.intermediate_size,
            shape.hidden_dropout_prob,
            "gelu",
            eps,
            batch_first=True,
        )
        self.layers = nn.TransformerEncoder(layer, shape.num_hidden_layers, enable_nested_tensor=False)

    def forward(self, tokens: Int[Tensor, "B I"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B I H"]:
        """The state of each token."""
        indices = torch.arange(tokens.shape[1], device=tokens.device)
        vectors = self.words(tokens) + self.positions(indices) + self.segments.weight[0]
        padding = ~valid_positions(lengths, tokens.shape[1])
        states: Tensor = self.layers(self.dropout(self.norm(vectors)), src_key_padding_mask=padding)
        return states


class PretrainedSentence(SentenceModel):
    """The mean of a BERT encoder's states, of length 1; before training, the match is the cosine.

    A frozen encoder caches the vectors of texts, so training encodes every distinct one once, and clears the cache when
    its weights change.
    """

    initial_bias = -_COSINE_SCALE / 2

    def __init__(self, shape: BertShape, *, frozen: bool) -> None:
        super().__init__()
        self.output_size, self.frozen = shape.hidden_size, frozen
        self.bert = Bert(shape).requires_grad_(not frozen)
        self._known: dict[tuple[int, ...], Tensor] = {}
        self._known_of: tuple[tuple[int, int], ...] = ()

    def train(self, mode: bool = True) -> "PretrainedSentence":
        """Switches the mode; a frozen encoder never uses dropout."""
        super().train(mode)
        self.bert.train(mode and not self.frozen)
        return self

    def read(self, tokens: Int[Tensor, "B I"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B D"]:
        """The vector of each text."""
        return self._recall(tokens, lengths) if self.frozen else self._encode(tokens, lengths)

    def initial_match(self) -> Float[Tensor, "D D"]:
        """The identity, scaled: the match starts as the cosine of both vectors."""
        return _COSINE_SCALE * torch.eye(self.output_size)

    def _encode(self, tokens: Int[Tensor, "B I"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B D"]:
        valid = valid_positions(lengths, tokens.shape[1])[:, :, None]
        summed = (self.bert(tokens, lengths) * valid).sum(1)
        return nn.functional.normalize(summed, dim=1)

    @torch.no_grad()
    def _recall(self, tokens: Int[Tensor, "B I"], lengths: Int[Tensor, " B"]) -> Float[Tensor, "B D"]:
        if self._known_of != (current := self._weights_key()):
            self._known.clear()
            self._known_of = current
        texts = [tuple(ids[:length]) for ids, length in zip(tokens.tolist(), lengths.tolist(), strict=True)]
        new = [index for index, text in enumerate(texts) if text not in self._known]
        if len(self._known) + len(new) > _REMEMBERED:
            self._known.clear()
            new = list(range(len(texts)))
        if new:
            vectors = self._encode(tokens[new], lengths[new])
            self._known.update(zip((texts[index] for index in new), vectors, strict=True))
        return torch.stack([self._known[text] for text in texts])

    def _weights_key(self) -> tuple[tuple[int, int], ...]:
        """A version that changes whenever weights do: address and version of each tensor; no device sync."""
        return tuple((weight.data_ptr(), weight._version) for weight in self.bert.parameters())


def bert_weights(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of a published BERT encoder under the names that ``Bert`` gives them."""
    stored = {name.removeprefix("bert."): tensor for name, tensor in stored.items()}
    weights = {ours: stored[theirs] for ours, theirs in _NAMES_BELOW.items()}
    layers = 1 + max(int(name.split(".")[2]) for name in stored if name.startswith("encoder.layer."))
    for layer in range(layers):
        theirs, ours = f"encoder.layer.{layer}.", f"layers.layers.{layer}."
        for part in ("weight", "bias"):
            attention = [stored[f"{theirs}attention.self.{name}.{part}"] for name in ("query", "key", "value")]
            weights[f"{ours}self_attn.in_proj_{part}"] = torch.cat(attention)
            for our_name, their_name in _NAMES_IN_LAYER.items():
                weights[f"{ours}{our_name}.{part}"] = stored[f"{theirs}{their_name}.{part}"]
    return weights


_NAMES_BELOW = {
    "words.weight": "embeddings.word_embeddings.weight",
    "positions.weight": "embeddings.position_embeddings.weight",
    "segments.weight": "embeddings.token_type_embeddings.weight",
    "norm.weight": "embeddings.LayerNorm.weight",
    "norm.bias": "embeddings.LayerNorm.bias",
}
_NAMES_IN_LAYER = {
    "self_attn.out_proj": "attention.output.dense",
    "norm1": "attention.output.LayerNorm",
    "linear1": "intermediate.dense",
    "linear2": "output.dense",
    "norm2": "output.LayerNorm",
}
