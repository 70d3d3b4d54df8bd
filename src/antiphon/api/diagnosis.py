"""What a model gets wrong, and which pairs it finds improbable."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from antiphon.api.results import Prediction
from antiphon.data.readers import Source
from antiphon.exceptions import InputError
from antiphon.metrics.breakdown import By, Traits, break_down
from antiphon.metrics.edits import count_edits
from antiphon.metrics.output_metrics import Outputs, accuracy
from antiphon.report.error_report import Against, Difference, ErrorReport, Mistake, Suspect
from antiphon.runs.kinds import KINDS

if TYPE_CHECKING:
    from antiphon.api.model import Model


_MOST_EDITS = 100
"""Kinds of edits that are listed at most."""


class Given(NamedTuple):
    """A pair to look at; ``where`` is its ``file:line``, or empty."""

    source: Source
    target: str
    where: str

    def listed(self) -> tuple[str, str, tuple[str, ...]]:
        """How the pair is listed: where, source text, features."""
        return self.where, self.source.text, self.source.features


@dataclass(frozen=True)
class Answers:
    """The outputs of a model for some pairs, and which of them are right."""

    predictions: list[Prediction]
    outputs: Outputs
    right: list[bool]


def answer_pairs(model: "Model", given: Sequence[Given], beam: int | None) -> Answers:
    """The best output for every pair, judged as ``evaluate`` judges it."""
    sources = [pair.source for pair in given]
    predictions = model.predict(sources, beam=beam, align=False, allow_unknown_features=True)
    outputs = Outputs.of(model.codec.target, [each.tokens for each in predictions], [[pair.target] for pair in given])
    return Answers(predictions, outputs, [bool(part) for part in accuracy(outputs).parts])


def find_errors(
    model: "Model",
    given: Sequence[Given],
    *,
    against: "Model | None",
    by: Sequence[By],
    most: int | None,
    beam: int | None,
) -> ErrorReport:
    """The report on all pairs; of mistakes and of differences each way, at most ``most`` are listed."""
    answers = answer_pairs(model, given, beam)
    other = None if against is None else answer_pairs(against, given, beam)
    wrong = [index for index, right in enumerate(answers.right) if not right]
    return ErrorReport(
        pairs=len(given),
        right=len(given) - len(wrong),
        mistakes=tuple(_mistakes(model, given, answers, wrong[:most])),
        groups=tuple(break_down(answers.outputs, traits_of(model, given), by, ["accuracy"])),
        edits=tuple(count_edits(answers.outputs, [pair.source.text for pair in given])[:_MOST_EDITS]),
        against=None if other is None else _compare(given, answers, other, most),
    )


def traits_of(model: "Model", given: Sequence[tuple[Source, str] | Given]) -> list[Traits]:
    """What every pair is grouped by."""
    codec = model.codec
    found = []
    for source, target, *_ in given:
        tokens = codec.source.tokens(source.text)
        sides = (("source", model.unseen_symbols(source)), ("reference", codec.target.count_unknown(target)))
        found.append(Traits(source.features, len(tokens), tuple(name for name, unseen in sides if unseen)))
    return found


def find_suspicious(model: "Model", given: Sequence[Given], *, most: int | None, beam: int | None) -> list[Suspect]:
    """The pairs from the least probable target per token on, with the model's own outputs."""
    scores = model.score([(pair.source, pair.target) for pair in given])
    lengths = [len(model.codec.target.tokens(pair.target)) + 1 for pair in given]
    per_token = [score / length for score, length in zip(scores, lengths, strict=True)]
    chosen = sorted(range(len(given)), key=per_token.__getitem__)[:most]
    outputs = _own_outputs(model, [given[index].source for index in chosen], beam)
    return [
        Suspect(
            *given[index].listed(),
            target=given[index].target,
            log_probability_per_token=per_token[index],
            probability=math.exp(scores[index]),
            output=None if output is None else output.text,
            output_probability=None if output is None else output.probability,
        )
        for index, output in zip(chosen, outputs, strict=True)
    ]


def _own_outputs(model: "Model", sources: list[Source], beam: int | None) -> Sequence[Prediction | None]:
    """What the model writes for each source; a language model writes nothing."""
    if not model.answers:
        return [None] * len(sources)
    return model.predict(sources, beam=beam, align=False, allow_unknown_features=True)


def _mistakes(model: "Model", given: Sequence[Given], answers: Answers, wrong: Sequence[int]) -> list[Mistake]:
    pairs = [(given[index].source, given[index].target) for index in wrong]
    scores = model.score(pairs) if model.gives_probabilities else [None] * len(wrong)
    mistakes = []
    for index, score in zip(wrong, scores, strict=True):
        pair, prediction = given[index], answers.predictions[index]
        mistakes.append(
            Mistake(
                *pair.listed(),
                reference=pair.target,
                output=prediction.text,
                probability=prediction.probability,
                reference_probability=None if score is None else math.exp(score),
                alignment=_alignment(model, pair.source, prediction.text),
                unseen=(*prediction.unknown, *_unseen_tokens(model, pair.target)),
            )
        )
    return mistakes


def _alignment(model: "Model", source: Source, output: str | None) -> str | None:
    """The pairs of positions that ``antiphon align`` writes for an output; None for a kind that has none."""
    if output is None or model.kind not in KINDS or KINDS[model.kind].explain is None:
        return None
    return next(iter(model.align([(source, output)]))).pharaoh()


def _unseen_tokens(model: "Model", text: str) -> list[str]:
    target = model.codec.target
    return [token for token in target.tokens(text) if token not in target.vocab]


def _compare(given: Sequence[Given], ours: Answers, theirs: Answers, most: int | None) -> Against:
    """The pairs that one model gets right and the other does not, both ways."""
    pairs = list(zip(ours.right, theirs.right, strict=True))

    def listed(wanted: tuple[bool, bool]) -> tuple[Difference, ...]:
        indices = (index for index, right in enumerate(pairs) if right == wanted)
        return tuple(_difference(given[n], ours.predictions[n], theirs.predictions[n]) for n in islice(indices, most))

    return Against(
        both_right=pairs.count((True, True)),
        only_this=pairs.count((True, False)),
        only_other=pairs.count((False, True)),
        neither=pairs.count((False, False)),
        won=listed((True, False)),
        lost=listed((False, True)),
    )


def _difference(pair: Given, ours: Prediction, theirs: Prediction) -> Difference:
    return Difference(
        *pair.listed(),
        reference=pair.target,
        output=ours.text,
        probability=ours.probability,
        other_output=theirs.text,
        other_probability=theirs.probability,
    )


def check_breakdowns(model: "Model", by: Sequence[By]) -> None:
    """Refuses groups by features of a model that reads none."""
    if "features" in by and not model.reads_features:
        raise InputError("by features: the run was trained without features, expected length or unseen")
