"""From a recipe to the objects it describes: the one place that knows both."""

import torch
from torch import Tensor, nn

from antiphon.data.codec import NO_FEATURES, PairCodec
from antiphon.data.corpus import Limits
from antiphon.data.tokenise import Normalisation
from antiphon.data.vocab import NO_COUNTERPART, SPECIALS, UNKNOWN, Vocab
from antiphon.decode.hypothesis import BeamSettings
from antiphon.exceptions import RecipeError
from antiphon.recipe.kind_settings import MODEL_SETTINGS
from antiphon.recipe.schema import DataSection, ModelSection, Recipe, SearchSection
from antiphon.runs.kinds import KINDS, Search


def build_model(settings: ModelSection, codec: PairCodec, *, emit_probability: float = 0.5) -> nn.Module:
    """An untrained model of the recipe's kind for the codec's vocabularies, with all settings that the kind has.

    What tokens are tied to that are associated is known from the training pairs alone, and from trained weights.

    ``emit_probability`` is what a transducer's constant transition starts from.
    """
    given = {name: getattr(settings, name) for name in MODEL_SETTINGS[settings.kind]}
    given["embedding_size"] = settings.embedding_size or settings.hidden_size
    if settings.kind == "transducer":
        given["emit_probability"] = emit_probability
        given["tie"] = settings.tie or "none"
        given["context"] = settings.context or "none"
        given["counterparts"] = find_counterparts(codec.source.vocab, codec.target.vocab)
    feature_size = 0 if codec.features == NO_FEATURES else len(codec.features)
    return KINDS[settings.kind].model(len(codec.source.vocab), len(codec.target.vocab), feature_size, **given)


def find_counterparts(source: Vocab, target: Vocab) -> Tensor:
    """The target id of every source token; unknown tokens stand for one another, special ones for nothing."""
    ids = torch.from_numpy(target.encode(source.tokens).astype("int64"))
    ids[: len(SPECIALS)] = NO_COUNTERPART
    ids[UNKNOWN] = UNKNOWN
    return ids


def build_search(recipe: Recipe) -> Search | None:
    """The search that the recipe asks for; none for a kind that gives no outputs."""
    kind = KINDS[recipe.model.kind]
    if recipe.search.over == "outputs":
        return kind.search
    if kind.path_search is None:
        raise RecipeError(f'search.over = "paths": kind {recipe.model.kind} has no alignments, expected a transducer')
    return kind.path_search


def build_beam(settings: SearchSection, *, beam: int | None = None, nbest: int = 1) -> BeamSettings:
    """How wide to search; ``beam`` overrides the recipe's."""
    return BeamSettings(
        beam=beam or settings.beam,
        proposals=settings.proposals,
        nbest=nbest,
        threshold=settings.threshold,
        commit_margin=settings.commit_margin,
        max_length_ratio=settings.max_length_ratio,
        max_length_extra=settings.max_length_extra,
        length_normalisation=settings.length_normalisation,
        length_bias=settings.length_bias,
    )


def build_normalisation(data: DataSection) -> Normalisation:
    """What is done to text before it is cut into tokens."""
    return Normalisation(
        nfc=data.nfc,
        lowercase=data.lowercase,
        digits_to_hash=data.digits_to_hash,
        split_punctuation=data.split_punctuation,
        split_hangul=bool(data.split_hangul),
    )


def build_limits(recipe: Recipe) -> Limits:
    """What is too long to train on; a pair that fills a batch by itself is the longest of all."""
    cells = [cells for cells in (recipe.data.max_cells, recipe.train.max_batch_cells) if cells]
    return Limits(recipe.data.max_source_length, recipe.data.max_target_length, min(cells))


def reads_source(recipe: Recipe) -> bool:
    """Whether the recipe's model has an input."""
    return recipe.model.kind not in KINDS or KINDS[recipe.model.kind].reads_source


def count_parameters(model: nn.Module) -> int:
    """How many numbers training adjusts."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def task_metrics(data: DataSection) -> list[str]:
    """The measures of outputs that suit the task.

    Separate symbols written for a word that was read by its letters are phonemes; other words are text.
    """
    columns = data.source_tokens, data.target_tokens
    source, target = reversed(columns) if data.swap else columns
    if target == "chars":
        return ["accuracy", "edit_distance"]
    if (source, target) == ("chars", "words"):
        return ["accuracy", "edit_distance", "phoneme_error_rate"]
    return ["accuracy", "edit_distance", "word_error_rate", "bleu", "chrf", "rouge1", "rouge2", "rougeL"]
