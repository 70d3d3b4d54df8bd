"""Phonemes to letters: a language model of unpaired words improves a model trained on few pairs."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from antiphon.api import Model, load
from antiphon.demo import pairs_of
from antiphon.demo.learning import learn
from antiphon.runs.combined_runs import combine_runs
from antiphon.torch_free.readers import Pair

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
