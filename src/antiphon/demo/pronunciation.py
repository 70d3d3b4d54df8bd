"""Letters to phonemes: trains a transducer on many pairs and shows errors and alignments."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rapidfuzz import process
from rapidfuzz.distance import Levenshtein
from rich.console import Console
from rich.table import Table

from antiphon.api import Model, load
from antiphon.demo import pairs_of
from antiphon.demo.learning import learn
from antiphon.metrics.output_metrics import Outputs, score_outputs
from antiphon.report.plots import optional_picture, plot_alignment
from antiphon.runs.run_folder import open_for_writing
from antiphon.torch_free.readers import Pair

WORDS_TO_SHOW = ("knight", "phoneme", "thorough", "quixotic", "antiphon")


def learn_to_pronounce(out: Path, console: Console, *, force: bool, threads: int | None) -> None:
    """Trains on the embedded pairs and shows errors, segments and an alignment."""
    console.print("1. Letters to phonemes, from 30,000 pairs of the CMU Pronouncing Dictionary\n", style="bold")
    learn("pronunciation", out, console, samples=WORDS_TO_SHOW[:3], force=force, threads=threads)
    model = load(out, device="cpu", threads=threads)
    console.print(errors(model, pairs_of("train"), pairs_of("test")))
    console.print(segments(model))
    say = partial(console.print, markup=False, highlight=False, soft_wrap=True)
    path = out / "alignment.png"
    with optional_picture(path, say):
        draw_alignment(model, out, path.name)
        say(f"\nAn alignment is drawn in {path}, the training curve in {out / 'training.png'}.")
    console.print()


def errors(model: Model, known: Sequence[Pair], held_out: Sequence[Pair]) -> Table:
    """Word and phoneme error on held-out words, beside the baseline's."""
    words, wanted = [pair.source for pair in held_out], [[pair.target] for pair in held_out]
    table = Table(title=f"\n{len(words):,} held-out words")
    table.add_column("")
    table.add_column("words wrong", justify="right")
    table.add_column("phonemes wrong", justify="right")
    for name, found in (
        ("closest known word", closest_pronunciations(known, words)),
        ("transducer", [prediction.text or "" for prediction in model.predict(words, align=False)]),
    ):
        tokens = [text.split() for text in found], [[text.split() for text in texts] for texts in wanted]
        scores = score_outputs(Outputs(found, wanted, *tokens), ["accuracy", "phoneme_error_rate"])
        table.add_row(name, f"{100 - scores['accuracy'].value:.1f} %", f"{scores['phoneme_error_rate'].value:.1f} %")
    return table


def closest_pronunciations(known: Sequence[Pair], words: Sequence[str]) -> list[str]:
    """A simple baseline: every word is pronounced like the known word that is spelt most like it."""
    spellings = [pair.source for pair in known]
    found = (process.extractOne(word, spellings, scorer=Levenshtein.distance) for word in words)
    return [known[index].target for _, _, index in found]


def segments(model: Model) -> Table:
    """What the model read and wrote, segment by segment, for a few words."""
    table = Table(title="\nwhat it read, and what it wrote", show_header=False)
    for prediction in model.predict(WORDS_TO_SHOW):
        shown = "   ".join(f"{''.join(read)} → {' '.join(wrote) or '·'}" for read, wrote in prediction.segments)
        table.add_row(prediction.source, prediction.text, shown)
    return table


def draw_alignment(model: Model, out: Path, name: str) -> None:
    """Writes a picture of the alignment of one of those words into the run."""
    (prediction,) = model.predict(WORDS_TO_SHOW[1:2])
    (alignment,) = model.align([(prediction.source, prediction.text or "")])
    with open_for_writing(out) as run, run.changed() as new:
        plot_alignment(
            alignment.source_symbols,
            alignment.target_symbols,
            alignment.rows,
            alignment.posterior,
            new.path / name,
        )
