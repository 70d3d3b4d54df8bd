"""Tiny models with pronounced preferences, in double precision, and inputs for them."""

from itertools import product

import numpy as np
import torch

from antiphon.data.batch import Batch
from antiphon.models.recurrent import Attention, EncoderDecoder
from antiphon.models.transducer import Transducer
from antiphon.models.transformer import Transformer
from antiphon.torch_free.vocab import END, SPECIALS, UNKNOWN
from tests.networks import build_network, enlarge

MODELS = {
    "transducer": (Transducer, {}),
    "unidirectional": (Transducer, {"encoder": "unidirectional"}),
    "geometric": (Transducer, {"transition": "geometric"}),
    "forced": (Transducer, {"final_write": "forced", "layers": 2}),
    "copying": (Transducer, {"feature_size": 8, "copy_unknown": True}),
    "context": (Transducer, {"feature_size": 8, "context": "attention"}),
    "tied_output": (Transducer, {"tie_output": True, "embedding_size": 6, "context": "attention"}),
    "attention": (Attention, {}),
    "encoder_decoder": (EncoderDecoder, {}),
    "transformer": (Transformer, {"feature_size": 8, "layers": 2}),
    "tied_transformer": (Transformer, {"tie_output": True}),
}
ALIGNED = [name for name, (kind, _) in MODELS.items() if kind is Transducer]


def small_model(name="transducer", seed=0, target_size=6, scale=4.0, **more):
    kind, settings = MODELS[name]
    settings = settings | more
    torch.manual_seed(seed)
    model = build_network(kind, 9, target_size, **settings).double()
    return enlarge(model, scale).eval()


def sources(*lengths, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(4, 9, (length,), generator=generator).numpy() for length in lengths]


def features_of(source):
    """Features that go with a source: none, one or two."""
    total = int(np.sum(source))
    return np.unique([4 + total % 4, 4 + total // 4 % 4])[: total % 3].astype(np.int32)


def batch_of(inputs):
    """Inputs with their features."""
    return Batch.of(inputs, None, [features_of(source) for source in inputs])


def every_target(target_size, longest, *, copies=False):
    """All outputs of at most ``longest`` tokens, end symbol counted, as tuples without it."""
    tokens = [UNKNOWN] * copies + [*range(len(SPECIALS), target_size)]
    for length in range(longest):
        yield from product(tokens, repeat=length)


def pair(source, tokens):
    return Batch.of([source], [np.array(tokens, np.int32)], [features_of(source)])


@torch.no_grad()
def every_output(model, source, longest, score=lambda log_prob, length: log_prob, target_size=6):
    """Every output with its score and log probability, each found by a forward pass of its own; best first."""
    scored = []
    for words in every_target(target_size, longest, copies=model.copies_unknown):
        log_prob = model.log_prob(pair(source, words)).item()
        scored.append((score(log_prob, len(words) + 1), log_prob, (*words, END)))
    return sorted(scored, reverse=True)
