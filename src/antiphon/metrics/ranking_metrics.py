"""Mean average precision, mean reciprocal rank and precision at 1, by the official ``trec_eval`` through ir-measures.

Equal scores are ordered as ``trec_eval`` orders them, by candidate id descending, so the order of a file does not
matter. A judged question without a ranking counts 0.
"""

from collections.abc import Mapping

import numpy as np

from antiphon.exceptions import InputError, how_to_install
from antiphon.metrics.output_metrics import RatioStats

Rankings = Mapping[str, Mapping[str, float]]
"""The score of every candidate of every question, by their ids; higher is better."""

RANKING_METRICS = {"map": "AP", "mrr": "RR", "p_at_1": "P@1"}
"""Our names and those of ir-measures."""


def compute_ranking_metrics(
    judged: Mapping[str, Mapping[str, int]], rankings: Rankings, about: str = "all"
) -> dict[str, RatioStats]:
    """Every metric over the judged questions; ``about`` describes them in the signature."""
    try:
        import ir_measures
    except ImportError:
        raise InputError(
            f"MAP and MRR: ir-measures is missing, expected it installed: {how_to_install('qa')}"
        ) from None
    measures = {ir_measures.parse_measure(theirs): ours for ours, theirs in RANKING_METRICS.items()}
    found: dict[str, dict[str, float]] = {name: {} for name in RANKING_METRICS}
    for value in ir_measures.iter_calc(list(measures), judged, rankings):
        found[measures[value.measure]][value.query_id] = float(value.value)
    signature = (
        f"{len(judged)} questions ({about})|ties by id descending|trec_eval, ir-measures {ir_measures.__version__}"
    )
    return {
        name: RatioStats(
            np.array([values.get(question, 0.0) for question in judged]), np.ones(len(judged)), 1.0, signature
        )
        for name, values in found.items()
    }
