"""Trains on the embedded data and shows sample outputs after every epoch."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.text import Text
from torch import nn

from antiphon.api.generation_models import NeuralModel
from antiphon.demo import FOLDER
from antiphon.recipe.recipe_file import load_recipe
from antiphon.recipe.schema import Recipe
from antiphon.runs.run_folder import RunFolder
from antiphon.training.callback import Callback
from antiphon.training.fit import train
from antiphon.training.progress_bar import ProgressBar


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
