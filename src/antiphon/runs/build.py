"""Builds objects from a recipe: the only module that knows both."""

from torch import nn

from antiphon.data.corpus import LengthLimits
from antiphon.exceptions import RecipeError
from antiphon.models.transducer import TwoWayTransducer
from antiphon.recipe.kinds import KINDS
from antiphon.recipe.model_sections import ModelSection, TransducerSection
from antiphon.recipe.schema import Recipe, token_kinds
from antiphon.recipe.sections import DataSection, SearchSection
from antiphon.torch_free.codec import NO_FEATURES, Normalisation, PairCodec
from antiphon.torch_free.hypothesis import BeamSettings, Search

LENGTH_RATIO, LENGTH_EXTRA = 2.0, 10
"""Limits on the length of outputs, unless the training pairs need higher ones."""


def build_model(settings: ModelSection, codec: PairCodec, *, write_probability: float = 0.5) -> nn.Module:
    """An untrained model of the recipe's kind for the codec's vocabularies, with all settings that the kind has.

    ``write_probability`` is the initial value of a constant transition.
    """
    given = settings.arguments()
    if isinstance(settings, TransducerSection):
        given["write_probability"] = write_probability
    feature_size = 0 if codec.features == NO_FEATURES else len(codec.features)
    network = KINDS[settings.kind].network
    assert network is not None
    of_kind = TwoWayTransducer if isinstance(settings, TransducerSection) and settings.has_twin else network()
    return of_kind(len(codec.source.vocab), len(codec.target.vocab), feature_size, **given)


def build_search(recipe: Recipe) -> Search | None:
    """The search of the recipe; None for a kind without outputs."""
    kind, over = KINDS[recipe.model.kind], recipe.search.over
    if over == "outputs":
        return None if kind.search is None else kind.search()
    found = kind.path_search if over == "paths" else kind.cell_search
    if found is None:
        lacks = "alignments, expected a transducer" if over == "paths" else "channel model, expected a noisy channel"
        raise RecipeError(f'search.over = "{over}": kind {kind.name} has no {lacks}')
    return found()


def build_beam(settings: SearchSection, *, beam: int | None = None, nbest: int = 1) -> BeamSettings:
    """The settings of the beam search; ``beam`` overrides the recipe's."""
    beam = beam or settings.beam
    return BeamSettings(
        beam=beam,
        proposals=settings.proposals,
        nbest=nbest,
        direct_outputs=beam if settings.direct_outputs is None else settings.direct_outputs,
        threshold=settings.threshold,
        commit_margin=settings.commit_margin,
        max_length_ratio=settings.max_length_ratio or LENGTH_RATIO,
        max_length_extra=settings.max_length_extra or LENGTH_EXTRA,
        length_normalisation=settings.length_normalisation,
        length_bias=settings.length_bias,
    )


def build_normalisation(data: DataSection) -> Normalisation:
    """The normalisation of text before it is tokenised."""
    return Normalisation(
        nfc=data.nfc,
        lowercase=data.lowercase,
        digits_to_hash=data.digits_to_hash,
        split_punctuation=data.split_punctuation,
        split_hangul=bool(data.split_hangul),
    )


def build_limits(recipe: Recipe) -> LengthLimits:
    """Limits on the length of training pairs, as the model reads them; a pair must fit into a batch by itself."""
    data = recipe.data
    lengths = data.max_source_length, data.max_target_length
    source, target = reversed(lengths) if data.swap else lengths
    cells = [cells for cells in (data.max_cells, recipe.train.max_batch_cells) if cells]
    return LengthLimits(source, target, min(cells))


def reads_source(recipe: Recipe) -> bool:
    """Whether the recipe's model reads a source."""
    return KINDS[recipe.model.kind].reads_source


def is_between_words(data: DataSection) -> bool:
    """Whether the tokens of both sides are words."""
    return (data.source_tokens, data.target_tokens) == ("words", "words")


def may_copy_words(recipe: Recipe) -> bool:
    """Whether the recipe's model could copy words, whatever ``model.copy_words`` is: a transducer between words."""
    return isinstance(recipe.model, TransducerSection) and is_between_words(recipe.data)


def count_parameters(model: nn.Module) -> int:
    """Number of trained parameters."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def task_metrics(data: DataSection) -> list[str]:
    """The names of the metrics that suit the task.

    Space-separated targets of character sources are taken as phonemes, other space-separated targets as text.
    """
    kinds = token_kinds(data)
    if kinds["target"] == "chars":
        return ["accuracy", "edit_distance"]
    if kinds == {"source": "chars", "target": "words"}:
        return ["accuracy", "edit_distance", "symbol_error_rate"]
    return ["accuracy", "edit_distance", "word_error_rate", "bleu", "chrf", "rouge1", "rouge2", "rougeL"]


def selection_metrics(data: DataSection) -> list[str]:
    """The names of the metrics that can select an epoch or weights: also retained-token F1, from words to words."""
    return task_metrics(data) + ["retained_f1"] * is_between_words(data)
