"""Tiny encoders of random weights, written as published ones are laid out; nothing is downloaded."""

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertModel, DistilBertConfig, DistilBertModel

from tests.toy import KINDS_OF_WORDS

WORDS = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]"),
    *(word for words in KINDS_OF_WORDS.values() for word in words),
    *("which", *KINDS_OF_WORDS),
]


def tiny_encoder(architecture="bert", **settings):
    """An encoder with 8 hidden units; BERT without the layer that sentence vectors do not use."""
    torch.manual_seed(0)
    sizes = {"vocab_size": len(WORDS) + 4, "max_position_embeddings": 16, "pad_token_id": 0}
    if architecture == "distilbert":
        return DistilBertModel(DistilBertConfig(dim=8, n_layers=2, n_heads=2, hidden_dim=12, **sizes, **settings))
    sizes |= {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12}
    return BertModel(BertConfig(**sizes, **settings), add_pooling_layer=False)


def write_encoder(folder, architecture="bert", **settings):
    """The folder of an encoder with a tokeniser of whole words."""
    tiny_encoder(architecture, **settings).save_pretrained(folder)
    tokeniser = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokeniser.pre_tokenizer = pre_tokenizers.Whitespace()
    tokeniser.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    tokeniser.save(str(folder / "tokenizer.json"))


def as_older_weights(weights):
    """The weights of a matcher over BERT by the names that they had in format 2."""
    names = {
        "embeddings.word_embeddings": "words",
        "embeddings.position_embeddings": "positions",
        "embeddings.token_type_embeddings": "segments",
        "embeddings.LayerNorm": "norm",
        "attention.output.dense": "self_attn.out_proj",
        "attention.output.LayerNorm": "norm1",
        "intermediate.dense": "linear1",
        "output.dense": "linear2",
        "output.LayerNorm": "norm2",
    }
    older = {}
    for name, tensor in weights.items():
        _, found, rest = name.partition("sentence.encoder.")
        if not found:
            older[name] = tensor
            continue
        prefix = "sentence.bert."
        if rest.startswith("encoder.layer."):
            layer, _, rest = rest.removeprefix("encoder.layer.").partition(".")
            prefix += f"layers.layers.{layer}."
        module, _, kind = rest.rpartition(".")
        if module == "attention.self.query":
            parts = [weights[name.replace("query", part)] for part in ("query", "key", "value")]
            older[f"{prefix}self_attn.in_proj_{kind}"] = torch.cat(parts)
        elif not module.startswith("attention.self."):
            older[f"{prefix}{names[module]}.{kind}"] = tensor
    return older
