"""``antiphon align``: writes the alignment of every pair, or evaluates alignments."""

import json
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from antiphon.cli.evaluate import show
from antiphon.cli.options import Device, PictureFile, Run, Threads, check_picture, finite, load_run
from antiphon.exceptions import InputError
from antiphon.terminal import count_of, print_note, printable
from antiphon.torch_free.readers import Pair, pair_files, read_pairs
from antiphon.torch_free.results import Alignment

if TYPE_CHECKING:
    from antiphon.api.model import Model
    from antiphon.api.word_links import LinkOptions, WordLinks
    from antiphon.metrics.gold_links import GoldPairs


Format = Literal["pharaoh", "jsonl", "png", "svg", "pdf"]
"""How alignments are written."""
GoldFormat = Literal["tsv", "pharaoh", "naacl"]
"""How gold links are written."""
Combine = Literal["intersection", "union", "grow-diag"]
"""How the links of two directions are combined."""
OptionalFiles = Annotated[
    list[Path] | None, typer.Argument(metavar="FILE", help="Pairs: one TSV, or two parallel files; GOLD may have them.")
]
FormatOption = Annotated[Format, typer.Option(help="i-j pairs, JSON lines with posteriors, or a picture per pair.")]
Folder = Annotated[Path, typer.Option(metavar="FOLDER", help="Folder for the pictures of --format.")]
Limit = Annotated[int, typer.Option(metavar="N", min=1, max=10_000, help="Maximum number of pictures.")]
Gold = Annotated[
    Path | None, typer.Option(metavar="GOLD", help="Print alignment error rate, precision and recall on gold links.")
]
GoldFormatOption = Annotated[
    GoldFormat | None, typer.Option(help="Format of GOLD; default: recognised by its first line.")
]
Threshold = Annotated[
    float | None,
    typer.Option(
        metavar="P",
        min=0.0,
        max=1.0,
        callback=finite,
        help="Link words with a posterior (or attention weight) above P, which is more than 0.",
    ),
]
Reverse = Annotated[Path | None, typer.Option(metavar="RUN", help="A run of the other direction, to combine with.")]
CombineOption = Annotated[Combine | None, typer.Option(help="How --reverse is combined; default: grow-diag.")]

SwapOption = Annotated[
    bool, typer.Option("--swap", help="FILE and GOLD have the target first, unlike the training pairs.")
]


