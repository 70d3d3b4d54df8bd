"""From a recipe to the objects it describes: the one place that knows both."""

from inspect import signature

from torch import nn

from antiphon.config import DataSection, ModelSection, Recipe, SearchSection
from antiphon.data.corpus import Limits
from antiphon.data.tokenise import TextSteps
from antiphon.models.transducer import Transducer
from antiphon.search.transducer_beam import BeamSettings

KINDS: dict[str, type[Transducer]] = {
    "transducer": Transducer,
}


def build_model(
    settings: ModelSection, source_size: int, target_size: int, *, emit_probability: float = 0.5
) -> Transducer:
    """An untrained model of the recipe's kind; it takes the settings that its constructor names."""
    kind = KINDS[settings.kind]
    given = settings.model_dump() | {"emit_probability": emit_probability}
    given["embedding_size"] = settings.embedding_size or settings.hidden_size
    wanted = signature(kind).parameters
    return kind(source_size, target_size, **{name: value for name, value in given.items() if name in wanted})


def build_beam(settings: SearchSection, *, beam: int | None = None, nbest: int = 1) -> BeamSettings:
    """How wide to search; ``beam`` overrides the recipe's."""
    return BeamSettings(
        beam=beam or settings.beam,
        nbest=nbest,
        threshold=settings.threshold,
        max_length_ratio=settings.max_length_ratio,
        max_length_extra=settings.max_length_extra,
    )


def build_text_steps(data: DataSection) -> TextSteps:
    """What is done to text before it is cut into tokens."""
    return TextSteps(nfc=data.nfc, lowercase=data.lowercase, digits_to_hash=data.digits_to_hash)


def build_limits(recipe: Recipe) -> Limits:
    """What is too long to train on; a pair that fills a batch by itself is the longest of all."""
    cells = [cells for cells in (recipe.data.max_cells, recipe.train.max_batch_cells) if cells]
    return Limits(recipe.data.max_source_length, recipe.data.max_target_length, min(cells))


def count_parameters(model: nn.Module) -> int:
    """How many numbers training adjusts."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def writes_phonemes(data: DataSection) -> bool:
    """Whether outputs are phonemes: separate symbols written for a word that was read by its letters."""
    kinds = data.source_tokens, data.target_tokens
    return kinds == (("words", "chars") if data.swap else ("chars", "words"))
