"""Writes docs/pictures.md: Figures 4.4 to 4.8 and Tables 5.5 and 5.6 of the thesis, with the runs of its tables.

``python -m experiments.pictures --data DIR --runs RUNS`` takes the trained runs as they are, says which are missing,
and draws what it can. No example is chosen by hand: a rule, printed beside it, does.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, islice
from pathlib import Path
from typing import NamedTuple

import sacrebleu

from antiphon.api.model import Model, load
from antiphon.exceptions import AntiphonError
from antiphon.metrics.gold_links import GoldLinks, read_gold
from antiphon.report.plots import plot_alignment
from antiphon.torch_free.readers import Pair, read_pairs
from experiments.runner import Runner
from experiments.table import load_table

PAGE = Path(__file__).parents[1] / "docs/pictures.md"
_GOLD = "alignment/enfr.gold.tsv.gz"
_ALL_PARTS = "direct + channel + LM + bias (bi)"
_HEAD = """# Pictures

Alignments and outputs behind the [tables](results.md), in the order of the thesis: its Figures 4.4 to 4.8, and its
Tables 5.5 and 5.6. `python -m experiments.pictures --data DIR --runs RUNS` writes this page from trained runs. The rule
above an example has chosen it, among the first {count} scored pairs that are short enough to be drawn. Outputs are
compared with their targets by chrF. Shades are posteriors, or weights of attention; the red line is the most probable
alignment."""


class Shown(NamedTuple):
    """A scored pair and the outputs of some runs for it."""

    pair: Pair
    outputs: tuple[str, ...]

    def quality(self, index: int) -> float:
        """How much an output is like the target."""
        return _likeness(self.outputs[index], self.pair.target)

    def gain(self) -> float:
        """How much better the second output is than the first."""
        return self.quality(1) - self.quality(0)


def _likeness(text: str, other: str) -> float:
    return float(sacrebleu.sentence_chrf(text, [other]).score)


@dataclass(frozen=True)
class Gallery:
    """Trained runs, and the folder of the pictures; ``count`` pairs of each scored file are looked at."""

    runner: Runner
    folder: Path
    count: int

    def open(self, table: str, name: str, row: str) -> Model:
        """The trained run of a row on a data set."""
        job = next(job for job in load_table(table).jobs() if (job.row.name, job.set) == (row, name))
        folder = self.runner.runs / job.key(self.runner.digests(job))
        if not (folder / "manifest.json").exists():
            raise AntiphonError(f"no run of `{table}`, row {row}, set {name}")
        return load(folder)

    def examples(self, table: str, name: str, models: Sequence[Model], lengths: range) -> list[Shown]:
        """What each model predicts for the first pairs whose source has so many tokens."""
        job = next(job for job in load_table(table).jobs() if job.set == name)
        path, codec = self.runner.file(job.files["score"]), models[0].codec.source
        chosen = list(
            islice((pair for pair in read_pairs(path) if len(codec.tokens(pair.source)) in lengths), self.count)
        )
        if not chosen:
            raise AntiphonError(f"{path.name} has no inputs of {lengths.start} to {lengths.stop - 1} tokens")
        outputs = [model.predict([pair.source for pair in chosen], align=False) for model in models]
        texts = [[each.text or "" for each in of_model] for of_model in outputs]
        return [Shown(pair, each) for pair, each in zip(chosen, zip(*texts, strict=True), strict=True)]

    def draw(self, model: Model, source: str, target: str, file: str, gold: GoldLinks | None = None) -> str:
        """Draws the alignment of a pair; returns the picture for the page."""
        (found,) = model.align([(source, target)])
        self.folder.mkdir(exist_ok=True)
        path = self.folder / f"{file}.svg"
        symbols, links = (found.source_symbols, found.target_symbols), gold.sure if gold else ()
        plot_alignment(*symbols, found.rows, found.posterior, path, method=found.method, gold=links)
        return f"![{file}]({self.folder.name}/{path.name})"


def best_output(gallery: Gallery, table: str, name: str, row: str, lengths: range) -> Iterator[str]:
    """An output that is right, or nearly, and its alignment."""
    model = gallery.open(table, name, row)
    shown = gallery.examples(table, name, [model], lengths)
    best = max(shown, key=lambda each: (each.quality(0), -_likeness(each.pair.target, each.pair.source)))
    yield f"The output of {row} that is most like its target, and of equals least like its source. The target:"
    yield f"> {best.pair.target}"
    yield gallery.draw(model, best.pair.source, best.outputs[0], f"{table}-{name}")


def gold_links(gallery: Gallery) -> Iterator[str]:
    """Figures 4.5 and 4.6."""
    models = {row: gallery.open("thesis-4.6", "multi30k", row) for row in ("uniSSNT+", "biSSNT+", "attention")}
    codec = models["biSSNT+"].codec
    gold = read_gold(gallery.runner.file(_GOLD)).swapped()

    def unknown(pair: Pair) -> int:
        return codec.source.count_unknown(pair.source) + codec.target.count_unknown(pair.target)

    pairs = [
        (pair, links)
        for pair, links in zip(gold.pairs, gold.links, strict=True)
        if all(5 <= len(text.split()) <= 12 for text in (pair.source, pair.target))
    ]
    pair, links = min(pairs, key=lambda each: (unknown(each[0]), -crossings(each[1])))
    yield (
        f"Of {len(pairs)} short sentences of the Canadian parliament with gold links, the one with the fewest words "
        f"that the runs do not know ({unknown(pair)}), and of these the one with most crossing links. The runs have "
        "learnt captions of pictures (Multi30k)."
    )
    for row, model in models.items():
        yield f"{row}:"
        yield gallery.draw(model, pair.source, pair.target, f"gold-{row.strip('+')}", links)


def crossings(links: GoldLinks) -> int:
    """The number of pairs of sure links that cross."""
    return sum((i - k) * (j - l) < 0 for (i, j), (k, l) in combinations(links.sure, 2))


def reordering(gallery: Gallery) -> Iterator[str]:
    """A long reordering, for which a transducer has to read on."""
    models = [gallery.open("thesis-4.5", "mixed", row) for row in ("attention", "biSSNT+")]
    shown = gallery.examples("thesis-4.5", "mixed", models[:1], range(6, 15))

    def jump(each: Shown) -> int:
        (found,) = models[0].align([(each.pair.source, each.pair.target)])
        return max((first - second for first, second in combinations(found.rows[:-1], 2)), default=0)

    most = max(shown, key=jump)
    yield "The pair through which the largest weights of attention go back farthest. Attention, then biSSNT+:"
    for row, model in zip(("attention", "biSSNT"), models, strict=True):
        yield gallery.draw(model, most.pair.source, most.pair.target, f"reordering-{row}")


def largest_gain(gallery: Gallery, table: str, name: str, worse: str, better: str) -> Iterator[str]:
    """The outputs of two runs for one input."""
    models = [gallery.open(table, name, row) for row in (worse, better)]
    shown = gallery.examples(table, name, models, range(6, 21))
    yield f"The pair in which the output of {better} is better than that of {worse} by most."
    yield _as_text(max(shown, key=Shown.gain), worse, better)


def channel_decides(gallery: Gallery, table: str, name: str, row: str) -> Iterator[str]:
    """Inputs for which a noisy channel has another output than its direct model."""
    models = [gallery.open(table, name, each) for each in ("direct (bi)", row)]
    shown = gallery.examples(table, name, models, range(6, 31))
    other = sorted((each for each in shown if each.outputs[0] != each.outputs[1]), key=Shown.gain, reverse=True)
    yield (
        f"The noisy channel decides otherwise than the direct model for {len(other)} of {len(shown)} inputs, and is "
        f"nearer to the target in {sum(each.gain() > 0 for each in other)} of them. The three with the largest gain, "
        "then the three with the largest loss:"
    )
    for each in [*other[:3], *other[3:][-3:]]:
        yield _as_text(each, "direct", "noisy channel")


def _as_text(shown: Shown, *names: str) -> str:
    rows = [("source", shown.pair.source), ("target", shown.pair.target), *zip(names, shown.outputs, strict=True)]
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {text.replace('|', '&#124;')} |" for name, text in rows)])


SECTIONS: dict[str, Callable[[Gallery], Iterator[str]]] = {
    "Figure 4.4: inflection, a past participle": partial(
        best_output, table="thesis-4.3", name="de-V.t26", row="biSSNT+", lengths=range(6, 15)
    ),
    "Figure 4.4: summarisation": partial(
        best_output, table="thesis-4.1", name="google_sentcomp", row="biSSNT+", lengths=range(8, 21)
    ),
    "Figure 4.4: translation from Chinese": partial(
        best_output, table="thesis-4.5", name="mixed", row="uniSSNT+", lengths=range(6, 15)
    ),
    "Figures 4.5 and 4.6: gold links, and alignments by three models": gold_links,
    "Figure 4.7: attention translates better": partial(
        largest_gain, table="thesis-4.5", name="mixed", worse="biSSNT+", better="attention"
    ),
    "Figure 4.8: the transducer translates better": partial(
        largest_gain, table="thesis-4.6", name="multi30k", worse="attention", better="biSSNT+"
    ),
    "A long reordering": reordering,
    "Table 5.5: summaries by a noisy channel": partial(
        channel_decides, table="thesis-5.1", name="google_sentcomp", row=f"{_ALL_PARTS}, 120,000 targets"
    ),
    "Table 5.6: translations by a noisy channel": partial(
        channel_decides, table="thesis-5.4", name="mixed", row=_ALL_PARTS
    ),
}


def write_page(gallery: Gallery) -> Iterator[str]:
    """The paragraphs of the page; what cannot be made for lack of a run is said at the end."""
    yield _HEAD.format(count=gallery.count)
    missing = []
    for title, section in SECTIONS.items():
        try:
            yield "\n\n".join([f"## {title}", *section(gallery)])
        except AntiphonError as error:
            missing.append(f"{title}: {error}".replace(f"{gallery.runner.data}/", ""))
    if missing:
        yield "\n".join(["## Not made yet\n", *(f"* {each}" for each in missing)])


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser("python -m experiments.pictures", description="Writes docs/pictures.md.")
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--runs", type=Path, default=Path("runs/experiments"), help="folder of the trained runs")
    parser.add_argument("--count", type=int, default=100, help="pairs of a scored file that are looked at")
    parser.add_argument("--page", type=Path, default=PAGE, help="the page; pictures are put into a folder beside it")
    given = parser.parse_args()
    runner = Runner(given.data.resolve(), given.runs.resolve())
    paragraphs = list(write_page(Gallery(runner, given.page.with_suffix(""), given.count)))
    given.page.write_text("\n\n".join(paragraphs) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
