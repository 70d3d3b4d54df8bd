"""Uses every run once before the first request, so that this is as fast as those after it."""

from antiphon.api import Model, PredictOptions, RankingModel
from antiphon.api.generation_models import NeuralModel
from antiphon.data.readers import Source
from antiphon.data.vocab import SPECIALS
from antiphon.ranking.question_files import Answer, Question
from antiphon.serve.operations import token_answers
from antiphon.serve.service import Service
from antiphon.serve.stream_pool import OpenStream, Step, StreamPool, StreamSearch

_SYMBOLS = 6
_TIMES = 3


async def warm_up(service: Service) -> None:
    """Has every run compute something, in the worker thread."""
    for name, model in service.models.items():
        can = service.runs[name]["can"]

        def compute(_: list[None], model: Model = model, can: dict[str, bool] = can, name: str = name) -> list[None]:
            for _time in range(_TIMES):
                use(model, can, service.runs[name]["policies"])
            return [None]

        await service.batcher.submit(object(), [None], compute)


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
        pool.advance([Step(stream, [[symbol] for symbol in symbols], ends=True)])
