"""Arguments of a model: clear ones are converted, others refused in a sentence."""

import math
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Literal, TypedDict, TypeGuard, get_args

from antiphon.exceptions import InputError
from antiphon.terminal import one_line
from antiphon.torch_free.readers import Pair, Source, split_features

FeaturesLike = str | Sequence[str]
"""Features as in a file (``"N;DAT;PL"``), or as a list."""
SourceLike = str | tuple[str, FeaturesLike] | Source
"""A text, or a text with its features."""
PairLike = Pair | tuple[SourceLike, str] | tuple[str, str, FeaturesLike] | list[str]
"""A source with its target: ``(source, target)`` or ``(text, target, features)``; lists are taken too."""
PairsLike = Iterable[PairLike] | str | Path
"""Pairs, or the path of a file of them."""
Policy = Literal["greedy", "beam"]
_LONGEST_COMPARED = 100
"""Maximum number of characters of an unknown feature that are compared with known ones."""
_MAX_COUNT = 10**6
"""Largest number of outputs or hypotheses for an input."""
MAX_THREADS = 1024
MAX_BIAS = 1000.0
"""Largest emit bias of a stream: far above it, only one of writing and reading is possible."""
_MAX_COVERING = 100
"""Outputs that an input gets at most if ``cover`` is given and ``nbest`` is not."""


@dataclass(frozen=True)
class PredictOptions:
    """Options of a prediction.

    ``beam`` overrides the beam size of the recipe. Each input gets at most ``nbest`` outputs; unset, 1. With ``cover``
    it gets the fewest whose probabilities add up to it, unset at most 100. With ``sample``, that many outputs are drawn
    with the random ``seed`` instead. ``align`` adds alignments. Features that training never saw are refused, or with
    ``allow_unknown_features`` read as unknown. Outputs begin with the tokens of ``prefix``.
    """

    beam: int | None = None
    nbest: int | None = None
    cover: float | None = None
    sample: int | None = None
    seed: int = 1
    align: bool = True
    allow_unknown_features: bool = False
    prefix: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_positive("beam", self.beam)
        check_whole("nbest", self.max_outputs, least=1, most=_MAX_COUNT)
        check_positive("sample", self.sample)
        check_whole("seed", self.seed, least=0)
        check_probability("cover", self.cover)
        check_boolean("align", self.align)
        check_boolean("allow_unknown_features", self.allow_unknown_features)
        if self.sample is not None and (self.cover is not None or self.max_outputs > 1):
            raise InputError("sample: draws outputs at random, expected neither cover nor nbest with it")
        if self.sample is not None and self.prefix:
            raise InputError("sample: draws outputs at random, expected no prefix with it")

    @property
    def max_outputs(self) -> int:
        """Outputs that an input gets at most."""
        if self.nbest is not None:
            return self.nbest
        return 1 if self.cover is None else _MAX_COVERING


class StreamOptions(TypedDict, total=False):
    """Options of a stream.

    The policy ``greedy`` writes as soon as writing is more probable than reading. ``beam`` writes what all hypotheses
    share that are at most ``margin`` nats behind the best. A higher ``emit_bias`` or a lower ``margin`` writes sooner.
    """

    policy: Policy
    emit_bias: float
    beam: int | None
    margin: float | None


def as_features(features: FeaturesLike, where: str) -> tuple[str, ...]:
    """The single features; a string such as ``N;DAT;PL`` is split as in a file."""
    if isinstance(features, str):
        return split_features(features)
    if not isinstance(features, Sequence) or not all(isinstance(feature, str) for feature in features):
        raise InputError(f"{where}: features {features!r}, expected a string such as 'N;DAT;PL' or a list of strings")
    return split_features(";".join(features))


