"""Weights of pretrained matchers in runs of format 2 and before, whose encoder was a BERT with names of its own."""

from collections.abc import Mapping

from torch import Tensor

_BEFORE, _NOW = "sentence.bert.", "sentence.encoder."
_LAYER = "layers.layers."
_NAMES = {
    "words": "embeddings.word_embeddings",
    "positions": "embeddings.position_embeddings",
    "segments": "embeddings.token_type_embeddings",
    "norm": "embeddings.LayerNorm",
    "self_attn.out_proj": "attention.output.dense",
    "norm1": "attention.output.LayerNorm",
    "linear1": "intermediate.dense",
    "linear2": "output.dense",
    "norm2": "output.LayerNorm",
}


def has_older_names(names: Mapping[str, object]) -> bool:
    """Whether tensors have the names of format 2."""
    return any(name.startswith(_BEFORE) for name in names)


def rename_bert_weights(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors by the names that ``transformers`` has for them; query, key and value were one tensor."""
    weights: dict[str, Tensor] = {}
    for name, tensor in stored.items():
        if name.startswith(_BEFORE):
            weights |= _renamed(name.removeprefix(_BEFORE), tensor)
        else:
            weights[name] = tensor
    return weights


def _renamed(name: str, tensor: Tensor) -> dict[str, Tensor]:
    prefix = _NOW
    if name.startswith(_LAYER):
        index, _, name = name.removeprefix(_LAYER).partition(".")
        prefix += f"encoder.layer.{index}."
    if "in_proj_" in name:
        kind = name.rpartition("_")[2]
        parts = zip(("query", "key", "value"), tensor.chunk(3), strict=True)
        return {f"{prefix}attention.self.{part}.{kind}": value for part, value in parts}
    module, _, kind = name.rpartition(".")
    return {f"{prefix}{_NAMES.get(module, module)}.{kind}": tensor}
