"""What is computed for requests, from validated arguments to response objects; runs in the worker thread."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch

from antiphon.api import Alignment, Candidate, Model, Prediction, PredictOptions
from antiphon.api.generation_models import NeuralModel
from antiphon.data.batch import Batch
from antiphon.decode.dropped_hypotheses import search_with_dropped
from antiphon.exceptions import InputError
from antiphon.models.language_model import LanguageModel
from antiphon.models.transducer import Transducer
from antiphon.runs.build import build_beam
from antiphon.serve.lattice_view import LatticeInput, LatticeView
from antiphon.serve.request_bodies import CellBody, LatticeBody
from antiphon.serve.run_info import transducer_of
from antiphon.serve.stream_history import StreamHistory
from antiphon.serve.stream_pool import OpenStream, StreamPool, StreamSearch, StreamStep
from antiphon.torch_free.channel_weights import Weights
from antiphon.torch_free.inputs import as_features, check_features
from antiphon.torch_free.readers import Source
from antiphon.torch_free.results import END_SYMBOL

_CANDIDATE_KEYS = ("text", "tokens", "probability", "log_probability", "score", "parts")
"""The keys of the candidates of a lattice."""


def finite(value: float | None) -> float | None:
    """The number, or None if JSON cannot represent it."""
    return value if value is not None and math.isfinite(value) else None


def candidate_answer(candidate: Candidate) -> dict[str, Any]:
    """The JSON object of one output; one of a noisy channel has no probability: ``parts`` has the direct model's."""
    is_noisy = bool(candidate.parts)
    return {
        "text": candidate.text,
        "tokens": candidate.tokens,
        "probability": None if is_noisy else candidate.probability,
        "log_probability": None if is_noisy else candidate.log_probability,
        "score": finite(candidate.score),
        "token_probabilities": candidate.token_probabilities,
        "rows": candidate.rows,
        "parts": Weights(*candidate.parts)._asdict() if candidate.parts else None,
    }


def prediction_answer(prediction: Prediction) -> dict[str, Any]:
    """The JSON object of the outputs of one input."""
    candidates = [candidate_answer(candidate) for candidate in prediction.nbest]
    best = candidates[0] if candidates else {}
    return {
        "source": prediction.source,
        "text": prediction.text,
        **{key: best.get(key) for key in ("probability", "log_probability", "score")},
        "reason": prediction.reason,
        "source_symbols": prediction.source_symbols,
        "tokens": prediction.tokens,
        "alignment": prediction.alignment,
        "unknown": prediction.unknown,
        "candidates": candidates,
    }


def score_answers(model: Model, pairs: Sequence[tuple[Source, str]]) -> list[dict[str, Any]]:
    """Log probability, probability and perplexity of each pair."""
    answers = []
    for (_, target), log_prob in zip(pairs, model.score(pairs), strict=True):
        tokens = len(model.codec.target.tokens(target)) + 1
        answers.append(
            {
                "log_probability": finite(log_prob),
                "probability": math.exp(log_prob),
                "tokens": tokens,
                "perplexity": _perplexity(log_prob, tokens),
            }
        )
    return answers


def _perplexity(log_prob: float, tokens: int) -> float | None:
    """``exp(-log p / tokens)``; None if it is too large for a number."""
    exponent = -log_prob / tokens
    return math.exp(exponent) if exponent < 700 else None


def alignment_answer(alignment: Alignment) -> dict[str, Any]:
    """The JSON object of an alignment."""
    shown = alignment.to_dict()
    shown["log_probability"] = finite(shown.pop("log_prob"))
    return shown


@torch.inference_mode()
def token_answers(model: NeuralModel, texts: Sequence[str], features: Sequence[str], top: int) -> list[dict[str, Any]]:
    """The probability of every token of each text under a language model, and the most probable ones there."""
    return [_judge(model, text, features, top) for text in texts]


def _judge(model: NeuralModel, text: str, features: Sequence[str], top: int) -> dict[str, Any]:
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


class _FoundOutputs(NamedTuple):
    """The tokens of the best output of a search, and the keys of the answer about what the search found."""

    best: Sequence[str]
    answer: dict[str, Any]


