"""What each run can do: its description for clients, with example inputs, and a first use of all of it."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from antiphon.api.model import Model, NeuralModel, NoisyChannelModel
from antiphon.api.ranking_model import RankingModel
from antiphon.exceptions import AntiphonError
from antiphon.ranking.questions import Answer, Question, read_questions
from antiphon.ranking.rankers import MatchRanker
from antiphon.recipe.schema import token_kinds
from antiphon.recipe.sections import TokenKind
from antiphon.serve.answers import tokens_answer
from antiphon.serve.lattice_view import transducer_of
from antiphon.serve.streams import OpenStream, StreamPool, StreamSearch, StreamStep
from antiphon.terminal import silent
from antiphon.torch_free.inputs import PredictOptions
from antiphon.torch_free.readers import Pair, Source
from antiphon.torch_free.vocab import SPECIALS
from antiphon.training.prepare import pairs_of

MAX_FEATURES = 500
SUGGESTIONS = "examples.txt"
"""A file beside the data of a run: inputs or outputs of these data, one per line, that make good examples."""
_EXAMPLES, _TRIED, _LINES = 4, 20, 400
"""Examples of a run, pairs predicted to find those that it gets right, and lines read to choose these from."""
_SHORTEST, _LONGEST = 4, 80
"""Characters of an example."""
_WARM_UP_SYMBOLS, _WARM_UP_TIMES = 6, 3


def can_explain(model: Model) -> bool:
    """Whether a run has weights of the words that it ranks by."""
    ranker = model.ranker if isinstance(model, RankingModel) else None
    return isinstance(ranker, MatchRanker) and ranker.explain is not None


def why_no_stream(model: Model) -> str | None:
    """Why a run cannot write before its input has ended; None if it can."""
    try:
        model.streams([()])
    except AntiphonError as error:
        return str(error)
    return None


def describe(name: str, model: Model) -> dict[str, Any]:
    """All that the page and programs need to know about a run."""
    reason = why_no_stream(model)
    transducer = transducer_of(model)
    # A ranker reads words, whatever its recipe says.
    kinds: dict[str, TokenKind] = {"source": "words", "target": "words"}
    tokens = kinds if isinstance(model, RankingModel) else token_kinds(model.recipe.data)
    encoder = None
    if transducer is not None:
        encoder = "bidirectional" if transducer.encoder.bidirectional else "unidirectional"
    is_noisy = isinstance(model, NoisyChannelModel)
    features = sorted(model.codec.known_features) if model.reads_features else []
    return {
        "name": name,
        "about": about(model, tokens),
        "kind": model.kind,
        "encoder": encoder,
        "can": capabilities(model, streams=reason is None),
        "source_tokens": tokens["source"],
        "target_tokens": tokens["target"],
        "join": "" if tokens["target"] == "chars" else " ",
        "reads_features": model.reads_features,
        "features": features[:MAX_FEATURES],
        "beam": model.recipe.search.beam,
        "policies": [] if reason is not None else ["beam"] if is_noisy else ["greedy", "beam"],
        "margin": None if is_noisy else model.recipe.search.commit_margin,
        "why_no_stream": reason,
        "weights": model.weights._asdict() if isinstance(model, NoisyChannelModel) else None,
        "examples": examples_of(model),
    }


def about(model: Model, tokens: dict[str, TokenKind]) -> str:
    """What a run maps to what, and how good it is, in a sentence."""
    if model.shipped is not None:
        return model.shipped.about
    metric = model.recipe.train.dev_metric
    value = model.metrics.get(f"dev_{metric}")
    names = {"chars": "letters", "words": "words or symbols", "sentencepiece": "subwords"}
    quality = "" if value is None else f"; {metric.replace('_', ' ')} on its dev pairs {value:.4g}"
    return f"{names[tokens['source']]} to {names[tokens['target']]}{quality}"


def capabilities(model: Model, *, streams: bool) -> dict[str, bool]:
    """What can be asked of a run."""
    return {
        "predict": model.can_predict,
        "score": model.can_score,
        "align": model.can_align,
        "lattice": transducer_of(model) is not None,
        "stream": streams,
        "rank": isinstance(model, RankingModel),
        "explain": can_explain(model),
        "tokens": model.kind == "language_model",
    }


def examples_of(model: Model) -> list[dict[str, Any]]:
    """A few inputs of the run's own data, or none if these are no longer there."""
    if model.shipped is not None:
        return [{"input": text, "features": ""} for text in model.shipped.examples]
    data = model.recipe.data
    for path in (data.dev, data.test, data.train):
        try:
            found = list(_examples(model, path)) if path is not None else []
        except (AntiphonError, OSError):
            continue
        if found:
            return found
    return []


