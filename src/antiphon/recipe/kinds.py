"""The registry of kinds: every kind of model, its settings, and what builds, trains, searches, explains and serves it.

To add a kind, write one file with its network and its section of settings, and one entry here. Nothing else lists
kinds. An entry names what belongs to a kind as ``"module:name"``, which is imported when it is first needed: so
settings can be read without PyTorch, and this file stays below all that it names. ``register`` takes objects as well.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, TypeVar, cast

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
    RankingEnsembleSection,
    SuffixRuleSection,
    TransducerSection,
    TransformerSection,
)
from antiphon.recipe.section import SettingGroup

if TYPE_CHECKING:
    from torch import nn

    from antiphon.decode.explanation import Explain
    from antiphon.torch_free.hypothesis import Search

T = TypeVar("T")
_PAIRS: frozenset[SettingGroup] = frozenset(("pairs", "batches", "epochs", "tokens", "search"))
_TRAINED = "antiphon.training.tasks.generation_task:GenerationTask"
_NEURAL = "antiphon.api.generation_models:NeuralModel"
_BEAM_SEARCH = "antiphon.decode.beam_search:search_outputs"


@dataclass(frozen=True)
class Kind:
    """A kind of model; a kind has one of ``task``, ``count`` and ``made_by``.

    Training steps are captured as CUDA graphs on a GPU, so none may need a device sync.
    """

    section: type[ModelSection]
    """Its settings in the section ``model``."""
    interface: Any
    """The class of ``antiphon.api`` that users work with."""
    uses: frozenset[SettingGroup]
    """The groups of settings of other sections that it has."""
    model: "str | Callable[..., nn.Module] | None" = None
    """Builds the untrained network from vocabulary sizes and settings."""
    load: Any = "antiphon.runs.run_folder:load_network"
    """Reads the trained network of a run."""
    task: Any = None
    """The ``Task`` (``training/training_setup.py``) that trains it by gradient descent."""
    count: Any = None
    """Trains it by counting, in one pass over the data."""
    made_by: str = ""
    """The command that makes it of trained runs."""
    search: "str | Search | None" = None
    """Finds outputs."""
    path_search: "str | Search | None" = None
    """Finds outputs with their best alignments (``search.over = "paths"``)."""
    explain: "str | Explain | None" = None
    """Links the input and the output of a pair."""
    explanation: str = ""
    """What ``explain`` gives: an alignment, or attention weights."""
    rank: Any = None
    """Reads the ranker of a run, for kinds that rank given answers."""

    @property
    def name(self) -> str:
        """What ``model.kind`` says."""
        return cast(str, self.section.model_fields["kind"].default)

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


def resolve(reference: str | T) -> T:
    """What an entry of the registry refers to."""
    return cast(T, resolve_name(reference)) if isinstance(reference, str) else reference


def register(kind: Kind) -> None:
    """Adds a kind of model; recipes can ask for it from now on."""
    if kind.name in KINDS:
        raise RecipeError(f"model.kind = {kind.name}: registered already, expected another name")
    KINDS[kind.name] = kind


KINDS: dict[str, Kind] = {}
for _kind in (
    Kind(
        section=TransducerSection,
        interface=_NEURAL,
        uses=_PAIRS | {"paths", "streams"},
        model="antiphon.models.transducer:Transducer",
        task=_TRAINED,
        search=_BEAM_SEARCH,
        path_search="antiphon.decode.path_search:search_paths",
        explain="antiphon.decode.explanation:align",
        explanation="alignment",
    ),
    Kind(
        section=EncoderDecoderSection,
        interface=_NEURAL,
        uses=_PAIRS,
        model="antiphon.models.encoder_decoder:EncoderDecoder",
        task=_TRAINED,
        search=_BEAM_SEARCH,
    ),
    Kind(
        section=AttentionSection,
        interface=_NEURAL,
        uses=_PAIRS | {"attention"},
        model="antiphon.models.attention:Attention",
        task=_TRAINED,
        search=_BEAM_SEARCH,
        explain="antiphon.decode.explanation:attend",
        explanation="attention",
    ),
    Kind(
        section=TransformerSection,
        interface=_NEURAL,
        uses=_PAIRS | {"attention"},
        model="antiphon.models.transformer:Transformer",
        task=_TRAINED,
        search=_BEAM_SEARCH,
        explain="antiphon.decode.explanation:attend",
        explanation="attention",
    ),
    Kind(
        section=LanguageModelSection,
        interface=_NEURAL,
        uses=frozenset(("pairs", "batches", "epochs", "tokens", "targets")),
        model="antiphon.models.language_model:LanguageModel",
        task=_TRAINED,
    ),
    Kind(
        section=SuffixRuleSection,
        interface="antiphon.api.generation_models:RuleModel",
        uses=frozenset(("pairs",)),
        count="antiphon.training.tasks.counting:train_suffix_rules",
    ),
    Kind(
        section=NoisyChannelSection,
        interface="antiphon.api.generation_models:NoisyChannelModel",
        uses=frozenset(("pairs", "batches", "search", "rescoring", "streams")),
        load="antiphon.runs.combined_runs:load_noisy_channel",
        made_by="combine",
        search="antiphon.decode.rescoring:search_noisy_channel",
    ),
    Kind(
        section=EnsembleSection,
        interface=_NEURAL,
        uses=frozenset(("pairs", "batches", "search", "members", "attention")),
        load="antiphon.runs.combined_runs:load_ensemble",
        made_by="ensemble",
        search=_BEAM_SEARCH,
    ),
    Kind(
        section=MatcherSection,
        interface="antiphon.api.ranking_model:RankingModel",
        uses=frozenset(("questions", "vectors", "epochs")),
        task="antiphon.training.tasks.matching_task:MatchingTask",
        rank="antiphon.ranking.saved_rankers:load_match_ranker",
    ),
    Kind(
        section=OverlapSection,
        interface="antiphon.api.ranking_model:RankingModel",
        uses=frozenset(("questions",)),
        count="antiphon.training.tasks.counting:train_overlap",
        rank="antiphon.ranking.saved_rankers:load_overlap_ranker",
    ),
    Kind(
        section=RankingEnsembleSection,
        interface="antiphon.api.ranking_model:RankingModel",
        uses=frozenset(("questions",)),
        made_by="ensemble",
        rank="antiphon.ranking.ensemble_rankers:load_ensemble_ranker",
    ),
):
    register(_kind)
