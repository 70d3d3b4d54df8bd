"""Exported models: predictions, scores and streams with numpy and onnxruntime."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from antiphon.exceptions import RecipeError
from antiphon.lite.exported_folder import ExportedFolder, read_at_rest
from antiphon.lite.loading_networks import load_network, load_noisy_channel
from antiphon.lite.noisy_channel_search import NoisyChannel, search_noisy_channel
from antiphon.lite.noisy_channel_streams import LiteNoisyChannelDecoder
from antiphon.lite.output_search import OutputSearch
from antiphon.lite.step_model import PrefixModel, output_log_probs, token_log_probs
from antiphon.lite.stream_decoders import LiteBeamDecoder, LiteGreedyDecoder
from antiphon.torch_free.batch import PaddedPairs, plan_batches
from antiphon.torch_free.candidate_search import CandidateSearch
from antiphon.torch_free.channel_weights import Weights
from antiphon.torch_free.hypothesis import BeamSettings, Hypothesis, have_unknown
from antiphon.torch_free.inputs import MAX_THREADS, PredictOptions, StreamOptions, as_path, check_whole
from antiphon.torch_free.noisy_channel_policy import SeparateStreams
from antiphon.torch_free.prediction_interface import MAX_BATCH_CELLS, PredictionInterface
from antiphon.torch_free.readers import ColumnOrder, Pair, Source, read_pairs, read_targets
from antiphon.torch_free.results import Candidate
from antiphon.torch_free.rule_mixture import add_rules
from antiphon.torch_free.rule_outputs import RuleOutputs
from antiphon.torch_free.suffix_rule import SuffixRules
from antiphon.torch_free.text_streams import StreamGroup

STREAMS: dict[str, type[LiteGreedyDecoder | LiteBeamDecoder]] = {"greedy": LiteGreedyDecoder, "beam": LiteBeamDecoder}


def load(folder: str | Path, *, threads: int = 1) -> "LiteModel | LiteRules":
    """The model in a folder that ``antiphon export`` wrote, to predict, score and stream.

    ``threads`` is the number of threads of onnxruntime.
    """
    check_whole("threads", threads, least=1, most=MAX_THREADS)
    return read_at_rest(as_path("folder", folder), partial(_model, threads=threads))


def _model(exported: ExportedFolder, threads: int) -> "LiteModel | LiteRules":
    """The model in a folder whose files have been verified."""
    if exported.structure == "rules":
        return LiteRules(exported)
    is_channel = exported.structure == "noisy_channel"
    return LiteNoisyChannel(exported, threads) if is_channel else LiteModel(exported, threads)


class ExportedModel(PredictionInterface):
    """Base class of exported models: their settings, behind the same interface as the models of ``antiphon.load``."""

    def __init__(self, folder: ExportedFolder) -> None:
        self.folder, self.codec = folder, folder.codec

    @property
    def kind(self) -> str:
        """The kind of model."""
        return self.folder.kind

    @property
    def can_predict(self) -> bool:
        """Whether the model writes outputs for inputs, as all but language models do."""
        return bool(self.folder.settings["predicts"])

    @property
    def reads_features(self) -> bool:
        """Whether the model was trained with features."""
        return bool(self.folder.settings["text"]["reads_features"])

    @property
    def swaps_columns(self) -> bool:
        """Whether the model maps the targets of its files to their sources."""
        return bool(self.folder.settings["text"]["swap"])

    @property
    def column_order(self) -> ColumnOrder:
        """The columns of files of pairs."""
        order: ColumnOrder = self.folder.settings["text"]["columns"]
        return order

    @property
    def batch_size(self) -> int:
        """Inputs decoded at once."""
        return int(self.folder.settings["batch_size"])

    def _file_pairs(self, path: Path) -> Iterable[Pair]:
        read = read_pairs if self.can_predict else read_targets
        return read(path, features=self.reads_features, swap=self.swaps_columns, columns=self.column_order)


class LiteRules(RuleOutputs, ExportedModel):
    """Suffix rules alone."""

    def __init__(self, folder: ExportedFolder) -> None:
        super().__init__(folder)
        self.rules = SuffixRules.load(folder.file("rules.tsv"))


class LiteModel(CandidateSearch, ExportedModel):
    """An exported network, with suffix rules beside it if they have a weight."""

    def __init__(self, folder: ExportedFolder, threads: int = 1) -> None:
        super().__init__(folder)
        self.rule_weight = float(folder.settings["rule_weight"])
        self.rules = SuffixRules.load(folder.file("rules.tsv")) if self.rule_weight else None
        self.network: Any = self._load(threads)

    def _load(self, threads: int) -> Any:
        return load_network(self.folder, threads)

    @property
    def beam(self) -> int:
        """The setting of the search."""
        return int(self.folder.settings["search"]["beam"])

    @property
    def length_normalisation(self) -> float:
        """The setting of the search."""
        return float(self.folder.settings["search"]["length_normalisation"])

    @property
    def copies_unknown(self) -> bool:
        """Whether the network writes the unknown token to copy the input token at its position."""
        return bool(self.network.copies_unknown)

    def _candidates(self, sources: Sequence[Source], options: PredictOptions) -> list[list[Candidate]]:
        if options.sample is not None:
            raise self._cannot("draw samples without PyTorch", "nbest or cover, or the run itself in antiphon.load")
        pairs = self.codec.padded(sources)
        found = self._search(pairs, options)
        if self.rules is not None and not options.prefix:
            answers = [self.rule_output(self.rules, source) for source in sources]
            score = partial(output_log_probs, self.network, pairs)
            found = add_rules(score, found, answers, self.rule_weight, options.max_outputs)
        if options.align or have_unknown(found):
            found = self._add_alignments(pairs, found)
        if self.folder.settings["search"]["replace_unknown"]:
            found = self._replace_unknown(pairs, found)
        symbols = [self.codec.source.tokens(source.text) for source in sources]
        return [[self._candidate(each, own) for each in some] for some, own in zip(found, symbols, strict=True)]

    def _search(self, pairs: PaddedPairs, options: PredictOptions) -> list[list[Hypothesis]]:
        return OutputSearch(self._prefixed_writer(options), pairs, self._search_settings(options)).run()

    def _search_settings(self, options: PredictOptions) -> BeamSettings:
        return self.folder.beam_settings(beam=options.beam, nbest=options.max_outputs)

    def _prefixed_writer(self, options: PredictOptions) -> Any:
        """The network that writes, with outputs that begin with the prefix of the options, if there is one."""
        prefix = self.codec.target.known_ids(options.prefix, "prefix")
        return PrefixModel(self._writer, prefix) if prefix else self._writer

    def _add_alignments(self, pairs: PaddedPairs, found: list[list[Hypothesis]]) -> list[list[Hypothesis]]:
        """The same hypotheses, each with its best alignment if there is a transducer."""
        best_rows = getattr(self._writer, "best_rows", None)
        if best_rows is None or not any(found):
            return found
        rows = iter(best_rows(found_pairs(pairs, found)).tolist())
        return [[replace(each, alignment=tuple(next(rows)[: len(each.tokens)])) for each in some] for some in found]

    def _streams(self, features: Sequence[Sequence[str]], options: StreamOptions) -> StreamGroup:
        """Streams of a transducer with a unidirectional LSTM."""
        settings = self._stream_settings(options)
        policy = STREAMS[options.get("policy", "beam")]
        ids, emit_bias = self.codec.feature_ids(features), options.get("emit_bias", 0.0)
        return StreamGroup(policy(self._writer.graphs, ids, settings, emit_bias), self.codec, len(features))

    def _stream_settings(self, options: StreamOptions) -> BeamSettings:
        graphs = getattr(self._writer, "graphs", None)
        if graphs is None or not graphs.can_stream:
            raise self._cannot("stream without PyTorch", "a transducer with a unidirectional LSTM as encoder")
        settings = self.folder.beam_settings(beam=options.get("beam"), nbest=1)
        margin = options.get("margin")
        return settings if margin is None else replace(settings, commit_margin=margin)

    @property
    def _writer(self) -> Any:
        """The network that writes tokens: of a noisy channel, its direct model."""
        return self.network

    def _replace_unknown(self, pairs: PaddedPairs, found: list[list[Hypothesis]]) -> list[list[Hypothesis]]:
        """The hypotheses with source words instead of unknown tokens, as attention weights link them."""
        attention = getattr(self._writer, "attention", None)
        if attention is None or not have_unknown(found):
            return found
        theirs = found_pairs(pairs, found)
        is_word = np.arange(theirs.source.shape[1]) < theirs.source_lengths[:, None] - 1
        positions = iter(np.where(is_word[:, :, None], attention(theirs), -1).argmax(1).tolist())
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
                scores[index] = self._mixed(log_prob, *pairs[index]), int(batch.target_lengths[index])
        return scores


class LiteNoisyChannel(LiteModel):
    """Direct model, channel model, language model and length bias, searched together."""

    @property
    def can_score(self) -> bool:
        """False: the objective is not a probability."""
        return False

    @property
    def weights(self) -> Weights:
        """The weights of the feature scores."""
        weights: Weights = self.network.weights
        return weights

    def _load(self, threads: int) -> NoisyChannel:
        return load_noisy_channel(self.folder, threads)

    @property
    def _writer(self) -> Any:
        """The direct model."""
        return self.network.direct

    def _search(self, pairs: PaddedPairs, options: PredictOptions) -> list[list[Hypothesis]]:
        if options.cover is not None:
            raise self._cannot("give probabilities of its own", "a single model or an ensemble for cover")
        return search_noisy_channel(self.network, self._prefixed_writer(options), pairs, self._search_settings(options))

    def _streams(self, features: Sequence[Sequence[str]], options: StreamOptions) -> StreamGroup:
        """Streams of a noisy channel whose direct model is a transducer with a unidirectional LSTM."""
        if options.get("policy", "beam") != "beam":
            raise RecipeError("a noisy channel cannot stream with the policy greedy, expected beam")
        # The margin is in scores of the direct model alone, which must not discard what the others prefer.
        margin = options.get("margin")
        settings = self._stream_settings({**options, "margin": math.inf if margin is None else margin})
        start = partial(LiteNoisyChannelDecoder, self.network, settings=settings)
        streams = SeparateStreams(
            lambda ids, bias: start(ids, emit_bias=bias),
            self.codec.feature_ids(features),
            options.get("emit_bias", 0.0),
        )
        return StreamGroup(streams, self.codec, len(features))


def found_pairs(pairs: PaddedPairs, found: Sequence[Sequence[Hypothesis]]) -> PaddedPairs:
    """A pair for each hypothesis: its source, and its tokens as the target."""
    index = np.array([b for b, hypotheses in enumerate(found) for _ in hypotheses])
    targets = [np.array(each.tokens[:-1], np.int32) for hypotheses in found for each in hypotheses]
    return pairs.take(index).with_targets(targets)