def as_source(source: SourceLike, *, reads_features: bool) -> Source:
    """The source; one without the features that a model reads, or with features that it does not read, is refused.

    ``(text, ())`` is a text without features.
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
    text, features = source[0], as_features(source[1], f"input {source[0]!r}")
    if features and not reads_features:
        raise InputError(
            f"input {text!r}: features {';'.join(features)}, but the run was trained without, expected the text alone"
        )
    return Source(text, features)


def check_features(features: Sequence[str], known: Collection[str], where: str, otherwise: str = "") -> None:
    """Refuses a feature that training never saw, naming the nearest one; ``otherwise`` adds another way out."""
    for feature in features:
        if feature not in known:
            near = nearest_feature(feature, known)
            hint = f"did you mean {one_line(near)}?" if near else "training saw no features at all"
            raise InputError(f"{where}: feature {one_line(feature)} was never seen in training, {hint}{otherwise}")


def nearest_feature(feature: str, known: Collection[str]) -> str:
    """The most similar known feature, ignoring case; empty if there are none."""
    by_lower_case = {name.lower(): name for name in sorted(known)}
    near = get_close_matches(feature[:_LONGEST_COMPARED].lower(), by_lower_case, n=1, cutoff=0.0)
    return by_lower_case[near[0]] if near else ""


def as_pair(pair: PairLike, *, reads_features: bool) -> tuple[Source, str]:
    """The source and the target of a pair: ``(source, target)`` or ``(text, target, features)``."""
    if isinstance(pair, Pair):
        return Source(pair.source, pair.features), pair.target
    if not isinstance(pair, tuple | list) or len(pair) not in (2, 3) or not isinstance(pair[1], str):
        raise InputError(
            f"pair {pair!r}: expected (source, target), or with features (source, target, features) or "
            "((source, features), target)"
        )
    source = pair[0] if len(pair) == 2 else (pair[0], pair[2])
    return as_source(source, reads_features=reads_features), pair[1]


def as_tokens(tokens: Sequence[str]) -> tuple[str, ...]:
    """The tokens; a single string, which would be read letter by letter, is refused."""
    if isinstance(tokens, str) or not isinstance(tokens, Sequence) or not all(isinstance(each, str) for each in tokens):
        raise InputError(f"prefix = {tokens!r}: expected a list of tokens")
    return tuple(tokens)


def check_several(given: object, name: str) -> None:
    """Refuses anything but a collection of inputs; a single string would be read letter by letter."""
    if isinstance(given, str | Source | Pair):
        shown = one_line(repr(given))
        raise InputError(f"{name}: a single input {shown}, expected a list such as [{shown}]")
    if not isinstance(given, Iterable) or isinstance(given, bytes | Mapping):
        raise InputError(f"{name}: {one_line(repr(given))} is not a list of inputs, expected one such as ['text']")


def check_not_empty(given: Collection[object], name: str) -> None:
    """Refuses an empty list, which has no metrics."""
    if not given:
        raise InputError(f"{name}: no pairs, expected at least one")


def check_model(name: str, given: object) -> None:
    """Refuses anything but a loaded model or None, such as the path of a run."""
    if given is not None and not hasattr(given, "check_can_align"):
        raise InputError(f"{name} = {given!r}: expected a model as antiphon.load returns it")


def check_choices(name: str, given: object, choices: Sequence[str]) -> None:
    """Refuses anything but a list of some of the choices."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise InputError(f"{name} = {given!r}: expected a list of {', '.join(choices)}")
    for each in given:
        if each not in choices:
            raise InputError(f"{name}: unknown {each!r}, expected {', '.join(choices)}")


def as_path(name: str, given: object) -> Path:
    """The path; anything but a string or a path is refused."""
    if not isinstance(given, str | Path) or not str(given):
        raise InputError(f"{name} = {given!r}: expected a path")
    return Path(given)


def check_probability(name: str, value: object) -> None:
    """Refuses anything but a probability above 0, or None."""
    if value is not None and not (_is_number(value) and 0 < value <= 1):
        raise InputError(f"{name} = {value!r}: expected a probability above 0, at most 1")


def check_settings(settings: object, key: str, value: int) -> None:
    """Refuses settings that are neither a dict nor a list; the message shows ``key`` with ``value`` as an example."""
    if isinstance(settings, str) or not isinstance(settings, Iterable):
        raise InputError(f"settings = {settings!r}: expected a dict such as {{{key!r}: {value}}}")


def check_positive(name: str, value: object, most: int = _MAX_COUNT) -> None:
    """Refuses anything but a whole number from 1 to ``most``, or None."""
    if value is not None:
        check_whole(name, value, least=1, most=most)


def check_threads(value: object) -> None:
    """Refuses a number of threads that no machine has; None is chosen later."""
    check_positive("threads", value, most=MAX_THREADS)


def check_whole(name: str, value: object, *, least: int, most: float = math.inf) -> None:
    """Refuses anything but a whole number from ``least`` to ``most``."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InputError(f"{name} = {value!r}: expected a whole number, at least {least}")
    if value > most:
        raise InputError(f"{name}: too large, expected a whole number, at most {most:,}")


def check_boolean(name: str, value: object) -> None:
    """Refuses anything but True and False."""
    if not isinstance(value, bool):
        raise InputError(f"{name} = {value!r}: expected True or False")


def check_stream_options(options: Mapping[str, object]) -> None:
    """Refuses unknown options, naming the nearest, and impossible values."""
    known = list(StreamOptions.__annotations__)
    for name in options:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"expected {', '.join(known)}"
            raise InputError(f"stream: unknown option {name}, {hint}")
    if str(options.get("policy", "beam")) not in get_args(Policy):
        raise InputError(f"policy = {options['policy']!r}: expected {' or '.join(get_args(Policy))}")
    check_positive("beam", options.get("beam"))
    _check_number("emit_bias", options.get("emit_bias", 0.0), least=-MAX_BIAS, most=MAX_BIAS)
    margin = options.get("margin")
    _check_number("margin", 0.0 if margin is None else margin, least=0.0)


def _check_number(name: str, value: object, *, least: float, most: float = math.inf) -> None:
    """Refuses anything but a number from ``least`` to ``most``; NaN is refused."""
    if not (_is_number(value) and least <= value <= most):
        bound = "" if most == math.inf else f", at most {most:g}"
        raise InputError(f"{name} = {value!r}: expected a number, at least {least:g}{bound}")


def _is_number(value: object) -> TypeGuard[float]:
    """Whether it is a number that fits into a float; infinity does, a boolean is not a number."""
    if isinstance(value, bool):
        return False
    return isinstance(value, float) or (isinstance(value, int) and abs(value) <= sys.float_info.max)
