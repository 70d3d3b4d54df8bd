"""Answers of the service, from validated arguments to JSON objects."""

import math
from collections.abc import Sequence
from typing import Any, cast

import torch

from antiphon.api.model import Model, NeuralModel
from antiphon.data.batch import Batch
from antiphon.exceptions import InputError
from antiphon.models.recurrent import LanguageModel
from antiphon.torch_free.hypothesis import Weights
from antiphon.torch_free.inputs import as_features, check_features
from antiphon.torch_free.readers import Source
from antiphon.torch_free.results import END_SYMBOL, Alignment, Candidate, Prediction


def finite(value: float | None) -> float | None:
    """The number, or None if JSON cannot represent it."""
    return value if value is not None and math.isfinite(value) else None


def candidate_answer(candidate: Candidate) -> dict[str, Any]:
    """The JSON object of one output."""
    parts = Weights(*candidate.parts)._asdict() if candidate.parts else None
    return {**candidate.to_dict(), "score": finite(candidate.score), "rows": candidate.rows, "parts": parts}


def prediction_answer(prediction: Prediction) -> dict[str, Any]:
    """The JSON object of the outputs of one input."""
    nbest = [candidate_answer(candidate) for candidate in prediction.nbest]
    return {**prediction.to_dict(), "score": finite(prediction.score), "nbest": nbest}


def score_answers(model: Model, pairs: Sequence[tuple[Source, str]]) -> list[dict[str, Any]]:
    """Log probability, probability and perplexity of each pair."""
    counts = [len(model.codec.target.tokens(target)) + 1 for _, target in pairs]
    return [
        {
            "log_probability": finite(log_prob),
            "probability": math.exp(log_prob),
            "tokens": tokens,
            "perplexity": _perplexity(log_prob, tokens),
        }
        for log_prob, tokens in zip(model.score(pairs), counts, strict=True)
    ]


def _perplexity(log_prob: float, tokens: int) -> float | None:
    """``exp(-log p / tokens)``; None if it is too large for a number."""
    exponent = -log_prob / tokens
    return math.exp(exponent) if exponent < 700 else None


def alignment_answer(alignment: Alignment) -> dict[str, Any]:
    """The JSON object of an alignment."""
    return {**alignment.to_dict(), "log_probability": finite(alignment.log_probability)}


@torch.inference_mode()
def tokens_answer(model: NeuralModel, text: str, features: Sequence[str], top: int) -> dict[str, Any]:
    """The probability of every token of a text under a language model, and the most probable ones there."""
    module = cast(LanguageModel, model.module)
    tokens = [*model.codec.target.tokens(text), END_SYMBOL]
    batch = Batch.of_text(model.codec, [Source("", tuple(features))], [text]).to(model.device)
    states, _ = module.decoder(batch.shifted_target, None, module.start(batch)[0])
    log_probs = module.output(states)[0].log_softmax(1)
    own = log_probs.gather(1, batch.target[0, :, None])
    ranks = (log_probs > own).sum(1) + 1
    values, ids = log_probs.exp().topk(min(top, log_probs.shape[1]), 1)
    vocab = model.codec.target.vocab.tokens
    total = own.double().sum().item()
    columns = zip(tokens, own[:, 0].exp().tolist(), ranks.tolist(), values.tolist(), ids.tolist(), strict=True)
    return {
        "text": text,
        "log_probability": finite(total),
        "perplexity": _perplexity(total, len(tokens)),
        "tokens": [
            {
                "token": token,
                "probability": probability,
                "rank": rank,
                "next": [[vocab[id_], round(value, 6)] for value, id_ in zip(likely, found, strict=True)],
            }
            for token, probability, rank, likely, found in columns
        ],
    }


def features_of(model: Model, text: str, where: str) -> tuple[str, ...]:
    """The features of a request; unknown ones, or any where the run reads none, are refused."""
    features = as_features(text, where)
    if features and not model.reads_features:
        raise InputError(f"{where}: features, but the run was trained without, expected none")
    check_features(features, model.codec.known_features, where)
    return features
