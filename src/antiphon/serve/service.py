"""The service behind its endpoints: validates requests, submits them to the batcher, and builds the responses."""

import asyncio
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar, cast

from antiphon import __version__
from antiphon.api import Model, Prediction, PredictOptions, RankingModel
from antiphon.api.generation_models import NeuralModel
from antiphon.ranking.question_files import Answer, Question
from antiphon.serve.batcher import Batcher, Compute, StoppingError
from antiphon.serve.guards import RefusedError
from antiphon.serve.operations import (
    Lattices,
    alignment_answer,
    features_of,
    prediction_answer,
    score_answers,
    token_answers,
)
from antiphon.serve.request_bodies import (
    AlignBody,
    CellBody,
    LatticeBody,
    PairInput,
    PredictBody,
    RankBody,
    ScoreBody,
    TextInput,
    TokensBody,
)
from antiphon.serve.run_info import describe
from antiphon.serve.service_metrics import ServiceMetrics
from antiphon.serve.service_settings import ServiceSettings
from antiphon.serve.stream_pool import StreamPools
from antiphon.torch_free.inputs import as_source
from antiphon.torch_free.readers import Source

T = TypeVar("T")
Json = dict[str, Any]
LONG = 64
"""Characters of a text that counts as two where a request is computed in parts."""


class StreamSocketLike(Protocol):
    """What the service needs to know of an open socket."""

    def is_idle(self) -> bool:
        """Whether the client has been silent for too long."""
        ...

    def wake(self) -> None:
        """Makes the stream check whether it has to close."""
        ...


