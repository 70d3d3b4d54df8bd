"""The service: checks requests, submits them to the batcher, and builds the answers."""

import asyncio
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, cast
from weakref import WeakValueDictionary

from antiphon import __version__
from antiphon.api.model import Model, NeuralModel
from antiphon.api.ranking_model import RankingModel
from antiphon.ranking.questions import Answer, Question
from antiphon.serve.answers import alignment_answer, features_of, prediction_answer, score_answers, tokens_answer
from antiphon.serve.batcher import Batcher, Compute, StoppingError
from antiphon.serve.guards import RefusedError
from antiphon.serve.lattice_view import Lattices
from antiphon.serve.monitoring import ServiceMetrics
from antiphon.serve.run_info import describe
from antiphon.serve.schemas import (
    AlignBody,
    CellBody,
    LatticeBody,
    PairInput,
    PredictBody,
    RankBody,
    ScoreBody,
    TokensBody,
)
from antiphon.serve.settings import ServiceSettings
from antiphon.serve.streams import StreamPool, StreamSearch
from antiphon.torch_free.inputs import PredictOptions, as_source
from antiphon.torch_free.readers import Source
from antiphon.torch_free.results import Prediction

Json = dict[str, Any]
_LONG = 64
"""Characters of a text that counts as two where a request is computed in parts."""


