"""Word alignments against gold links: error rate, precision and recall over sure and possible links."""

from collections.abc import Collection, Sequence

from antiphon.data.gold_links import GoldLinks, Link
from antiphon.metrics.output_metrics import Score


def score_links(found: Sequence[Collection[Link]], gold: Sequence[GoldLinks], method: str) -> dict[str, Score]:
    """Alignment error rate, precision and recall of the links of all pairs together, in percent.

    With A the links found, S the sure and P the possible links, of which S is a part:
    error rate = 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|), precision = |A ∩ P| / |A|, recall = |A ∩ S| / |S|.
    Nothing found has precision 0. ``method`` says how the links were found, for the signatures.
    """
    all_found = {(n, *link) for n, links in enumerate(found) for link in links}
    sure, possible = (
        {(n, *link) for n, links in enumerate(each) for link in links}
        for each in ([links.sure for links in gold], [links.possible for links in gold])
    )
    in_sure, in_possible = len(all_found & sure), len(all_found & possible)
    values = {
        "alignment_error_rate": 1 - (in_sure + in_possible) / max(1, len(all_found) + len(sure)),
        "alignment_precision": in_possible / max(1, len(all_found)),
        "alignment_recall": in_sure / max(1, len(sure)),
    }
    return {name: Score(100 * value, f"sure and possible links|{method}|percent") for name, value in values.items()}
