"""The two lessons of the demo: letters to phonemes from many pairs, and phonemes to letters from few.

A language model of unpaired words improves the second; each lesson shows sample outputs after every epoch, and what was
learnt in the end.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from rapidfuzz import process
from rapidfuzz.distance import Levenshtein
from rich.console import Console
from rich.table import Table
from rich.text import Text
from torch import nn

from antiphon.api.model import Model, NeuralModel, load
from antiphon.demo import FOLDER, pairs_of
from antiphon.metrics.output_metrics import Outputs, score_outputs
from antiphon.recipe.recipe_file import load_recipe
from antiphon.recipe.schema import Recipe
from antiphon.report.plots import optional_picture, plot_alignment
from antiphon.runs.combined_runs import combine_runs
from antiphon.runs.run_folder import RunFolder, open_for_writing
from antiphon.torch_free.readers import Pair
from antiphon.training.callback import Callback, ProgressBar
from antiphon.training.fit import train

WORDS_TO_SHOW = ("knight", "phoneme", "thorough", "quixotic", "antiphon")
PARTS = {
    "direct": "the direct model, phonemes to letters",
    "channel": "the channel, letters to phonemes",
    "lm": "the language model of spellings",
}
WEIGHTS = {"direct+lm": (1.0, 0.0, 0.4483, 0.6469), "noisy": (1.0, 0.294, 0.5707, 0.3553)}
"""Of direct model, channel, language model and length, found by ``antiphon tune`` on the dev words."""
SAMPLES = {"direct": ("F OW T AA N", "N AY T", "S AH N D IY"), "channel": ("photon", "knight", "sunday")}
"""Inputs shown after every epoch; none for a language model."""
EXAMPLES = 6


def learn(
    name: str, out: Path, console: Console, *, samples: Sequence[str] = (), force: bool, threads: int | None
) -> None:
    """Trains an embedded recipe; an interrupted run is resumed, and a finished one is kept."""
    recipe = load_recipe(FOLDER / f"{name}.toml")
    callbacks: list[Callback] = [ProgressBar(console)]
    if samples:
        callbacks.append(EpochSamples(samples, recipe, out, console))
    say = partial(console.print, soft_wrap=True)
    train(recipe, out, say=say, resume=not force, force=force, device="cpu", threads=threads, callbacks=callbacks)


class EpochSamples(Callback):
    """After every epoch, the model's outputs for a few inputs, on one line."""

    def __init__(self, inputs: Sequence[str], recipe: Recipe, run: Path, console: Console) -> None:
        self.inputs, self.recipe, self.run, self.console = inputs, recipe, run, console

    def on_epoch_end(self, epoch: int, metrics: Mapping[str, float], model: nn.Module) -> None:
        """Predicts with the weights of this epoch."""
        codec = RunFolder(self.run).codec(self.recipe)
        found = NeuralModel(self.recipe, codec, model).predict(self.inputs, beam=1)
        shown = "   ".join(f"{prediction.source} → {prediction.text}" for prediction in found)
        self.console.print(Text(f"          {shown}", style="dim"), soft_wrap=True)


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
        scores = score_outputs(Outputs(found, wanted, *tokens), ["accuracy", "symbol_error_rate"])
        table.add_row(name, f"{100 - scores['accuracy'].value:.1f} %", f"{scores['symbol_error_rate'].value:.1f} %")
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


def learn_to_spell(out: Path, console: Console, *, force: bool, threads: int | None) -> None:
    """Trains the three parts on the embedded data, combines them and shows what each adds."""
    console.print("2. Phonemes to letters, from only 5,000 pairs and a list of 73,000 words (SCOWL)", style="bold")
    for part, title in PARTS.items():
        console.print(f"\n{title}", style="bold")
        samples = SAMPLES.get(part, ())
        learn(f"spelling-{part}", out / part, console, samples=samples, force=force, threads=threads)
    for name, weights in WEIGHTS.items():
        channel = out / "channel" if weights[1] else None
        combine_runs(out / "direct", channel, out / "lm", out / name, {"weights": weights}, force=True)
    models = [load(out / name, device="cpu", threads=threads) for name in ("direct", *WEIGHTS)]
    titles = ("direct", "direct + language model", "direct + channel + language model")
    held_out = pairs_of("test")
    spelt = {title: spell(model, held_out) for title, model in zip(titles, models, strict=True)}
    console.print(accuracies(spelt, held_out))
    console.print(words_won(spelt[titles[0]], spelt[titles[-1]], held_out))


def spell(model: Model, pairs: Sequence[Pair]) -> list[str]:
    """The model's spellings of the phonemes in the second column."""
    return [prediction.text or "" for prediction in model.predict([pair.target for pair in pairs], align=False)]


def accuracies(spelt: dict[str, list[str]], held_out: Sequence[Pair]) -> Table:
    """How many held-out words each model spells right."""
    table = Table(title=f"\n{len(held_out):,} held-out words, from their phonemes")
    table.add_column("")
    table.add_column("spelt right", justify="right")
    for title, words in spelt.items():
        right = sum(word == pair.source for word, pair in zip(words, held_out, strict=True))
        table.add_row(title, f"{100 * right / len(held_out):.1f} %")
    return table


def words_won(before: Sequence[str], after: Sequence[str], held_out: Sequence[Pair]) -> Table:
    """Some words that only the second model spells right."""
    table = Table(title="\nwhat the word list taught it", header_style="")
    for title in ("phonemes", "direct", "with channel and language model"):
        table.add_column(title)
    won = [
        (pair.target, one, other)
        for one, other, pair in zip(before, after, held_out, strict=True)
        if other == pair.source != one
    ]
    for row in won[:: max(1, len(won) // EXAMPLES)][:EXAMPLES]:
        table.add_row(*row)
    return table
