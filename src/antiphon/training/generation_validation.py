"""Validation of models that generate: perplexity, and metrics of outputs where the dev metric needs them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor, nn

from antiphon.data.batch import Batch
from antiphon.data.corpus import Corpus
from antiphon.decode.alignments import add_alignments, replace_unknown
from antiphon.metrics.output_metrics import Outputs, perplexity, score_outputs
from antiphon.models.sequence_model import log_prob
from antiphon.torch_free.codec import PairCodec
from antiphon.torch_free.hypothesis import BeamSettings, Hypothesis, Search, have_unknown
from antiphon.torch_free.readers import Pair
from antiphon.training.distributed import all_gather, rank, world_size
from antiphon.training.state import RunningMean
from antiphon.training.task import DevResult, Indices, InMicroBatches


class OutputMetrics(NamedTuple):
    """How outputs are searched for and scored; ``pairs`` has the text of every dev pair."""

    codec: PairCodec
    search: Search
    beam: BeamSettings
    metrics: Sequence[str]
    pairs: Sequence[Pair]


class _Measured(NamedTuple):
    """The summed loss of a micro-batch, its number of target tokens, and its outputs where they are searched for."""

    loss: Tensor
    tokens: int
    outputs: list[list[Hypothesis]]


@dataclass(frozen=True)
class GenerationValidation:
    """The perplexity of dev pairs and, with ``outputs``, the metrics of what is generated for them.

    ``plan`` has the indices of the pairs of every batch. Several processes take turns.
    """

    dev: Corpus
    plan: Sequence[Indices]
    outputs: OutputMetrics | None

    def __call__(self, model: nn.Module, in_micro_batches: InMicroBatches) -> DevResult:
        """The dev loss and metrics of a model."""
        loss, written = RunningMean(), list[tuple[int, list[str]]]()
        for indices in self.plan[rank() :: world_size()]:
            hypotheses: list[list[Hypothesis]] = []
            for part in in_micro_batches(self.dev.batch(indices), lambda batch: self._measure(model, batch)):
                loss.add(part.loss, part.tokens)
                hypotheses += part.outputs
            written += [(pair, self._decode(pair, found)) for pair, found in zip(indices.tolist(), hypotheses)]  # noqa: B905
        loss.all_reduce()
        return DevResult(loss.value, {"perplexity": perplexity(-loss.value, 1).value, **self._score(written)})

    def _measure(self, model: nn.Module, batch: Batch) -> _Measured:
        loss, tokens = -log_prob(model, batch).sum(), int(batch.target_lengths.sum())
        if self.outputs is None:
            return _Measured(loss, tokens, [])
        found = self.outputs.search(model, batch, self.outputs.beam)
        if have_unknown(found):
            found = add_alignments(model, batch, found)
        if self.outputs.beam.replace_unknown:
            found = replace_unknown(model, batch, found, len(self.outputs.codec.target.vocab))
        return _Measured(loss, tokens, found)

    def _decode(self, pair: int, hypotheses: list[Hypothesis]) -> list[str]:
        """The tokens of the best output, as prediction writes them."""
        assert self.outputs is not None
        if not hypotheses:
            return []
        codec, best = self.outputs.codec, hypotheses[0]
        source = codec.source.tokens(self.outputs.pairs[pair].source)
        return codec.decode_copied(best.tokens, best.alignment, source)

    def _without_runaway(self, tokens: list[str], reference: str) -> list[str]:
        """An output, or nothing instead of one more than twice as long as its reference.

        So its edits are those of a missing output at most, and a single endless output cannot choose the epoch.
        """
        assert self.outputs is not None
        return tokens if len(tokens) <= 2 * len(self.outputs.codec.target.tokens(reference)) else []

    def _score(self, written: Sequence[tuple[int, list[str]]]) -> dict[str, float]:
        """The metrics of the outputs of all processes."""
        if self.outputs is None:
            return {}
        found, pairs = all_gather(written), self.outputs.pairs
        references = [[pairs[index].target] for index, _ in found]
        sources = [self.outputs.codec.source.tokens(pairs[index].source) for index, _ in found]
        ended = [self._without_runaway(tokens, pairs[index].target) for index, tokens in found]
        outputs = Outputs.of(self.outputs.codec.target, ended, references, sources)
        return {name: score.value for name, score in score_outputs(outputs, self.outputs.metrics).items()}
