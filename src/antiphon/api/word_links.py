"""Links between the words of given pairs: of one model, or of two that read them in opposite directions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from antiphon.decode.alignments import COMBINATIONS
from antiphon.exceptions import InputError
from antiphon.metrics.gold_links import GoldLinks, Link, score_links
from antiphon.metrics.output_metrics import Score
from antiphon.terminal import one_line
from antiphon.torch_free.codec import Chars, TextCodec
from antiphon.torch_free.inputs import check_choices, check_model, check_probability
from antiphon.torch_free.readers import Source
from antiphon.torch_free.results import Alignment

if TYPE_CHECKING:
    from antiphon.api.model import Model


@dataclass(frozen=True)
class WordLinks:
    """The links between the words of a pair, counted from 0, and how they were found.

    Characters count as words where they are the tokens. ``method`` names attention if weights of attention were used.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    links: tuple[Link, ...]
    method: str

    def pharaoh(self) -> str:
        """The links as ``i-j`` pairs."""
        return " ".join(f"{i}-{j}" for i, j in self.links)

    def to_dict(self) -> dict[str, Any]:
        """Words, links and method."""
        return {"source": self.source, "target": self.target, "alignment": self.links, "method": self.method}


class LinkOptions(TypedDict, total=False):
    """How links are found.

    Without ``threshold``, links are those of the best path, or of the largest attention weights; with it, those whose
    posterior (or attention weight) is larger. The links of ``reverse``, a model that reads pairs in the opposite
    direction, are combined with them by ``combine``: intersection, union or grow-diag, the default.
    """

    threshold: float | None
    reverse: "Model | None"
    combine: str


@dataclass(frozen=True)
class WordLinker:
    """Finds links between words by one model, or by two of opposite directions; see ``LinkOptions``."""

    model: "Model"
    threshold: float | None = None
    reverse: "Model | None" = None
    combine: str = "grow-diag"

    def __post_init__(self) -> None:
        check_model("reverse", self.reverse)
        for model in (self.model, *filter(None, [self.reverse])):
            model.check_can_align()
        check_probability("threshold", self.threshold)
        check_choices("combine", [self.combine], list(COMBINATIONS))
        if self.reverse is not None and self.reverse.recipe.data.swap == self.model.recipe.data.swap:
            raise InputError(
                "reverse: a run that reads pairs in the same direction, expected one trained with the other data.swap"
            )

    def links(self, given: Sequence[tuple[Source, str]]) -> Iterator[WordLinks]:
        """The links of every pair, in the direction of the model."""
        for number, (source, target) in enumerate(given, 1):
            where = f"pair {number}"
            found = _links_of(self.model, source, target, self.threshold, where)
            if self.reverse is not None:
                opposite = Source(target, source.features)
                backward = _links_of(self.reverse, opposite, source.text, self.threshold, where)
                found = _combine(found, backward, self.combine, where)
            yield found

    def scores(self, given: Sequence[tuple[Source, str]], gold: Sequence[GoldLinks | str]) -> dict[str, Score]:
        """Alignment error rate, precision and recall of the links of every pair."""
        if len(gold) != len(given):
            raise InputError(f"gold: links of {len(gold)} pairs for {len(given)} pairs, expected one for each")
        wanted = [_as_gold(links, f"gold {number}") for number, links in enumerate(gold, 1)]
        if not any(each.sure for each in wanted):
            raise InputError("gold: no sure links, expected at least one, since recall counts them")
        codec = self.model.codec
        for number, ((source, target), links) in enumerate(zip(given, wanted, strict=True), 1):
            sizes = len(words_of(codec.source, source.text)), len(words_of(codec.target, target))
            links.check_inside(*sizes, f"gold {number}")
        found = list(self.links(given))
        return score_links([each.links for each in found], wanted, found[0].method)


def _as_gold(links: GoldLinks | str, where: str) -> GoldLinks:
    """Gold links; those given as text count words from 0."""
    if isinstance(links, str):
        return GoldLinks.parse(links, where)
    if not isinstance(links, GoldLinks):
        raise InputError(f"{where}: {links!r}, expected text such as '0-0 1p2', or GoldLinks")
    return links


def words_of(codec: TextCodec, text: str) -> list[str]:
    """The words that links count: those between spaces, or the characters where these are the tokens."""
    return codec.tokens(text) if isinstance(codec.tokeniser, Chars) else text.split()


def _links_of(model: "Model", source: Source, target: str, threshold: float | None, where: str) -> WordLinks:
    """The links of a pair, between words; links to end symbols are left out."""
    alignment = next(model.align([(source, target)]))
    rows, columns = (
        _word_indices(codec, text, f"{where}, {one_line(text, 60)!r}")
        for codec, text in ((model.codec.source, source.text), (model.codec.target, target))
    )
    links = _on_path(alignment, rows) if threshold is None else _above(alignment, rows, threshold)
    chosen = {"alignment": "best path", "attention": "largest attention weight, no alignment"}
    above = {"alignment": "posterior", "attention": "no alignment, attention weight"}
    return WordLinks(
        tuple(words_of(model.codec.source, source.text)),
        tuple(words_of(model.codec.target, target)),
        tuple(sorted({(i, columns[column]) for i, column in links})),
        chosen[alignment.method] if threshold is None else f"{above[alignment.method]} > {threshold:g}",
    )


def _word_indices(codec: TextCodec, text: str, where: str) -> list[int]:
    """The index of the word of each token."""
    indices = codec.tokeniser.word_indices(codec.tokens(text))
    found, expected = (indices[-1] + 1 if indices else 0), len(words_of(codec, text))
    if found != expected:
        raise InputError(
            f"{where}: {expected} words that the run reads as {found}, expected text whose words are tokens of the run"
        )
    return indices


def _on_path(alignment: Alignment, rows: Sequence[int]) -> set[Link]:
    """Source word and target token of each link of the best path, or of each largest attention weight."""
    return {(rows[row], column) for column, row in enumerate(alignment.rows[:-1]) if row < len(rows)}


def _above(alignment: Alignment, rows: Sequence[int], threshold: float) -> set[Link]:
    """Source word and target token wherever the posterior, summed over the tokens of the source word, is larger."""
    posterior = alignment.posterior[: len(rows), :-1]
    of_words = np.zeros((rows[-1] + 1 if rows else 0, posterior.shape[1]))
    np.add.at(of_words, list(rows), posterior)
    return {(int(i), int(column)) for i, column in np.argwhere(of_words > threshold)}


def _combine(forward: WordLinks, backward: WordLinks, how: str, where: str) -> WordLinks:
    """The links of both directions combined, in the direction of the first."""
    sizes = (len(forward.source), len(forward.target)), (len(backward.target), len(backward.source))
    if sizes[0] != sizes[1]:
        raise InputError(f"{where}: the two runs count words differently, expected the same kind of tokens in both")
    links = COMBINATIONS[how](set(forward.links), {(i, j) for j, i in backward.links})
    methods = dict.fromkeys((forward.method, backward.method))
    return WordLinks(forward.source, forward.target, tuple(sorted(links)), f"{' and '.join(methods)}, {how}")
