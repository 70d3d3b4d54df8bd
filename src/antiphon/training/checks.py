"""Checks before training starts: what is refused, and what is probably wrong with the data and only warned about."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import chain, islice

from antiphon.exceptions import RecipeError
from antiphon.metrics.output_metrics import RANKING_METRICS, missing_metrics_note
from antiphon.recipe.kinds import KINDS, Kind
from antiphon.recipe.schema import Recipe, token_kinds
from antiphon.recipe.sections import DataSection, SettingGroup
from antiphon.runs.build import reads_source, selection_metrics
from antiphon.terminal import Say, one_line
from antiphon.torch_free.readers import SOURCE_TARGET_FEATURES, Pair, keep_filled
from antiphon.training.prepare import dev_pairs, pairs_of, training_pairs
from antiphon.training.resolution import resolve_reading

_PAIRS_READ = 50_000
"""Pairs of each file that are looked at."""
_FEWEST_PAIRS = 20
"""Of fewer pairs, nothing is typical."""
_NEARLY_ALL = 0.9
_OVERLAP = 0.05
"""Fraction of the dev pairs that may be training pairs too, as happens in natural text."""


def check_recipe(recipe: Recipe) -> None:
    """Refuses a recipe that cannot be trained, or not be evaluated at the end."""
    _check_kind(recipe)
    KINDS[recipe.model.kind].check()(recipe)


def check_test_pairs(recipe: Recipe) -> None:
    """Reads all of ``data.test``, so that errors in it are reported before training."""
    if recipe.data.test is not None:
        pairs = pairs_of(recipe, recipe.data.test)
        keep_filled(pairs, recipe.data.test, targets_only=not reads_source(recipe))


def _check_kind(recipe: Recipe) -> None:
    """Refuses a kind that is not trained, and a dev metric that does not suit the kind."""
    kind, metric = KINDS[recipe.model.kind], recipe.train.dev_metric
    if kind.made_by:
        verb = kind.made_by
        raise RecipeError(f"model.kind = {kind.name}: made of trained runs by antiphon {verb}, expected another kind")
    if missing := missing_metrics_note([metric]):
        raise RecipeError(f"train.dev_metric = {missing}")
    possible = [] if kind.task is None else ["perplexity"]
    if kind.ranks:
        possible += RANKING_METRICS
    elif kind.predicts:
        possible += selection_metrics(recipe.data)
    if metric not in possible:
        raise RecipeError(
            f"train.dev_metric = {metric}: does not apply to this {kind.name}, expected {' or '.join(possible)}"
        )
    _check_groups(recipe, kind)


def _check_groups(recipe: Recipe, kind: Kind) -> None:
    """Refuses settings of training and search that apply to other kinds only."""
    smoothing, weight = recipe.train.label_smoothing, recipe.train.listwise_weight
    if smoothing and "tokens" not in kind.uses:
        raise RecipeError(
            f"train.label_smoothing = {smoothing:g}: kind {kind.name} predicts no tokens, "
            f"expected 0 or {_trained_kinds('tokens')}"
        )
    if weight and not kind.ranks:
        raise RecipeError(
            f"train.listwise_weight = {weight:g}: kind {kind.name} ranks no candidates, "
            f"expected 0 or {_trained_kinds('questions', 'epochs')}"
        )


def _trained_kinds(*groups: SettingGroup) -> str:
    """The kinds that are trained and use groups of settings, as text."""
    names = [name for name, kind in KINDS.items() if kind.uses.issuperset(groups) and not kind.made_by]
    return f"one of the kinds {', '.join(names)}" if len(names) > 1 else f"kind {names[0]}"


_HEADER_NAME = re.compile(
    "source|target|src|tgt|input|output|text|word|lemma|form|features|tags?|spelling|graphemes?|pronunciation"
    "|phonemes?|ipa|transcription|translation|sentence|summary"
)
"""Name of a column in the first line of a file."""


def warn_about_data(recipe: Recipe, say: Say) -> None:
    """Shows a line for each warning about the files of a recipe that learns from pairs."""
    if KINDS[recipe.model.kind].ranks:
        return
    recipe = resolve_reading(recipe).recipe
    train, dev = (list(islice(pairs, _PAIRS_READ)) for pairs in (training_pairs(recipe), dev_pairs(recipe)))
    for warning in data_warnings(recipe, train, dev):
        say(f"warning: {one_line(warning, limit=500)}")


def data_warnings(recipe: Recipe, train: Sequence[Pair], dev: Sequence[Pair]) -> Iterator[str]:
    """A sentence for each thing that is probably wrong with the pairs, as the recipe reads them."""
    data = recipe.data
    yield from (_header(pair) for pair in chain(train[:1], dev[:1]) if _is_header(pair))
    if not data.nfc:
        yield from _mixed_normalisation([*train, *dev])
    if len(train) < _FEWEST_PAIRS:
        return
    yield from _column_order(data, train)
    yield from _swapped(data, train) or _unsplit_tokens(recipe, train)
    if reads_source(recipe):
        yield from _overlap(train, dev)


def _is_header(pair: Pair) -> bool:
    return all(_HEADER_NAME.fullmatch(text.strip().lower()) for text in (pair.source or pair.target, pair.target))


def _header(pair: Pair) -> str:
    return f"{pair.where}: {' '.join([pair.source, pair.target]).strip()!r} seems to be a header; delete that line"


def _mixed_normalisation(pairs: Sequence[Pair]) -> Iterator[str]:
    """Characters that are found both composed (NFC) and decomposed."""
    texts = {text for pair in pairs for text in (pair.source, pair.target) if not text.isascii()}
    decomposed = {text for text in texts if not unicodedata.is_normalized("NFC", text)}
    missing = {each for text in decomposed for each in unicodedata.normalize("NFC", text) if each not in text}
    if both := missing.intersection(chain.from_iterable(texts)):
        yield (
            f"{min(both)} is one character in some lines and several (NFD) in others, so the model sees different "
            "letters; data.nfc=true composes them"
        )


def _column_order(data: DataSection, pairs: Sequence[Pair]) -> Iterator[str]:
    """Features that are more varied than targets: a column of forms that is read as features."""
    tags, targets = ({pair.features for pair in pairs}, {pair.target for pair in pairs})
    if data.features and not data.swap and len(tags) > 2 * len(targets):
        is_usual = data.columns == SOURCE_TARGET_FEATURES
        other = "source features target" if is_usual else SOURCE_TARGET_FEATURES
        yield (
            f"{len(tags):,} different features but only {len(targets):,} different targets, such as "
            f'{pairs[0].target!r}; if targets and features are in the wrong columns, data.columns="{other}"'
        )


def _swapped(data: DataSection, pairs: Sequence[Pair]) -> list[str]:
    """Tokens separated by spaces on the side where characters are expected, and none where words are."""
    kinds = token_kinds(data)
    if kinds != {"source": "chars", "target": "words"} or not _are_unsplit([pair.target for pair in pairs]):
        return []
    if sum(" " in pair.source.strip() for pair in pairs) < _NEARLY_ALL * len(pairs):
        return []
    return [
        f"sources such as {pairs[0].source!r} have spaces and targets such as {pairs[0].target!r} have none; if the "
        f"columns are exchanged, data.swap={str(not data.swap).lower()} with data.source_tokens={data.target_tokens} "
        f"and data.target_tokens={data.source_tokens}"
    ]


def _unsplit_tokens(recipe: Recipe, pairs: Sequence[Pair]) -> Iterator[str]:
    """Sides whose tokens are words, but where every text is a single word of its own."""
    for side, kind in token_kinds(recipe.data).items():
        texts = [getattr(pair, side) for pair in pairs]
        if kind == "words" and _are_unsplit(texts):
            column = side if not recipe.data.swap else {"source": "target", "target": "source"}[side]
            yield (
                f"nearly every {side} is one token of its own, such as {texts[0]!r}, so there is nothing to learn "
                f"from others; put spaces between its tokens, or data.{column}_tokens=chars"
            )


def _are_unsplit(texts: Sequence[str]) -> bool:
    """Whether nearly all texts are single words, most of them different."""
    words = [text for text in texts if text and " " not in text.strip()]
    return len(words) >= _NEARLY_ALL * len(texts) and 2 * len(set(words)) > len(words)


def _overlap(train: Sequence[Pair], dev: Sequence[Pair]) -> Iterator[str]:
    """Dev pairs that are training pairs too."""
    known = {pair[:3] for pair in train}
    shared = sum(pair[:3] in known for pair in dev)
    if shared > _OVERLAP * len(dev):
        yield (
            f"{shared:,} of {len(dev):,} dev pairs are training pairs too, so dev does not tell how good the model is "
            "on new inputs; give held-out pairs as data.dev"
        )
