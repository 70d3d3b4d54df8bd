"""Sufficient statistics of corpus metrics: what each output adds, so that any selection of outputs is scored by a sum.

The statistics of an output are a vector, and the metric is a function of their sum. So they are computed once for every
candidate, however often the selection changes.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import sacrebleu
from numpy.typing import NDArray

from antiphon.metrics.output_metrics import LOWER_IS_BETTER, RATIO_METRICS, Outputs

Rows = NDArray[np.float64]


@dataclass(frozen=True)
class Statistics:
    """A row for every output, and the metric of a sum of rows; higher is better.

    ``gain`` is the quality of each single output, on the scale of the metric if that is a mean.
    """

    rows: Rows
    value: Callable[[Rows], float]
    gain: Rows


def statistics_of(name: str, outputs: Outputs) -> Statistics:
    """The statistics of a metric of outputs; chrF is taken as the mean over outputs."""
    if name == "bleu":
        return _bleu(outputs)
    if name == "chrf":
        metric = sacrebleu.CHRF()
        pairs = zip(outputs.predicted, outputs.references, strict=True)
        scores = np.array([metric.sentence_score(ours, list(theirs)).score for ours, theirs in pairs])
        return _ratio(scores, np.ones(len(scores)), 1.0)
    stats = RATIO_METRICS[name](outputs)
    return _ratio(stats.parts, stats.wholes, -stats.scale if name in LOWER_IS_BETTER else stats.scale)


def _ratio(parts: Rows, wholes: Rows, scale: float) -> Statistics:
    return Statistics(
        np.stack([parts, wholes], -1), lambda total: float(scale * total[0] / max(1.0, total[1])), scale * parts
    )


def _bleu(outputs: Outputs) -> Statistics:
    """N-gram matches and totals, and both lengths; the gain of an output is its smoothed sentence BLEU."""
    metric = sacrebleu.BLEU(tokenize="none", force=True, effective_order=True)
    pairs = zip(outputs.predicted, outputs.references, strict=True)
    scores = [metric.sentence_score(ours, list(theirs)) for ours, theirs in pairs]
    rows = np.array([[*each.counts, *each.totals, each.sys_len, each.ref_len] for each in scores], float)
    return Statistics(rows.reshape(-1, 10), _bleu_of, np.array([each.score for each in scores]))


def _bleu_of(total: Rows) -> float:
    """Corpus BLEU from summed statistics."""
    counts, totals = ([int(value) for value in part] for part in (total[:4], total[4:8]))
    return float(sacrebleu.BLEU.compute_bleu(counts, totals, int(total[8]), int(total[9]), smooth_method="exp").score)
