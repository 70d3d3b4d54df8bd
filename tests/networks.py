"""Networks, searches and optimisers for tests, with every setting that a recipe would give them."""

import math
from dataclasses import replace

import torch

from antiphon.models.transducer import Transducer
from antiphon.models.transformer import Transformer
from antiphon.nn.recurrent import Embedding
from antiphon.recipe.sections import SearchSection, TrainSection
from antiphon.runs.build import build_beam
from antiphon.training.optimisation import Optimisation

_RECURRENT = {"hidden_size": 6, "embedding_size": 5, "layers": 1, "dropout": 0.0, "forget_bias": 0.0}
_TRANSDUCER = {
    "encoder": "bidirectional",
    "transition": "neural",
    "final_write": "learned",
    "copy_unknown": False,
    "context": "none",
    "copy_words": False,
    "tie_output": False,
}
_TRANSFORMER = {
    "hidden_size": 8,
    "layers": 1,
    "heads": 2,
    "feedforward_size": 12,
    "dropout": 0.0,
    "tie_output": False,
}


def build_network(kind, source_size, target_size, feature_size=0, **settings):
    """A small network without dropout; ``settings`` change it."""
    own = _TRANSFORMER if kind is Transformer else _RECURRENT
    own = own | _TRANSDUCER if issubclass(kind, Transducer) else own
    return kind(source_size, target_size, feature_size, **{**own, **settings})


def beam_settings(**changes):
    """The beam of a recipe, but that streams hold back whatever is undecided."""
    return replace(build_beam(SearchSection()), **{"commit_margin": math.inf, **changes})


def optimisation(**changes):
    """Adam with a learning rate of 0.1 in single precision."""
    return replace(Optimisation.of(TrainSection(precision="float32", learning_rate=0.1), 1), **changes)


@torch.no_grad()
def enlarge(model, scale):
    """The model with larger weights, so that it has preferences; embeddings of LSTMs are large enough as they are."""
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, Embedding)}
    for parameter in model.parameters():
        parameter.mul_(scale / 5 if id(parameter) in embeddings else scale)
    return model