class Service:
    """Loaded runs, and all that is needed to answer requests about them.

    Methods with the names of endpoints return the keys of their answers besides ``run``.
    """

    def __init__(self, models: Mapping[str, Model], settings: ServiceSettings) -> None:
        self.models, self.settings, self.limits = dict(models), settings, settings.limits
        self.metrics = ServiceMetrics()
        self.batcher = Batcher(wait_seconds=settings.wait_seconds, max_queue=self.limits.queue, metrics=self.metrics)
        self.runs = {name: describe(name, model) for name, model in self.models.items()}
        self.lattices = {
            name: Lattices(model, self.limits.cells)
            for name, model in self.models.items()
            if self.runs[name]["can"]["lattice"]
        }
        self.ready, self.stopping = False, asyncio.Event()
        """Whether requests are taken; ``stopping`` is set once no new work is, and streams close."""
        self.open_streams = 0
        self._pools = WeakValueDictionary[tuple[str, StreamSearch], StreamPool]()
        self.metrics.queue.set_function(lambda: self.batcher.waiting)
        self.metrics.streams.set_function(lambda: self.open_streams)

    def pool(self, run: str, search: StreamSearch) -> StreamPool:
        """The streams of a run with the same search; forgotten with the last of them."""
        pool = self._pools.get((run, search)) or StreamPool(self.models[run], search)
        self._pools[run, search] = pool
        return pool

    def about(self) -> Json:
        """What is served, and within which limits."""
        names = ("inputs", "characters", "body_bytes", "cells", "candidates", "streams", "seconds")
        return {
            "version": __version__,
            "needs_token": self.settings.access.token is not None,
            "runs": list(self.runs.values()),
            "limits": {name: getattr(self.limits, name) for name in names},
        }

    def check_running(self) -> None:
        """Refuses all requests once the service stops."""
        if self.stopping.is_set():
            raise StoppingError

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
        sources, lexicon = list[Source](), model.lexicon(())
        for number, given in enumerate(body.inputs):
            where, unchecked = f"inputs[{number}]", given if isinstance(given, str) else (given.text, given.features)
            self.check_texts(where, *([unchecked] if isinstance(unchecked, str) else unchecked))
            sources.append(as_source(unchecked, reads_features=model.reads_features))
            model.check_source(sources[-1], where, options, lexicon)

        def compute(sources: list[Source]) -> Sequence[Prediction]:
            return list(model.predict_lazily(sources, options))

        found = await self.compute(("predict", body.run, options), sources, compute, lambda source: len(source.text))
        return {"predictions": [prediction_answer(prediction) for prediction in found]}

    def pairs(self, model: Model, given: Sequence[PairInput]) -> list[tuple[Source, str]]:
        """Checked pairs."""
        self.check_count("pairs", given)
        pairs = []
        for number, pair in enumerate(given):
            where = f"pairs[{number}]"
            self.check_texts(where, pair.source, pair.target, pair.features)
            pairs.append((Source(pair.source, features_of(model, pair.features, where)), pair.target))
        return pairs

    async def score(self, body: ScoreBody) -> Json:
        """Probabilities of pairs."""
        model = self.model(body.run, "score")
        pairs = self.pairs(model, body.pairs)
        return {"scores": await self.compute(("score", body.run), pairs, partial(score_answers, model), length_of)}

    async def align(self, body: AlignBody) -> Json:
        """Alignments of pairs."""
        model = self.model(body.run, "align")
        pairs = self.pairs(model, body.pairs)
        for number, (source, target) in enumerate(pairs):
            cells = (len(model.codec.source.tokens(source.text)) + 1) * (len(model.codec.target.tokens(target)) + 1)
            if cells > self.limits.cells:
                most = self.limits.cells
                raise RefusedError(413, f"pairs[{number}]: {cells:,} cells, expected at most {most:,}")

        def compute(pairs: list[tuple[Source, str]]) -> list[Json]:
            return [alignment_answer(alignment) for alignment in model.align(pairs)]

        return {"alignments": await self.compute(("align", body.run), pairs, compute, length_of)}

    async def rank(self, body: RankBody) -> Json:
        """Ranked sentences."""
        model = cast(RankingModel, self.model(body.run, "explain" if body.explain else "rank"))
        self.check_count("sentences", body.sentences)
        self.check_texts("question or sentence", body.question, *body.sentences)
        answers = tuple(Answer(str(index), text) for index, text in enumerate(body.sentences))
        question, compute = Question("", body.question, answers), partial(model.rank_questions, explain=body.explain)
        (ranked,) = await self.batcher.submit(("rank", body.run, body.explain), [question], compute)
        return {"ranking": [each.to_dict() for each in ranked]}

    async def tokens(self, body: TokensBody) -> Json:
        """Probabilities of tokens."""
        model = cast(NeuralModel, self.model(body.run, "tokens"))
        self.check_count("texts", body.texts)
        self.check_texts("texts", *body.texts)
        features = features_of(model, body.features, "features")

        def compute(texts: list[str]) -> list[Json]:
            return [tokens_answer(model, text, features, body.top) for text in texts]

        return {"texts": await self.compute(("tokens", body.run, features, body.top), body.texts, compute, len)}

    async def lattice(self, body: LatticeBody) -> Json:
        """A lattice."""
        model = self.model(body.run, "lattice")
        self.check_texts("input", body.input)
        self.check_texts("target or prefix", "".join(body.target or []), "".join(body.prefix))
        features = features_of(model, body.features, "features")
        return await self.batcher.submit_alone(lambda: self.lattices[body.run].show(body, features))

    async def cell(self, body: CellBody) -> Json:
        """A cell of a lattice."""
        model = self.model(body.run, "lattice")
        self.check_texts("input", body.input)
        self.check_texts("target", "".join(body.target))
        features = features_of(model, body.features, "features")
        return await self.batcher.submit_alone(lambda: self.lattices[body.run].cell(body, features))

    async def compute(
        self, key: Hashable, items: Sequence[Any], compute: Compute, length: Callable[[Any], int]
    ) -> list[Any]:
        """The results of items, in parts if there are many or long ones; ``length`` counts the characters of each."""
        return await self.batcher.submit_parts(key, items, compute, lambda item: 1 + length(item) // _LONG)

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

    def check_texts(self, where: str, *texts: str) -> None:
        """Refuses a text that is too long."""
        most, longest = self.limits.characters, max(map(len, texts))
        if longest > most:
            raise RefusedError(413, f"{where}: a text of {longest:,} characters, expected at most {most:,}")


def length_of(pair: tuple[Source, str]) -> int:
    """The number of characters of a pair."""
    source, target = pair
    return len(source.text) + len(target)
