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