class Service:
    """Loaded runs, and all that is needed to answer requests about them."""

    def __init__(self, models: Mapping[str, Model], settings: ServiceSettings) -> None:
        self.models, self.settings, self.limits = dict(models), settings, settings.limits
        self.metrics = ServiceMetrics()
        self.batcher = Batcher(wait_seconds=settings.wait_seconds, max_queue=self.limits.queue, metrics=self.metrics)
        self.pools = StreamPools(self.models)
        self.runs = {name: describe(name, model) for name, model in self.models.items()}
        self.lattices = {
            name: Lattices(self.models[name], self.limits.cells)
            for name, run in self.runs.items()
            if run["can"]["lattice"]
        }
        self.ready, self.stopping = False, asyncio.Event()
        self.sockets: set[StreamSocketLike] = set()
        """Open sockets."""
        self.metrics.queue.set_function(lambda: self.batcher.waiting)
        self.metrics.streams.set_function(lambda: len(self.sockets))

    async def watch_sockets(self) -> None:
        """Wakes sockets that have been silent for too long, so that they close."""
        while True:
            await asyncio.sleep(min(1.0, self.limits.idle_seconds / 4))
            for socket in [each for each in self.sockets if each.is_idle()]:
                socket.wake()

    def stop(self) -> None:
        """Takes no new work; streams close."""
        self.stopping.set()
        for socket in self.sockets:
            socket.wake()

    def about(self) -> Json:
        """What is served, and within which limits."""
        limits = self.limits
        return {
            "version": __version__,
            "needs_token": self.settings.access.token is not None,
            "runs": list(self.runs.values()),
            "limits": {
                "inputs": limits.inputs,
                "characters": limits.characters,
                "body_bytes": limits.body_bytes,
                "cells": limits.cells,
                "candidates": limits.candidates,
                "streams": limits.streams,
                "seconds": limits.seconds,
            },
        }

    def run_name(self, name: str) -> str:
        """The name of a run that a request names; it may leave it out where only one run is served."""
        if not name and len(self.models) > 1:
            raise RefusedError(422, f"run: missing, expected one of {', '.join(self.models)}")
        return name or next(iter(self.models))

    def model(self, name: str, ability: str) -> Model:
        """The model of a run that can do what is asked."""
        if name not in self.models:
            raise RefusedError(404, f"run: no run is named {name[:100]!r}, expected one of {', '.join(self.models)}")
        model = self.models[name]
        if not self.runs[name]["can"][ability]:
            raise RefusedError(
                422, f"run: {name} is of kind {model.kind} and cannot do this; GET /api/runs says what can"
            )
        return model

    async def predict(self, body: PredictBody) -> Json:
        """The outputs of inputs."""
        model = self.model(body.run, "predict")
        self.check_count("inputs", body.inputs)
        self.check_candidates(body.nbest, body.beam)
        options = PredictOptions(
            beam=body.beam,
            nbest=body.nbest or (None if body.cover is None else self.limits.candidates),
            cover=body.cover,
            align=body.align,
            allow_unknown_features=body.allow_unknown_features,
            prefix=tuple(body.prefix),
        )
        model.codec.target.known_ids(options.prefix, "prefix")
        sources = [self.source(model, given, f"inputs[{n}]", options) for n, given in enumerate(body.inputs)]

        def compute(sources: list[Source]) -> Sequence[Prediction]:
            return list(model.predict_lazily(sources, options))

        found = await self.compute(("predict", body.run, options), sources, compute, lambda source: len(source.text))
        return {"run": body.run, "predictions": [prediction_answer(prediction) for prediction in found]}

    def source(self, model: Model, given: str | TextInput, where: str, options: PredictOptions) -> Source:
        """A checked input."""
        for text in [given] if isinstance(given, str) else [given.text, given.features]:
            self.check_text(where, text)
        unchecked = given if isinstance(given, str) else (given.text, given.features)
        source = as_source(unchecked, reads_features=model.reads_features)
        model.check_source(source, where, options, model.lexicon(()))
        return source

    def pairs(self, model: Model, given: Sequence[PairInput]) -> list[tuple[Source, str]]:
        """Checked pairs."""
        self.check_count("pairs", given)
        pairs = []
        for index, pair in enumerate(given):
            where = f"pairs[{index}]"
            for text in (pair.source, pair.target, pair.features):
                self.check_text(where, text)
            pairs.append((Source(pair.source, features_of(model, pair.features, where)), pair.target))
        return pairs

    async def score(self, body: ScoreBody) -> Json:
        """Probabilities of pairs."""
        model = self.model(body.run, "score")
        pairs = self.pairs(model, body.pairs)
        found = await self.compute(("score", body.run), pairs, partial(score_answers, model), characters_of)
        return {"run": body.run, "scores": list(found)}

    async def align(self, body: AlignBody) -> Json:
        """Alignments of pairs."""
        model = self.model(body.run, "align")
        pairs = self.pairs(model, body.pairs)
        for index, (source, target) in enumerate(pairs):
            self.check_cells(model, source.text, target, f"pairs[{index}]")

        def compute(pairs: list[tuple[Source, str]]) -> list[Json]:
            return [alignment_answer(alignment) for alignment in model.align(pairs)]

        return {"run": body.run, "alignments": await self.compute(("align", body.run), pairs, compute, characters_of)}

    async def rank(self, body: RankBody) -> Json:
        """Ranked sentences."""
        model = cast(RankingModel, self.model(body.run, "explain" if body.explain else "rank"))
        self.check_count("sentences", body.sentences)
        for text in (body.question, *body.sentences):
            self.check_text("question or sentence", text)
        answers = tuple(Answer(str(index), text) for index, text in enumerate(body.sentences))
        compute = partial(model.rank_questions, explain=body.explain)
        (ranked,) = await self.compute(
            ("rank", body.run, body.explain), [Question("", body.question, answers)], compute, lambda _: 0
        )
        return {"run": body.run, "ranking": [each.to_dict() for each in ranked]}

    async def tokens(self, body: TokensBody) -> Json:
        """Probabilities of tokens."""
        model = self.model(body.run, "tokens")
        self.check_count("texts", body.texts)
        for text in body.texts:
            self.check_text("texts", text)
        features = features_of(model, body.features, "features")
        compute = partial(token_answers, cast(NeuralModel, model), features=features, top=body.top)
        found = await self.compute(("tokens", body.run, features, body.top), body.texts, compute, len)
        return {"run": body.run, "texts": list(found)}

    async def lattice(self, body: LatticeBody) -> Json:
        """A lattice."""
        model = self.model(body.run, "lattice")
        self.check_shown(body.input, body.target or [], body.prefix)
        model.codec.target.known_ids(body.prefix, "prefix")
        features = features_of(model, body.features, "features")
        shown = await self.compute_alone(partial(self.lattices[body.run].show, body, features))
        return {"run": body.run, **shown}

    async def cell(self, body: CellBody) -> Json:
        """A cell of a lattice."""
        model = self.model(body.run, "lattice")
        self.check_shown(body.input, body.target, [])
        features = features_of(model, body.features, "features")
        shown = await self.compute_alone(partial(self.lattices[body.run].cell, body, features))
        return {"run": body.run, **shown}

    async def compute(
        self, key: Hashable, items: Sequence[Any], compute: Compute, characters: Callable[[Any], int]
    ) -> list[Any]:
        """The results of items, in parts if there are many or long ones; ``characters`` says how long each is."""
        self._check_running()
        return await self.batcher.submit_parts(key, items, compute, lambda item: 1 + characters(item) // LONG)

    async def compute_alone(self, compute: Callable[[], T]) -> T:
        """The result of a computation that is never batched with others."""
        self._check_running()
        return await self.batcher.submit_alone(compute)

    def _check_running(self) -> None:
        if self.stopping.is_set():
            raise StoppingError

    def check_count(self, name: str, given: Sequence[Any]) -> None:
        """Refuses an empty list, and one with too many entries."""
        if not given:
            raise RefusedError(422, f"{name}: empty, expected at least one")
        if len(given) > self.limits.inputs:
            raise RefusedError(413, f"{name}: {len(given):,} of them, expected at most {self.limits.inputs:,}")

    def check_candidates(self, *counts: int | None) -> None:
        """Refuses a beam or a list of candidates that is too large."""
        if max(count or 1 for count in counts) > self.limits.candidates:
            raise RefusedError(413, f"nbest or beam: too large, expected at most {self.limits.candidates:,}")

    def check_text(self, where: str, text: str) -> None:
        """Refuses a text that is too long."""
        if len(text) > self.limits.characters:
            most = self.limits.characters
            raise RefusedError(413, f"{where}: a text of {len(text):,} characters, expected at most {most:,}")

    def check_shown(self, text: str, target: Sequence[str], prefix: Sequence[str]) -> None:
        """Refuses too long an input, or too many tokens."""
        self.check_text("input", text)
        self.check_text("target", "".join(target))
        self.check_text("prefix", "".join(prefix))

    def check_cells(self, model: Model, source: str, target: str, where: str) -> None:
        """Refuses a pair whose lattice is too large to show."""
        cells = (len(model.codec.source.tokens(source)) + 1) * (len(model.codec.target.tokens(target)) + 1)
        if cells > self.limits.cells:
            raise RefusedError(413, f"{where}: {cells:,} cells, expected at most {self.limits.cells:,}")


def characters_of(pair: tuple[Source, str]) -> int:
    """The length of a pair."""
    source, target = pair
    return len(source.text) + len(target)
