"""The registry of kinds: every kind of model, its settings, and what builds, trains, searches, explains and serves it.

To add a kind, write one file with its network and its section of settings, and one entry here. Nothing else lists
kinds. What an entry has besides settings are functions without arguments that import what they return: so settings can
be read without PyTorch, and this file can name what lies above it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from antiphon.exceptions import RecipeError
from antiphon.recipe.model_sections import (
    AttentionSection,
    EncoderDecoderSection,
    EnsembleSection,
    LanguageModelSection,
    MatcherSection,
    ModelSection,
    NoisyChannelSection,
    OverlapSection,
    SuffixRuleSection,
    TransducerSection,
    TransformerSection,
)
from antiphon.recipe.sections import SettingGroup, UsedBy

if TYPE_CHECKING:
    from torch import nn

    from antiphon.api.model import Model
    from antiphon.decode.alignments import Explain
    from antiphon.ranking.rankers import Ranker
    from antiphon.recipe.schema import Recipe
    from antiphon.runs.run_folder import RunFolder
    from antiphon.terminal import Say
    from antiphon.torch_free.hypothesis import Search
    from antiphon.training.task import Task

    Network = Callable[..., nn.Module]
    Load = Callable[[RunFolder, Recipe], nn.Module]
    Check = Callable[[Recipe], None]
    Count = Callable[[Recipe, RunFolder, Say], None]
    Rank = Callable[[RunFolder, Recipe, str], Ranker]

_PAIRS: frozenset[SettingGroup] = frozenset(("pairs", "batches", "epochs", "tokens", "search"))


def _load_network() -> "Load":
    from antiphon.runs.run_folder import load_network

    return load_network


def _check_pairs() -> "Check":
    from antiphon.training.checks import check_test_pairs

    return check_test_pairs


@dataclass(frozen=True)
class Kind:
    """A kind of model; a kind has one of ``task``, ``count`` and ``made_by``.

    Training steps are captured as CUDA graphs on a GPU, so none may need a device sync.
    """

    section: type[ModelSection]
    """Its settings in the section ``model``."""
    interface: "Callable[[], type[Model]]"
    """The class of ``antiphon.api`` that users work with."""
    uses: frozenset[SettingGroup]
    """The groups of settings of other sections that it has."""
    network: "Callable[[], Network] | None" = None
    """Builds the untrained network from vocabulary sizes and settings."""
    load: "Callable[[], Load]" = _load_network
    """Reads the trained network of a run."""
    task: "Callable[[], type[Task]] | None" = None
    """The ``Task`` that trains it by gradient descent."""
    count: "Callable[[], Count] | None" = None
    """Trains it by counting, in one pass over the data."""
    made_by: str = ""
    """The command that makes it of trained runs."""
    check: "Callable[[], Check]" = _check_pairs
    """Refuses recipes that lack a library, or whose test file cannot be read."""
    search: "Callable[[], Search] | None" = None
    """Finds outputs."""
    path_search: "Callable[[], Search] | None" = None
    """Finds outputs with their best alignments (``search.over = "paths"``)."""
    cell_search: "Callable[[], Search] | None" = None
    """Finds outputs with a beam in every cell of the lattice (``search.over = "cells"``)."""
    explain: "Callable[[], Explain] | None" = None
    """Links the input and the output of a pair."""
    explanation: str = ""
    """What ``explain`` gives: an alignment, or attention weights."""
    rank: "Callable[[], Rank] | None" = None
    """Reads the ranker of a run, for kinds that rank given answers."""

    @property
    def name(self) -> str:
        """What ``model.kind`` says."""
        return cast(str, self.section.model_fields["kind"].default)

    def accepts(self, marks: Iterable[object]) -> bool:
        """Whether a setting, or a section, with these marks applies."""
        return all(mark.group in self.uses for mark in marks if isinstance(mark, UsedBy))

    @property
    def reads_source(self) -> bool:
        """Whether the model has an input."""
        return "targets" not in self.uses

    @property
    def ranks(self) -> bool:
        """Whether the model ranks given answers instead of writing its own."""
        return "questions" in self.uses

    @property
    def predicts(self) -> bool:
        """Whether the model writes an output for an input."""
        return self.reads_source and not self.ranks


KINDS: dict[str, Kind] = {}


def register(kind: Kind) -> None:
    """Adds a kind of model; recipes can ask for it from now on."""
    if kind.name in KINDS:
        raise RecipeError(f"model.kind = {kind.name}: registered already, expected another name")
    KINDS[kind.name] = kind


def _neural_model() -> "type[Model]":
    from antiphon.api.model import NeuralModel

    return NeuralModel


def _rule_model() -> "type[Model]":
    from antiphon.api.model import RuleModel

    return RuleModel


def _noisy_channel_model() -> "type[Model]":
    from antiphon.api.model import NoisyChannelModel

    return NoisyChannelModel


def _ranking_model() -> "type[Model]":
    from antiphon.api.ranking_model import RankingModel

    return RankingModel


def _transducer() -> "Network":
    from antiphon.models.transducer import Transducer

    return Transducer


def _encoder_decoder() -> "Network":
    from antiphon.models.recurrent import EncoderDecoder

    return EncoderDecoder


def _attention() -> "Network":
    from antiphon.models.recurrent import Attention

    return Attention


def _transformer() -> "Network":
    from antiphon.models.transformer import Transformer

    return Transformer


def _language_model() -> "Network":
    from antiphon.models.recurrent import LanguageModel

    return LanguageModel


def _load_noisy_channel() -> "Load":
    from antiphon.runs.combined_runs import load_noisy_channel

    return load_noisy_channel


def _load_ensemble() -> "Load":
    from antiphon.runs.combined_runs import load_ensemble

    return load_ensemble


def _generation() -> "type[Task]":
    from antiphon.training.task import GenerationTask

    return GenerationTask


def _matching() -> "type[Task]":
    from antiphon.ranking.matching_task import MatchingTask

    return MatchingTask


def _count_suffix_rules() -> "Count":
    from antiphon.training.suffix_rules import train_suffix_rules

    return train_suffix_rules


def _count_overlap() -> "Count":
    from antiphon.ranking.matching_task import train_overlap

    return train_overlap


def _check_questions() -> "Check":
    from antiphon.ranking.matching_task import check_questions

    return check_questions


def _beam_search() -> "Search":
    from antiphon.decode.beam_search import search_outputs

    return search_outputs


def _path_search() -> "Search":
    from antiphon.decode.thesis_searches import search_paths

    return search_paths


def _noisy_channel_search() -> "Search":
    from antiphon.decode.noisy_channel import search_noisy_channel

    return search_noisy_channel


def _cell_search() -> "Search":
    from antiphon.decode.thesis_searches import search_cells

    return search_cells


def _align() -> "Explain":
    from antiphon.decode.alignments import align

    return align


def _attend() -> "Explain":
    from antiphon.decode.alignments import attend

    return attend


def _match_ranker() -> "Rank":
    from antiphon.ranking.rankers import load_match_ranker

    return load_match_ranker


def _overlap_ranker() -> "Rank":
    from antiphon.ranking.rankers import load_overlap_ranker

    return load_overlap_ranker


for _kind in (
    Kind(
        section=TransducerSection,
        interface=_neural_model,
        uses=_PAIRS | {"paths", "streams"},
        network=_transducer,
        task=_generation,
        search=_beam_search,
        path_search=_path_search,
        explain=_align,
        explanation="alignment",
    ),
    Kind(
        section=EncoderDecoderSection,
        interface=_neural_model,
        uses=_PAIRS,
        network=_encoder_decoder,
        task=_generation,
        search=_beam_search,
    ),
    Kind(
        section=AttentionSection,
        interface=_neural_model,
        uses=_PAIRS,
        network=_attention,
        task=_generation,
        search=_beam_search,
        explain=_attend,
        explanation="attention",
    ),
    Kind(
        section=TransformerSection,
        interface=_neural_model,
        uses=_PAIRS,
        network=_transformer,
        task=_generation,
        search=_beam_search,
        explain=_attend,
        explanation="attention",
    ),
    Kind(
        section=LanguageModelSection,
        interface=_neural_model,
        uses=frozenset(("pairs", "batches", "epochs", "tokens", "targets")),
        network=_language_model,
        task=_generation,
    ),
    Kind(
        section=SuffixRuleSection,
        interface=_rule_model,
        uses=frozenset(("pairs",)),
        count=_count_suffix_rules,
    ),
    Kind(
        section=NoisyChannelSection,
        interface=_noisy_channel_model,
        uses=frozenset(("pairs", "batches", "search", "rescoring", "paths", "streams")),
        load=_load_noisy_channel,
        made_by="combine",
        search=_noisy_channel_search,
        cell_search=_cell_search,
    ),
    Kind(
        section=EnsembleSection,
        interface=_neural_model,
        uses=frozenset(("pairs", "batches", "search")),
        load=_load_ensemble,
        made_by="ensemble",
        search=_beam_search,
    ),
    Kind(
        section=MatcherSection,
        interface=_ranking_model,
        uses=frozenset(("questions", "vectors", "epochs")),
        task=_matching,
        check=_check_questions,
        rank=_match_ranker,
    ),
    Kind(
        section=OverlapSection,
        interface=_ranking_model,
        uses=frozenset(("questions",)),
        count=_count_overlap,
        check=_check_questions,
        rank=_overlap_ranker,
    ),
):
    register(_kind)
