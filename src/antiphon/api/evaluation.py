"""Evaluates a model: pairs its outputs with references, computes metrics, and counts unknown symbols."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from antiphon.api.error_analysis import traits_of
from antiphon.exceptions import InputError
from antiphon.metrics.breakdown import By, Group, break_down
from antiphon.metrics.output_metrics import Outputs, Score, deletion_metrics, perplexity, score_outputs
from antiphon.runs.build import task_metrics
from antiphon.torch_free.codec import PairCodec, Words
from antiphon.torch_free.readers import Source
from antiphon.torch_free.results import Evaluation

if TYPE_CHECKING:
    from antiphon.api.model import Model


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
