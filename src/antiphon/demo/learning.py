"""Training on the embedded data, while it is shown how a few inputs come out so far."""

from collections.abc import Sequence
from pathlib import Path

import lightning as L
from rich.console import Console
from rich.text import Text

from antiphon.api.generation_models import NeuralModel
from antiphon.demo import FOLDER
from antiphon.recipe.recipe_file import load_recipe
from antiphon.recipe.schema import Recipe
from antiphon.runs.run_folder import RunFolder
from antiphon.train.fit import train
from antiphon.train.module import TrainingModule


def learn(
    name: str, out: Path, console: Console, *, samples: Sequence[str] = (), force: bool, threads: int | None
) -> None:
    """Trains an embedded recipe; a run that was stopped goes on, and one that is there already is kept."""
    recipe = load_recipe(FOLDER / f"{name}.toml")
    shown = [EpochSamples(samples, recipe, out, console)] if samples else []
    train(recipe, out, console=console, resume=not force, force=force, device="cpu", threads=threads, callbacks=shown)


class EpochSamples(L.Callback):
    """After every epoch, the model's outputs for a few inputs, on one line."""

    def __init__(self, inputs: Sequence[str], recipe: Recipe, run: Path, console: Console) -> None:
        self.inputs, self.recipe, self.run, self.console = inputs, recipe, run, console

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Predicts with the weights of this moment and leaves them as they are."""
        assert isinstance(pl_module, TrainingModule)
        network = pl_module.kept_model
        was_training = network.training
        network.eval()
        model = NeuralModel(self.recipe, RunFolder(self.run).codec(self.recipe), network)
        found = model.predict(self.inputs, beam=1)
        network.train(was_training)
        shown = "   ".join(f"{prediction.source} → {prediction.text}" for prediction in found)
        self.console.print(Text(f"          {shown}", style="dim"), soft_wrap=True)
