"""Evaluates a model: metrics of outputs and their groups, its mistakes, and the pairs that it finds improbable."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from antiphon.exceptions import InputError
from antiphon.metrics.breakdown import EVERY_BREAKDOWN, By, Group, Traits, break_down, count_edits
from antiphon.metrics.delay import Delays, score_delays
from antiphon.metrics.output_metrics import Outputs, Score, accuracy, deletion_metrics, perplexity, score_outputs
from antiphon.report.error_report import Difference, ErrorReport, Mistake, ModelDifferences, Suspect
from antiphon.runs.build import task_metrics
from antiphon.torch_free.codec import PairCodec, Words
from antiphon.torch_free.inputs import PairLike, as_pair, check_choices
from antiphon.torch_free.readers import Pair, Source
from antiphon.torch_free.results import Evaluation, Prediction
from antiphon.torch_free.streams import Timed

if TYPE_CHECKING:
    from antiphon.api.model import Model

_MAX_EDITS = 100
"""Maximum number of distinct edits in a report."""


def with_references(
    codec: PairCodec,
    predicted: Sequence[Sequence[str]],
    given: Sequence[tuple[Source, str]],
    more_references: Sequence[Sequence[str]],
) -> Outputs:
    """Outputs with all their references, and with their sources where both sides are words."""
    further = more_references or [()] * len(given)
    if len(further) != len(given):
        raise InputError(f"more_references: {len(further)} lists for {len(given)} pairs, expected one for each")
    references = [[text, *others] for (_, text), others in zip(given, further, strict=True)]
    both_words = isinstance(codec.source.tokeniser, Words) and isinstance(codec.target.tokeniser, Words)
    sources = [codec.source.tokens(source.text) for source, _ in given] if both_words else None
    return Outputs.of(codec.target, predicted, references, sources)


def score_task(model: "Model", outputs: Outputs) -> dict[str, Score]:
    """Every metric that suits the task, and those of compression where references are made by deletion."""
    return score_outputs(outputs, _names(model, outputs))


def evaluate_outputs(
    model: "Model",
    given: Sequence[tuple[Source, str]],
    outputs: Outputs | None,
    scored: Sequence[tuple[float, int]] | None,
    by: Sequence[By],
) -> Evaluation:
    """The metrics of outputs, if there are any, of groups of them, and the perplexity of log probabilities."""
    metrics: dict[str, Score] = {}
    groups: list[Group] = []
    if outputs is not None:
        metrics |= score_task(model, outputs)
        groups = break_down(outputs, traits_of(model, given), by, _names(model, outputs)) if by else []
    if scored is not None:
        metrics["perplexity"] = perplexity(sum(log_prob for log_prob, _ in scored), sum(n for _, n in scored))
    return evaluation_of(model, given, metrics, groups)


def evaluate_streams(
    model: "Model",
    given: Sequence[tuple[Source, str]],
    written: Sequence[Timed],
    more_references: Sequence[Sequence[str]],
) -> Evaluation:
    """The metrics and the delay of outputs that streams wrote."""
    outputs = with_references(model.codec, [each.tokens for each in written], given, more_references)
    lengths = [len(model.codec.source.tokens(source.text)) for source, _ in given]
    delays = [
        Delays(each.read, length, len(wanted[0]))
        for each, length, wanted in zip(written, lengths, outputs.reference_tokens, strict=True)
    ]
    return evaluation_of(model, given, score_task(model, outputs) | score_delays(delays))


def evaluation_of(
    model: "Model", given: Sequence[tuple[Source, str]], metrics: dict[str, Score], groups: Sequence[Group] = ()
) -> Evaluation:
    """The metrics with the number of pairs and of symbols that training never saw."""
    return Evaluation(
        examples=len(given),
        metrics=metrics,
        unknown_source=sum(len(model.unseen_symbols(source)) for source, _ in given),
        unknown_target=sum(model.codec.target.count_unknown(wanted) for _, wanted in given),
        groups=tuple(groups),
    )


def _names(model: "Model", outputs: Outputs) -> list[str]:
    return [*task_metrics(model.recipe.data), *deletion_metrics(outputs)]


class LocatedPair(NamedTuple):
    """A pair to analyse; ``where`` is its ``file:line``, or empty."""

    source: Source
    target: str
    where: str

    def listed(self) -> tuple[str, str, tuple[str, ...]]:
        """The first columns of a listed pair: where, source text, features."""
        return self.where, self.source.text, self.source.features


def locate(model: "Model", pairs: Iterable[PairLike]) -> list[LocatedPair]:
    """The pairs with their file and line, if known."""
    return [
        LocatedPair(*as_pair(pair, reads_features=model.reads_features), pair.where if isinstance(pair, Pair) else "")
        for pair in pairs
    ]


@dataclass(frozen=True)
class JudgedOutputs:
    """The outputs of a model for pairs, and which of them are correct."""

    predictions: list[Prediction]
    outputs: Outputs
    right: list[bool]


def predict_and_judge(model: "Model", given: Sequence[LocatedPair], beam: int | None) -> JudgedOutputs:
    """The best output for every pair, judged by the accuracy of ``evaluate``."""
    sources = [pair.source for pair in given]
    predictions = model.predict(sources, beam=beam, align=False, allow_unknown_features=True)
    outputs = Outputs.of(model.codec.target, [each.tokens for each in predictions], [[pair.target] for pair in given])
    return JudgedOutputs(predictions, outputs, [bool(part) for part in accuracy(outputs).parts])


def find_errors(
    model: "Model",
    given: Sequence[LocatedPair],
    *,
    against: "Model | None",
    by: Sequence[By],
    most: int | None,
    beam: int | None,
) -> ErrorReport:
    """The report on all pairs; at most ``most`` mistakes, and differences in each direction, are listed."""
    judged = predict_and_judge(model, given, beam)
    other = None if against is None else predict_and_judge(against, given, beam)
    wrong = [index for index, right in enumerate(judged.right) if not right]
    return ErrorReport(
        pairs=len(given),
        right=len(given) - len(wrong),
        mistakes=tuple(_mistakes(model, given, judged, wrong[:most])),
        groups=tuple(break_down(judged.outputs, traits_of(model, given), by, ["accuracy"])),
        edits=tuple(count_edits(judged.outputs, [pair.source.text for pair in given])[:_MAX_EDITS]),
        against=None if other is None else _compare(given, judged, other, most),
    )


def traits_of(model: "Model", given: Sequence[tuple[Source, str] | LocatedPair]) -> list[Traits]:
    """The properties that pairs are grouped by."""
    codec = model.codec
    found = []
    for source, target, *_ in given:
        tokens = codec.source.tokens(source.text)
        sides = (("source", model.unseen_symbols(source)), ("reference", codec.target.count_unknown(target)))
        found.append(Traits(source.features, len(tokens), tuple(name for name, unseen in sides if unseen)))
    return found


def find_suspicious(
    model: "Model", given: Sequence[LocatedPair], *, most: int | None, beam: int | None
) -> list[Suspect]:
    """The pairs, the least probable target per token first, with the outputs of the model."""
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
    """The output of the model for each source; None for a language model."""
    if not model.can_predict:
        return [None] * len(sources)
    return model.predict(sources, beam=beam, align=False, allow_unknown_features=True)


def _mistakes(
    model: "Model", given: Sequence[LocatedPair], judged: JudgedOutputs, wrong: Sequence[int]
) -> list[Mistake]:
    pairs = [(given[index].source, given[index].target) for index in wrong]
    scores = model.score(pairs) if model.can_score else [None] * len(wrong)
    mistakes = []
    for index, score in zip(wrong, scores, strict=True):
        pair, prediction = given[index], judged.predictions[index]
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
    """The positions that ``antiphon align`` writes for an output; None for kinds without alignments."""
    if output is None or not model.can_align:
        return None
    return next(iter(model.align([(source, output)]))).pharaoh()


def _unseen_tokens(model: "Model", text: str) -> list[str]:
    target = model.codec.target
    return [token for token in target.tokens(text) if token not in target.vocab]


def _compare(
    given: Sequence[LocatedPair], ours: JudgedOutputs, theirs: JudgedOutputs, most: int | None
) -> ModelDifferences:
    """The pairs that only one of two models gets right."""
    pairs = list(zip(ours.right, theirs.right, strict=True))

    def listed(wanted: tuple[bool, bool]) -> tuple[Difference, ...]:
        indices = (index for index, right in enumerate(pairs) if right == wanted)
        return tuple(_difference(given[n], ours.predictions[n], theirs.predictions[n]) for n in islice(indices, most))

    return ModelDifferences(
        both_right=pairs.count((True, True)),
        only_this=pairs.count((True, False)),
        only_other=pairs.count((False, True)),
        neither=pairs.count((False, False)),
        won=listed((True, False)),
        lost=listed((False, True)),
    )


def _difference(pair: LocatedPair, ours: Prediction, theirs: Prediction) -> Difference:
    return Difference(
        *pair.listed(),
        reference=pair.target,
        output=ours.text,
        probability=ours.probability,
        other_output=theirs.text,
        other_probability=theirs.probability,
    )


def choose_breakdowns(model: "Model", by: Sequence[By] | None) -> Sequence[By]:
    """The requested groups, or all that apply to the model; features are refused for a model that reads none."""
    if by is None:
        return [each for each in EVERY_BREAKDOWN if each != "features" or model.reads_features]
    check_choices("by", by, EVERY_BREAKDOWN)
    if "features" in by and not model.reads_features:
        raise InputError("by features: the run was trained without features, expected length or unseen")
    return by
