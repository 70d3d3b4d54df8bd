"""Tiny models with pronounced preferences, in double precision, and inputs for them."""

from itertools import product

import torch

from antiphon.data.batch import Batch
from antiphon.data.vocab import END, SPECIALS
from antiphon.models.attention import Attention
from antiphon.models.encoder_decoder import EncoderDecoder
from antiphon.models.transducer import Transducer

MODELS = {
    "transducer": (Transducer, {}),
    "unidirectional": (Transducer, {"encoder": "unidirectional"}),
    "geometric": (Transducer, {"transition": "geometric"}),
    "forced": (Transducer, {"final_emit": "forced", "layers": 2}),
    "attention": (Attention, {}),
    "encoder_decoder": (EncoderDecoder, {}),
}
ALIGNED = [name for name, (kind, _) in MODELS.items() if kind is Transducer]


def small_model(name="transducer", seed=0, target_size=6, scale=4.0, **more):
    kind, settings = MODELS[name]
    torch.manual_seed(seed)
    model = kind(9, target_size, hidden_size=6, embedding_size=5, **settings | more).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(scale)
    return model.eval()


def sources(*lengths, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(4, 9, (length,), generator=generator).numpy() for length in lengths]


def every_target(target_size, longest):
    """All outputs of at most ``longest`` tokens, end symbol counted, as tuples without it."""
    for length in range(longest):
        yield from product(range(len(SPECIALS), target_size), repeat=length)


def pair(source, tokens):
    return Batch.of([source], [torch.tensor(tokens, dtype=torch.int32).numpy()])


@torch.no_grad()
def every_output(model, source, longest, score=lambda log_prob, length: log_prob, target_size=6):
    """Every output with its score and log probability, each found by a forward pass of its own; best first."""
    scored = []
    for words in every_target(target_size, longest):
        log_prob = model.log_prob(pair(source, words)).item()
        scored.append((score(log_prob, len(words) + 1), log_prob, (*words, END)))
    return sorted(scored, reverse=True)
