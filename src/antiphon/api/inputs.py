"""What may be handed to a model, and how what is meant is found out: plain meanings are taken, others refused."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal, TypedDict, get_args

from antiphon.data.readers import Pair, Source, split_features
from antiphon.exceptions import InputError
from antiphon.terminal import one_line

FeaturesLike = str | Sequence[str]
"""Features as in a file (``"N;DAT;PL"``), or as a list."""
SourceLike = str | tuple[str, FeaturesLike] | Source
"""A text, or a text with its features."""
PairLike = Pair | tuple[SourceLike, str]
"""A source with its target."""
Policy = Literal["greedy", "beam"]
_LONGEST_COMPARED = 100
"""Characters of an unknown feature that are compared with known ones."""


@dataclass(frozen=True)
class PredictOptions:
    """What is asked of a prediction.

    ``beam`` overrides the recipe's. At most ``nbest`` outputs are given for each input, with ``cover`` only as many of
    the most probable as have that much of the probability together. With ``sample``, so many outputs are drawn instead,
    by ``seed``. ``align`` says whether outputs come with their alignments. Features that training never saw are refused
    unless ``allow_unknown_features``, which has the model read them as unknown.
    """

    beam: int | None = None
    nbest: int = 1
    cover: float | None = None
    sample: int | None = None
    seed: int = 1
    align: bool = True
    allow_unknown_features: bool = False

    def __post_init__(self) -> None:
        check_positive("beam", self.beam)
        check_positive("nbest", self.nbest)
        check_positive("sample", self.sample)
        if self.cover is not None and not 0 < self.cover <= 1:
            raise InputError(f"cover = {self.cover!r}: expected a probability above 0, at most 1")
        if self.sample is not None and (self.cover is not None or self.nbest > 1):
            raise InputError("sample: outputs are drawn, expected neither cover nor nbest with it")


class StreamOptions(TypedDict, total=False):
    """How a stream decides what to write.

    ``greedy`` writes as soon as writing is more probable than reading on; ``beam`` writes what all outputs share that
    are at most ``margin`` nats behind the best. A higher ``emit_bias`` and a lower ``margin`` write sooner.
    """

    policy: Policy
    emit_bias: float
    beam: int | None
    margin: float | None


def as_features(features: FeaturesLike) -> tuple[str, ...]:
    """The single features, of a string such as ``N;DAT;PL`` too."""
    return split_features(features) if isinstance(features, str) else tuple(features)


def as_source(source: SourceLike, *, reads_features: bool) -> Source:
    """The source that is meant; one without the features that a model reads, or with any that it does not, is refused.

    ``(text, ())`` says that a text has none.
    """
    if isinstance(source, str):
        if reads_features and source.strip():
            raise InputError(
                f"input {source!r}: no features, but the run was trained with them, expected (text, features) such as "
                f"({source!r}, 'N;DAT;PL')"
            )
        return Source(source)
    if not isinstance(source, tuple) or len(source) != 2 or not isinstance(source[0], str):
        raise InputError(f"input {source!r}: neither a text nor (text, features), expected one of them")
    text, features = source[0], as_features(source[1])
    if features and not reads_features:
        raise InputError(
            f"input {text!r}: features {';'.join(features)}, but the run was trained without, expected the text alone"
        )
    return Source(text, features)


def check_features(features: Sequence[str], known: Collection[str], where: str, otherwise: str = "") -> None:
    """Refuses a feature that training never saw, with the nearest one that it did see and any other way out."""
    for feature in features:
        if feature not in known:
            near = nearest_feature(feature, known)
            hint = f"did you mean {one_line(near)}?" if near else "training saw no features at all"
            raise InputError(f"{where}: feature {one_line(feature)} was never seen in training, {hint}{otherwise}")


def nearest_feature(feature: str, known: Collection[str]) -> str:
    """The most similar of the known features, whatever their case; empty if there are none."""
    by_lower_case = {name.lower(): name for name in sorted(known)}
    near = get_close_matches(feature[:_LONGEST_COMPARED].lower(), by_lower_case, n=1, cutoff=0.0)
    return by_lower_case[near[0]] if near else ""


def as_pair(pair: PairLike, *, reads_features: bool) -> tuple[Source, str]:
    """The source and the target of a pair."""
    if isinstance(pair, Pair):
        return Source(pair.source, pair.features), pair.target
    if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[1], str):
        raise InputError(f"pair {pair!r}: expected (source, target) or ((text, features), target)")
    return as_source(pair[0], reads_features=reads_features), pair[1]


def refuse_single(given: Iterable[object], name: str) -> None:
    """Refuses one input where several are expected: a string would be read letter by letter."""
    if isinstance(given, str | Source | Pair):
        raise InputError(f"{name}: a single input {given!r}, expected a list such as [{given!r}]")


def check_positive(name: str, value: object) -> None:
    """Refuses anything but a whole number from 1 on, or None."""
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise InputError(f"{name} = {value!r}: expected a whole number, at least 1")


def check_stream_options(options: Mapping[str, object]) -> None:
    """Refuses options that there are not, and values that they cannot have."""
    known = list(StreamOptions.__annotations__)
    for name in options:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"expected {', '.join(known)}"
            raise InputError(f"stream: unknown option {name}, {hint}")
    if options.get("policy", "beam") not in get_args(Policy):
        raise InputError(f"policy = {options['policy']!r}: expected {' or '.join(get_args(Policy))}")
    check_positive("beam", options.get("beam"))
    _check_number("emit_bias", options.get("emit_bias", 0.0))
    _check_number("margin", options.get("margin") or 0.0, least=0.0)


def _check_number(name: str, value: object, least: float = -math.inf) -> None:
    """Refuses what is no number, NaN, or too low."""
    if not isinstance(value, int | float) or not value >= least:
        bound = "" if least == -math.inf else f", at least {least:g}"
        raise InputError(f"{name} = {value!r}: expected a number{bound}")
