"""The official measures against a slow obvious twin, on rankings full of ties."""

import random

import pytest

from antiphon.metrics.output_metrics import compute_ranking_metrics


def twin(judged, rankings):
    """MAP, MRR and P@1 by their definitions; equal scores go by id descending, a missing question counts 0."""
    totals = {"map": 0.0, "mrr": 0.0, "p_at_1": 0.0}
    for question, labels in judged.items():
        scores = rankings.get(question, {})
        order = sorted(sorted(scores, reverse=True), key=lambda answer: -scores[answer])
        right = [place for place, answer in enumerate(order, 1) if labels.get(answer, 0)]
        precisions = [number / place for number, place in enumerate(right, 1)]
        totals["map"] += sum(precisions) / max(1, sum(labels.values()))
        totals["mrr"] += 1 / right[0] if right else 0.0
        totals["p_at_1"] += float(right[:1] == [1])
    return {name: total / len(judged) for name, total in totals.items()}


@pytest.mark.parametrize("seed", range(25))
def test_metrics_agree_with_their_definitions_on_ties_and_missing_questions(seed):
    draw = random.Random(seed)
    judged, rankings = {}, {}
    for question in range(draw.randint(1, 12)):
        answers = [f"{question}-{number}" for number in range(draw.randint(1, 12))]
        judged[str(question)] = {answer: draw.randint(0, 1) for answer in answers}
        if draw.random() < 0.9 or not rankings:
            rankings[str(question)] = {answer: float(draw.randint(0, 2)) for answer in answers}
    measured = {name: shares.score().value for name, shares in compute_ranking_metrics(judged, rankings).items()}
    assert measured == pytest.approx(twin(judged, rankings), abs=1e-6)


def test_the_signature_says_which_questions_and_how_ties_are_broken():
    shares = compute_ranking_metrics({"1": {"a": 1, "b": 0}}, {"1": {"a": 0.5, "b": 0.5}}, "mixed")
    assert shares["map"].score().value == 0.5
    assert shares["map"].signature.startswith("1 questions (mixed)|ties by id descending|trec_eval, ir-measures")