class Lattices:
    """The lattices of one run."""

    def __init__(self, model: Model, max_cells: int) -> None:
        self.model, self.max_cells = cast(NeuralModel, model), max_cells
        self.transducer = cast(Transducer, transducer_of(model))

    def show(self, body: LatticeBody, features: tuple[str, ...]) -> dict[str, Any]:
        """The lattice of an input with its best output, or with a given one; with candidates and dropped ones."""
        source = self.model.codec.source.tokens(body.input)
        self._check_source(source, ended=body.ended)
        found = (self._search_whole if body.ended else self._search_part)(body, features, source)
        target = found.best if body.target is None else body.target
        given = LatticeInput(source, target, features, body.ended, 0.0 if body.ended else body.emit_bias)
        return {**self.view(given).to_dict(body.top), **found.answer}

    def cell(self, body: CellBody, features: tuple[str, ...]) -> dict[str, Any]:
        """One cell of a lattice."""
        source = self.model.codec.source.tokens(body.input)
        given = LatticeInput(source, body.target, features, body.ended, 0.0 if body.ended else body.emit_bias)
        view = self.view(given)
        I, J = view.log_emit.shape
        if body.row >= I or body.column >= J:
            raise InputError(f"cell ({body.row}, {body.column}): outside, expected at most ({I - 1}, {J - 1})")
        return view.cell(body.row, body.column, body.top)

    def of_stream(self, history: StreamHistory, stream: OpenStream, top: int = 5) -> dict[str, Any]:
        """The lattice of a stream so far."""
        given = LatticeInput(history.source, history.best, stream.features, ended=False, emit_bias=stream.emit_bias)
        return {**self.view(given).to_dict(top), **self._outputs_of(history, most=8)}

    def view(self, given: LatticeInput) -> LatticeView:
        """The lattice; one that is too large is refused."""
        cells = (len(given.source) + 1) * (len(given.target) + 1)
        if cells > self.max_cells:
            raise InputError(f"a lattice of {cells:,} cells, expected at most {self.max_cells:,}: a shorter input")
        self._check_source(given.source, ended=given.ended)
        return LatticeView(self.model, self.transducer, given)

    def _check_source(self, source: Sequence[str], *, ended: bool) -> None:
        """Refuses an empty input, and a part of one if the model can only read it whole."""
        if not source:
            raise InputError("input: empty, expected at least one symbol")
        if not ended and self.transducer.encoder.bidirectional:
            raise InputError("ended = false: the run has a bidirectional encoder, expected the whole input")

    def _search_whole(self, body: LatticeBody, features: tuple[str, ...], source: Sequence[str]) -> "_FoundOutputs":
        """The candidates of a whole input, and what the beam dropped."""
        options = PredictOptions(nbest=body.nbest, align=False, prefix=tuple(body.prefix))
        (prediction,) = self.model.predict_lazily([Source(body.input, features)], options)
        candidates = [candidate_answer(candidate) for candidate in prediction.nbest]
        batch = Batch.of_tokens(self.model.codec, [source], None, [features]).to(self.model.device)
        prefix = self.model.codec.target.known_ids(body.prefix, "prefix")
        settings = build_beam(self.model.recipe.search, nbest=body.nbest)
        _, dropped = search_with_dropped(self.model.module, batch, settings, prefix)  # type: ignore[arg-type]
        answer = {
            "candidates": [{key: candidate[key] for key in _CANDIDATE_KEYS} for candidate in candidates],
            "dropped": [
                {**self._output(each.tokens, each.log_prob, source), "step": len(each.tokens)}
                for each in dropped[: body.nbest]
            ],
            "written": len(prediction.tokens),
        }
        return _FoundOutputs(prediction.tokens, answer)

    def _output(self, ids: Sequence[int], log_prob: float, source: Sequence[str]) -> dict[str, Any]:
        tokens = self.model.codec.decode_words(ids, source)
        text = self.model.codec.target.tokeniser.join(tokens)
        return {"text": text, "tokens": tokens, "probability": math.exp(log_prob), "log_probability": log_prob}

    def _search_part(self, body: LatticeBody, features: tuple[str, ...], source: Sequence[str]) -> "_FoundOutputs":
        """The candidates of the first part of an input, by a stream that reads it."""
        prefix = tuple(self.model.codec.target.known_ids(body.prefix, "prefix"))
        stream = OpenStream(features, body.emit_bias, prefix, watch=True)
        pool = StreamPool(self.model, StreamSearch("", "beam", None, None))
        (result,) = pool.advance([StreamStep(stream, [[token] for token in source])])
        history = StreamHistory()
        for token, written, outputs in zip(source, result.written, result.outputs, strict=True):
            history.read([token])
            history.write(written)
            history.watch(outputs)
        return _FoundOutputs(history.best, self._outputs_of(history, body.nbest))

    def _outputs_of(self, history: StreamHistory, most: int) -> dict[str, Any]:
        """The candidates of a stream, what it dropped, and how much it has written, with which delay."""
        join = self.model.codec.target.tokeniser.join
        shown = {"candidates": history.candidates(), "dropped": history.latest_dropped(most)}
        for each in (*shown["candidates"], *shown["dropped"]):
            each["text"] = join(each["tokens"])
        return {**shown, "written": len(history.written), "AL": history.average_lagging}


def features_of(model: Model, text: str, where: str) -> tuple[str, ...]:
    """The features of a request; unknown ones, or any where the run reads none, are refused."""
    features = as_features(text, where)
    if features and not model.reads_features:
        raise InputError(f"{where}: features, but the run was trained without, expected none")
    check_features(features, model.codec.known_features, where)
    return features
