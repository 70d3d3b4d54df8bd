"""Exported models: predictions, scores and streams with numpy and onnxruntime."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from antiphon.lite.folder import ExportedFolder, read_at_rest
from antiphon.lite.graphs import token_log_probs
from antiphon.lite.loading import load_network, load_noisy_channel, load_stream_graphs
from antiphon.lite.noisy_channel import NoisyChannel, NoisyChannelRescorer, search_noisy_channel
from antiphon.lite.search import BeamSearch, PrefixModel
from antiphon.lite.streams import LiteStreams, StreamGraphs
from antiphon.torch_free.batch import PaddedPairs, plan_batches
from antiphon.torch_free.hypothesis import BeamSettings, Hypothesis, Weights, have_unknown
from antiphon.torch_free.inputs import MAX_THREADS, PredictOptions, StreamOptions, as_path, check_whole
from antiphon.torch_free.prediction import MAX_BATCH_CELLS, CandidateSearch, PredictionInterface, RuleSearch
from antiphon.torch_free.readers import Pair, Source, read_pairs, read_targets
from antiphon.torch_free.stream_policies import POLICIES
from antiphon.torch_free.streams import StreamGroup
from antiphon.torch_free.suffix_rule import Rescoring, RuleMixture, SuffixRules

_SHIPPED = Path(__file__).parent / "shipped"


def shipped_models() -> list[str]:
    """The names of the models that come with the package."""
    return sorted(path.name for path in _SHIPPED.iterdir() if path.is_dir())


def load(folder: str | Path, *, threads: int = 1) -> "LiteModel | LiteRules":
    """The model in a folder that ``antiphon export`` wrote, to predict, score and stream.

    A name without a folder, such as ``en``, is a model that comes with the package. ``threads`` is the number of
    threads of onnxruntime.
    """
    check_whole("threads", threads, least=1, most=MAX_THREADS)
    path = as_path("folder", folder)
    if str(path) in shipped_models() and not path.exists():
        path = _SHIPPED / path
    return read_at_rest(path, partial(_model, threads=threads))


def _model(exported: ExportedFolder, threads: int) -> "LiteModel | LiteRules":
    """The model in a folder whose files have been verified."""
    if exported.structure == "rules":
        return LiteRules(exported)
    is_channel = exported.structure == "noisy_channel"
    return LiteNoisyChannel(exported, threads) if is_channel else LiteModel(exported, threads)


class ExportedModel(PredictionInterface):
    """Base class of exported models: their settings, behind the same interface as the models of ``antiphon.load``."""

    def __init__(self, folder: ExportedFolder) -> None:
        settings, text = folder.settings, folder.settings["text"]
        super().__init__(
            folder.codec,
            folder.kind,
            can_predict=bool(settings["predicts"]),
            reads_features=bool(text["reads_features"]),
            swaps_columns=bool(text["swap"]),
            column_order=text["columns"],
            batch_size=int(settings["batch_size"]),
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
        self.search = RuleSearch(self.kind, self.codec, SuffixRules.load(folder.file("rules.tsv")))


class LiteModel(ExportedModel):
    """An exported network, with suffix rules beside it if they have a weight."""

    def __init__(self, folder: ExportedFolder, threads: int = 1) -> None:
        super().__init__(folder)
        self.threads = threads
        self.network: Any = self._load()
        self.mixture: RuleMixture | None = None
        if weight := float(folder.settings["rule_weight"]):
            rules = SuffixRules.load(folder.file("rules.tsv"))
            self.mixture = RuleMixture(rules, weight, self.codec, bool(self.network.copies_unknown))
        self.search = CandidateSearch(self.codec, folder.beam_settings(beam=None, nbest=1), self._find)

    def _load(self) -> Any:
        return load_network(self.folder, self.threads)

    def _find(self, sources: Sequence[Source], options: PredictOptions) -> list[list[Hypothesis]]:
        if options.sample is not None:
            raise self._cannot("draw samples without PyTorch", "nbest or cover, or the run itself in antiphon.load")
        pairs = self.codec.padded(sources)
        found = self._search(pairs, options)
        if self.mixture is not None and not options.prefix:
            score, rescoring = partial(self._score_outputs, pairs), self._rescoring(pairs)
            found = self.mixture.add(score, found, sources, options.max_outputs, rescoring)
        if options.align or have_unknown(found):
            found = self._add_alignments(pairs, found)
        if self.folder.settings["search"]["replace_unknown"]:
            found = self._replace_unknown(pairs, found)
        return found

    def _search(self, pairs: PaddedPairs, options: PredictOptions) -> list[list[Hypothesis]]:
        return BeamSearch(self._prefixed_writer(options), pairs, self._search_settings(options)).run()

    def _search_settings(self, options: PredictOptions) -> BeamSettings:
        return self.folder.beam_settings(beam=options.beam, nbest=options.max_outputs)

    def _prefixed_writer(self, options: PredictOptions) -> Any:
        """The network that writes, with outputs that begin with the prefix of the options, if there is one."""
        prefix = self.codec.target.known_ids(options.prefix, "prefix")
        return PrefixModel(self._writer, prefix) if prefix else self._writer

    def _score_outputs(
        self, pairs: PaddedPairs, sources: Sequence[int], outputs: Sequence[tuple[int, ...]]
    ) -> list[Hypothesis]:
        """Each output, the end symbol last, as a hypothesis for the source with its index in the batch."""
        theirs = pairs.take(np.array(sources)).with_targets([np.array(output[:-1], np.int32) for output in outputs])
        rows = token_log_probs(self._writer, theirs).tolist()
        each = [tuple(row[: len(output)]) for row, output in zip(rows, outputs, strict=True)]
        return [Hypothesis(output, sum(row), sum(row), row) for output, row in zip(outputs, each, strict=True)]

    def _rescoring(self, pairs: PaddedPairs) -> Rescoring | None:
        """How outputs are ranked by more than the network; None: by the network alone."""
        return None

    def _add_alignments(self, pairs: PaddedPairs, found: list[list[Hypothesis]]) -> list[list[Hypothesis]]:
        """The same hypotheses, each with its best alignment if there is a transducer."""
        if not self._writer.aligns or not any(found):
            return found
        rows = iter(self._writer.best_rows(found_pairs(pairs, found)).tolist())
        return [[replace(each, alignment=tuple(next(rows)[: len(each.tokens)])) for each in some] for some in found]

    def links(self, source: str, target: str) -> list[tuple[int, int]]:
        """The positions of source and target tokens on the best alignment of a pair, both from 0."""
        if not self._writer.aligns:
            raise self._cannot("align", "a transducer")
        pairs = self.codec.padded([Source(source)], [target])
        rows = self._writer.best_rows(pairs)[0].tolist()[:-1]
        last = max(0, int(pairs.source_lengths[0]) - 2)
        return [(min(row, last), column) for column, row in enumerate(rows)]

    @cached_property
    def _stream_graphs(self) -> StreamGraphs | None:
        return load_stream_graphs(self.folder, self.threads)

    def _streams(self, features: Sequence[Sequence[str]], options: StreamOptions) -> StreamGroup:
        """Streams of a transducer with a unidirectional LSTM."""
        graphs = self._stream_graphs
        if graphs is None:
            raise self._cannot("stream without PyTorch", "a transducer with a unidirectional LSTM as encoder")
        settings = self.folder.beam_settings(beam=options.get("beam"), nbest=1)
        if (margin := options.get("margin")) is not None:
            settings = replace(settings, commit_margin=margin)
        policy = POLICIES[options.get("policy", "beam")]
        ids, emit_bias = self.codec.feature_ids(features), options.get("emit_bias", 0.0)
        return StreamGroup(policy(LiteStreams(graphs), settings, ids, emit_bias), self.codec, len(features))

    @property
    def _writer(self) -> Any:
        """The network that writes tokens: of a noisy channel, its direct model."""
        return self.network

    def _replace_unknown(self, pairs: PaddedPairs, found: list[list[Hypothesis]]) -> list[list[Hypothesis]]:
        """The hypotheses with source words instead of unknown tokens, as attention weights link them."""
        if not self._writer.attends or not have_unknown(found):
            return found
        theirs = found_pairs(pairs, found)
        is_word = np.arange(theirs.source.shape[1]) < theirs.source_lengths[:, None] - 1
        positions = iter(np.where(is_word[:, :, None], self._writer.attention(theirs), -1).argmax(1).tolist())
        size = len(self.codec.target.vocab)
        return [[each.with_copies(next(positions), size) for each in some] for some in found]

    def _score(self, pairs: list[tuple[Source, str]]) -> list[tuple[float, int]]:
        scores = [(0.0, 0)] * len(pairs)
        batch = self.codec.padded(*zip(*pairs, strict=True)) if pairs else PaddedPairs.of([])
        plan = plan_batches(
            batch.source_lengths, batch.target_lengths, batch_size=self.batch_size, max_cells=MAX_BATCH_CELLS
        )
        for indices in plan:
            some = self.codec.padded(*zip(*(pairs[index] for index in indices), strict=True))
            log_probs = token_log_probs(self.network, some).sum(1)
            for index, log_prob in zip(indices, log_probs.tolist(), strict=True):
                mixed = log_prob if self.mixture is None else self.mixture.log_prob(log_prob, *pairs[index])
                scores[index] = mixed, int(batch.target_lengths[index])
        return scores


class LiteNoisyChannel(LiteModel):
    """Direct model, channel model, language model and length bias, searched together."""

    can_score = False
    """The objective is not a probability."""

    @property
    def weights(self) -> Weights:
        """The weights of the feature scores."""
        weights: Weights = self.network.weights
        return weights

    def _load(self) -> NoisyChannel:
        return load_noisy_channel(self.folder, self.threads)

    @property
    def _writer(self) -> Any:
        """The direct model."""
        return self.network.direct

    def _search(self, pairs: PaddedPairs, options: PredictOptions) -> list[list[Hypothesis]]:
        if options.cover is not None:
            raise self._cannot("give probabilities of its own", "a single model or an ensemble for cover")
        return search_noisy_channel(self.network, self._prefixed_writer(options), pairs, self._search_settings(options))

    def _rescoring(self, pairs: PaddedPairs) -> Rescoring:
        settings = self.folder.beam_settings(beam=None, nbest=1)
        return Rescoring(NoisyChannelRescorer(self.network, pairs, settings).rescore, self.weights)


def found_pairs(pairs: PaddedPairs, found: Sequence[Sequence[Hypothesis]]) -> PaddedPairs:
    """A pair for each hypothesis: its source, and its tokens as the target."""
    index = np.array([b for b, hypotheses in enumerate(found) for _ in hypotheses])
    targets = [np.array(each.tokens[:-1], np.int32) for hypotheses in found for each in hypotheses]
    return pairs.take(index).with_targets(targets)
