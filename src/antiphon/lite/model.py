"""Exported models: predictions, scores and streams with numpy and onnxruntime."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from antiphon.lite.folder import ExportedFolder
from antiphon.lite.graphs import TWIN, GraphModel
from antiphon.lite.search import BeamSearch
from antiphon.lite.streams import GRAPHS, LiteStreams, StreamGraphs
from antiphon.torch_free.batch import PaddedPairs
from antiphon.torch_free.hypothesis import (
    BeamSettings,
    Hypothesis,
    OutputScorer,
    best_of_both,
    found_pairs,
    have_unknown,
    log_mean,
    with_alignments,
    with_candidates,
)
from antiphon.torch_free.inputs import MAX_THREADS, PredictOptions, StreamOptions, as_path, check_whole
from antiphon.torch_free.prediction import CandidateSearch, PredictionInterface, RuleSearch
from antiphon.torch_free.readers import Pair, Source, read_pairs, read_targets
from antiphon.torch_free.stream_policies import POLICIES
from antiphon.torch_free.streams import StreamGroup
from antiphon.torch_free.suffix_rule import RuleMixture, SuffixRules, add_rules

SHIPPED = Path(__file__).parent / "shipped"
"""The folder of the models that come with the package."""


def shipped_models() -> list[str]:
    """The names of the models that come with the package."""
    return sorted(path.name for path in SHIPPED.iterdir() if path.is_dir())


def load(folder: str | Path, *, threads: int = 1) -> "LiteModel | LiteRules":
    """The model in a folder that ``antiphon export`` wrote, to predict, score and stream.

    A name without a folder, such as ``en``, is a model that comes with the package. ``threads`` is the number of
    threads of onnxruntime.
    """
    check_whole("threads", threads, least=1, most=MAX_THREADS)
    path = as_path("folder", folder)
    is_name = str(path) in shipped_models() and not path.exists()
    exported = ExportedFolder(SHIPPED / path if is_name else path)
    is_rules = exported.settings["network"]["structure"] == "rules"
    return LiteRules(exported) if is_rules else LiteModel(exported, threads)


class ExportedModel(PredictionInterface):
    """Base class of exported models: their settings, behind the same interface as the models of ``antiphon.load``."""

    def __init__(self, folder: ExportedFolder) -> None:
        settings, text = folder.settings, folder.settings["text"]
        super().__init__(
            folder.codec,
            settings["kind"],
            can_predict=settings["predicts"],
            reads_features=text["reads_features"],
            swaps_columns=text["swap"],
            column_order=text["columns"],
            batch_size=settings["batch_size"],
        )
        self.folder = folder

    def _file_pairs(self, path: Path) -> Iterable[Pair]:
        read = read_pairs if self.can_predict else read_targets
        return read(path, features=self.reads_features, swap=self.swaps_columns, columns=self.column_order)


class LiteRules(ExportedModel):
    """Suffix rules alone."""

    can_score = False

    def __init__(self, folder: ExportedFolder) -> None:
        super().__init__(folder)
        self.search = RuleSearch(self.kind, self.codec, SuffixRules.load(folder.path / "rules.tsv"))


class LiteModel(ExportedModel):
    """An exported network, with suffix rules beside it if they have a weight."""

    def __init__(self, folder: ExportedFolder, threads: int) -> None:
        super().__init__(folder)
        self.threads, self.network = threads, GraphModel(folder, threads)
        self.twin = GraphModel(folder, threads, TWIN) if folder.has(f"{TWIN}start.onnx") else None
        if weight := float(folder.settings["rule_weight"]):
            rules = SuffixRules.load(folder.path / "rules.tsv")
            self.mixture = RuleMixture(rules, weight, self.codec, self.network.copies_unknown)
        self.search = CandidateSearch(self.codec, folder.beam_settings(), self._find)

    def _find(self, sources: Sequence[Source], options: PredictOptions) -> list[list[Hypothesis]]:
        if options.sample is not None:
            raise self._cannot("draw samples without PyTorch", "nbest or cover, or the run itself in antiphon.load")
        pairs = self.codec.padded(sources)
        prefix = self.codec.target.known_ids(options.prefix, "prefix")
        found = self._searched(pairs, self.folder.beam_settings(beam=options.beam, nbest=options.max_outputs), prefix)
        if self.mixture is not None and not prefix:
            answers = self.mixture.answers(sources)
            found = add_rules(self._scorer(pairs), found, answers, self.mixture.weight, options.max_outputs)
        if (options.align or have_unknown(found)) and self.network.aligns and any(found):
            found = with_alignments(found, self.network.best_rows(found_pairs(pairs, found)).tolist())
        return found

    def _searched(self, pairs: PaddedPairs, settings: BeamSettings, prefix: Sequence[int]) -> list[list[Hypothesis]]:
        """What the search finds; with a right-to-left twin, what both find together."""
        if self.twin is None or prefix:
            return BeamSearch(self.network, pairs, settings, prefix).run()
        found = BeamSearch(self.network, pairs, with_candidates(settings)).run()
        mirrored = BeamSearch(self.twin, pairs.reversed(), with_candidates(settings)).run()
        return best_of_both(found, mirrored, self._scorer(pairs), settings)

    def _scorer(self, pairs: PaddedPairs) -> OutputScorer[PaddedPairs]:
        return OutputScorer(
            pairs, self.network.token_log_probs, None if self.twin is None else self.twin.token_log_probs
        )

    def _log_probs(self, pairs: list[tuple[Source, str]]) -> list[float]:
        """What the network gives each pair of a batch, or the mean of it and its twin."""
        batch = self.codec.padded(*zip(*pairs, strict=True))
        forward: list[float] = self.network.token_log_probs(batch).sum(1).tolist()
        if self.twin is None:
            return forward
        return list(map(log_mean, forward, self.twin.token_log_probs(batch.reversed()).sum(1).tolist()))

    def links(self, source: str, target: str) -> list[tuple[int, int]]:
        """The positions of source and target tokens on the best alignment of a pair, both from 0."""
        if not self.network.aligns:
            raise self._cannot("align", "a transducer")
        pairs = self.codec.padded([Source(source)], [target])
        rows = self.network.best_rows(pairs)[0].tolist()[:-1]
        last = max(0, int(pairs.source_lengths[0]) - 2)
        return [(min(row, last), column) for column, row in enumerate(rows)]

    @cached_property
    def _stream_graphs(self) -> StreamGraphs:
        if not all(self.folder.has(f"{name}.onnx") for name in GRAPHS):
            raise self._cannot("stream without PyTorch", "a transducer with a unidirectional LSTM as encoder")
        return StreamGraphs(self.folder, self.threads)

    def _streams(self, features: Sequence[Sequence[str]], options: StreamOptions) -> StreamGroup:
        """Streams of a transducer with a unidirectional LSTM."""
        network = LiteStreams(self._stream_graphs)
        settings = self.folder.beam_settings(beam=options.get("beam"))
        if (margin := options.get("margin")) is not None:
            settings = replace(settings, commit_margin=margin)
        policy, ids = POLICIES[options.get("policy", "beam")], self.codec.feature_ids(features)
        return StreamGroup(policy(network, settings, ids, options.get("emit_bias", 0.0)), self.codec, len(features))