def _examples(model: Model, path: Path | tuple[Path, Path]) -> Iterator[dict[str, Any]]:
    if isinstance(model, RankingModel):
        assert isinstance(path, Path)
        for question in read_questions(path, silent)[:_EXAMPLES]:
            yield {"question": question.text, "sentences": [answer.text for answer in question.answers]}
        return
    pairs = [
        pair
        for pair in islice(pairs_of(model.recipe, path), _LINES)
        if _SHORTEST <= len(_read(model, pair)) <= _LONGEST
    ]
    suggested = _suggested(path)
    pairs = [pair for pair in pairs if suggested & {pair.source, pair.target}] or pairs
    chosen = _right_first(model, _spread(pairs, _TRIED)) if model.can_predict else _spread(pairs, _EXAMPLES)
    for pair in chosen[:_EXAMPLES]:
        yield {"input": _read(model, pair), "features": ";".join(pair.features)}


def _suggested(path: Path | tuple[Path, Path]) -> frozenset[str]:
    """The texts that a file beside the data suggests as examples; none if there is no such file."""
    file = (path if isinstance(path, Path) else path[0]).parent / SUGGESTIONS
    return frozenset(file.read_text(encoding="utf-8").split("\n")) if file.is_file() else frozenset()


def _read(model: Model, pair: Pair) -> str:
    """What a model reads of a pair."""
    return pair.target if model.kind == "language_model" else pair.source


def _spread(pairs: list[Pair], count: int) -> list[Pair]:
    """A few pairs from all over a list."""
    return pairs[:: max(1, len(pairs) // count)][:count]


def _right_first(model: Model, pairs: list[Pair]) -> list[Pair]:
    """The pairs, those first whose output the model finds, so that examples show what it has learnt."""
    sources = [(pair.source, pair.features) if model.reads_features else pair.source for pair in pairs]
    found = model.predict(sources, align=False, allow_unknown_features=True)
    tokens = model.codec.target.tokens
    is_right = [list(each.tokens) == tokens(pair.target) for each, pair in zip(found, pairs, strict=True)]
    return [pair for wanted in (True, False) for pair, right in zip(pairs, is_right, strict=True) if right is wanted]


def warm_up(model: Model, run: dict[str, Any]) -> None:
    """Uses a run, as ``describe`` describes it, so that the first request is as fast as those after it."""
    symbols = list(model.codec.source.vocab.tokens[len(SPECIALS) :][:_WARM_UP_SYMBOLS])
    text = model.codec.source.tokeniser.join(symbols) or "a"
    options = PredictOptions(nbest=2 if run["can"]["score"] else 1, align=True)
    for _ in range(_WARM_UP_TIMES):
        if run["can"]["predict"]:
            list(model.predict_lazily([Source(text), Source(text[:2])], options))
        if isinstance(model, RankingModel):
            model.rank_questions([Question("", text, (Answer("0", text),))], explain=run["can"]["explain"])
        if run["can"]["tokens"]:
            assert isinstance(model, NeuralModel)
            tokens_answer(model, model.codec.target.tokeniser.join(symbols), (), 1)
        for policy in run["policies"]:
            step = StreamStep(OpenStream(), [[symbol] for symbol in symbols], ends=True)
            StreamPool(model, StreamSearch(policy)).advance([step])