def align(
    run: Run,
    file: OptionalFiles = None,
    format: FormatOption = "pharaoh",
    evaluate: Gold = None,
    gold_format: GoldFormatOption = None,
    threshold: Threshold = None,
    reverse: Reverse = None,
    combine: CombineOption = None,
    swap: SwapOption = False,
    plot: PictureFile = None,
    out: Folder = Path("alignments"),
    limit: Limit = 20,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Show which input each output token belongs to, for given pairs.

    A transducer gives alignments: its most probable one, and posteriors. An
    attention model gives its attention weights, marked as attention, and for each
    token the input with the largest weight. Pharaoh pairs count source symbols and
    target tokens from 0.

    --evaluate compares links between words with gold links: a TSV of source, target
    and links (1-1 2p3, counted from 1; p: possible), which has the pairs itself, or
    links of the pairs in FILE, as Pharaoh (0-0 1p2) or NAACL lines (1 1 2 S).
    --threshold takes links with a larger posterior instead of the best path.
    --reverse adds those of a run of the other direction (data.swap).

    Pictures are PNG, SVG or PDF: --plot draws the first pair into one file,
    --format draws every pair into the folder --out.

    Examples:
      antiphon align runs/g2p test.tsv
      antiphon align runs/g2p test.tsv --plot alignment.svg
      antiphon align runs/fr-en --evaluate gold.tsv --threshold 0.4
      antiphon align runs/fr-en test.tsv --reverse runs/en-fr --combine union
    """
    check_options(evaluate, gold_format, reverse, combine)
    of_words = any(option is not None for option in (evaluate, threshold, reverse))
    if of_words and (plot is not None or not is_text(format)):
        raise InputError("--plot, --format: links between words are not drawn, expected --format pharaoh or jsonl")
    if plot is not None:
        check_picture(plot)
    model = load_run(run, device, threads)
    swap = swap != model.recipe.data.swap
    if not of_words:
        show_alignments(model.align(read_files(model, file, swap=swap)), format, plot, out, limit)
        return
    options: LinkOptions = {"threshold": threshold, "combine": combine or "grow-diag"}
    if reverse is not None:
        options["reverse"] = load_run(reverse, device, threads)
    as_json = format == "jsonl"
    if evaluate is None:
        methods = write(model.word_links(read_files(model, file, swap=swap), **options), as_json=as_json)
        if any("attention" in method for method in methods):
            print_note("these links come from attention weights, which are not an alignment")
    else:
        gold = read_gold_pairs(model, file, evaluate, gold_format)
        gold = gold.swapped() if swap else gold
        show(model.evaluate_alignments(gold.pairs, gold.links, **options), as_json=as_json)


def is_text(format: Format) -> bool:
    """Whether alignments are printed, not drawn."""
    return format in ("pharaoh", "jsonl")


def check_options(
    evaluate: Path | None, gold_format: GoldFormat | None, reverse: Path | None, combine: Combine | None
) -> None:
    """Refuses options that need another one."""
    if gold_format is not None and evaluate is None:
        raise InputError("--gold-format: no gold links, expected it together with --evaluate GOLD")
    if combine is not None and reverse is None:
        raise InputError("--combine: only one direction, expected it together with --reverse RUN")


def read_files(model: "Model", files: list[Path] | None, *, swap: bool) -> Iterable[Pair]:
    """The pairs of the files; ``swap`` exchanges source and target."""
    if not files:
        raise InputError("FILE: missing, expected a TSV of pairs or two parallel files")
    return read_pairs(pair_files(files), features=model.reads_features, swap=swap, columns=model.column_order)


def read_gold_pairs(
    model: "Model", files: list[Path] | None, gold: Path, gold_format: GoldFormat | None
) -> "GoldPairs":
    """Pairs with gold links, as in the files; a note on standard error counts pairs without links."""
    from antiphon.metrics.gold_links import read_gold

    pairs = list(read_files(model, files, swap=False)) if files else None
    found = read_gold(gold, pairs, gold_format)
    check_gold(found, gold, has_features=pairs is not None or not model.reads_features)
    if without := sum(not links.possible for links in found.links):
        print_note(f"{count_of(without, 'pair')} without gold links")
    return found


def check_gold(found: "GoldPairs", gold: Path, *, has_features: bool) -> None:
    """Refuses gold links by which nothing can be measured, and pairs without the features that the run reads."""
    if not any(links.sure for links in found.links):
        raise InputError(f"{gold}: no sure links, expected at least one, since recall counts them")
    if not has_features:
        raise InputError(
            f"{gold}: no features, but the run was trained with them, expected FILE with pairs and their features"
        )


def write(found: "Iterable[Alignment | WordLinks]", *, as_json: bool) -> set[str]:
    """Prints one line for each pair; the methods that the links come from."""
    methods = set()
    for each in found:
        methods.add(each.method)
        print(json.dumps(each.to_dict(), ensure_ascii=False) if as_json else each.pharaoh())
    return methods


def show_alignments(alignments: Iterator[Alignment], format: Format, plot: Path | None, out: Path, limit: int) -> None:
    """Prints or draws the alignment of every pair."""
    if plot is not None:
        draw(islice(alignments, 1), [plot])
    elif is_text(format):
        write(alignments, as_json=format == "jsonl")
    else:
        first = list(islice(alignments, 1))  # what cannot be aligned is refused before a folder is made
        out.mkdir(parents=True, exist_ok=True)
        draw(chain(first, alignments), [out / f"{number:04d}.{format}" for number in range(1, limit + 1)])


def draw(alignments: Iterable[Alignment], paths: Iterable[Path]) -> None:
    """Draws each pair into the file of the same index, as long as there are both, and prints the names."""
    from antiphon.report.plots import plot_alignment

    for path, alignment in zip(paths, alignments, strict=False):
        symbols = alignment.source_symbols, alignment.target_symbols
        plot_alignment(*symbols, alignment.rows, alignment.posterior, path, method=alignment.method)
        print(printable(str(path)))
