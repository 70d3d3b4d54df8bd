"""Uses every run before the first request, so that this is as fast as those after it."""

from functools import partial
from typing import Any

from antiphon.api import Model, PredictOptions, RankingModel
from antiphon.api.generation_models import NeuralModel
from antiphon.ranking.question_files import Answer, Question
from antiphon.serve.operations import token_answers
from antiphon.serve.service import Service
from antiphon.serve.stream_pool import OpenStream, StreamPool, StreamSearch, StreamStep
from antiphon.torch_free.readers import Source
from antiphon.torch_free.vocab import SPECIALS

_SYMBOLS = 6
_TIMES = 3


async def warm_up(service: Service) -> None:
    """Makes every run compute something, in the worker thread."""
    for name, model in service.models.items():
        await service.batcher.submit_alone(partial(use_repeatedly, model, service.runs[name]))


def use_repeatedly(model: Model, run: dict[str, Any]) -> None:
    """Uses a model several times; ``run`` describes it (``run_info.describe``)."""
    for _ in range(_TIMES):
        use(model, run["can"], run["policies"])


def use(model: Model, can: dict[str, bool], policies: list[str]) -> None:
    """Uses a model in the ways that it can be used."""
    symbols = model.codec.source.vocab.tokens[len(SPECIALS) :][:_SYMBOLS]
    text = model.codec.source.tokeniser.join(list(symbols)) or "a"
    if can["predict"]:
        options = PredictOptions(nbest=2 if can["score"] else 1, align=True)
        list(model.predict_lazily([Source(text), Source(text[:2])], options))
    if can["rank"]:
        assert isinstance(model, RankingModel)
        model.rank_questions([Question("", text, (Answer("0", text),))], explain=can["explain"])
    if can["tokens"]:
        assert isinstance(model, NeuralModel)
        token_answers(model, [model.codec.target.tokeniser.join(list(symbols))], (), 1)
    for policy in policies:
        stream = OpenStream()
        pool = StreamPool(model, StreamSearch("", policy, None, None))
        pool.advance([StreamStep(stream, [[symbol] for symbol in symbols], ends=True)])
