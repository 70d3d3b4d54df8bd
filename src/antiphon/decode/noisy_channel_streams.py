"""Online decoding with a noisy channel: the policy beam, whose outputs are selected by the objective.

Outputs of one cell are ranked by the objective; those of different lengths are compared by only the direct model, since
a language model would always prefer the output that has written less. The channel's lattice has a row for every node of
the tree of outputs and a column for every input token read. A node above what is written is pruned once almost no
channel probability passes through it, and so is a column that no active output depends on: memory does not grow with
the length of the input.

Thesis: section 5.3, with a unidirectional proposer.
"""

from collections.abc import Sequence
from heapq import nlargest
from operator import attrgetter
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from antiphon.data.batch import Batch
from antiphon.decode.channel_lattice import ChannelLattice, ChannelRows
from antiphon.decode.streams import TransducerStreams
from antiphon.models.left_to_right import join, select
from antiphon.models.noisy_channel import NoisyChannel
from antiphon.models.transducer import Transducer
from antiphon.nn.recurrent import LSTMState
from antiphon.torch_free.hypothesis import BeamSettings
from antiphon.torch_free.stream_beam import Extension
from antiphon.torch_free.stream_policies import BeamPolicy
from antiphon.torch_free.vocab import START


class LanguageState(NamedTuple):
    """The language model after each of ``N`` output prefixes."""

    state: LSTMState
    log_prob: Float[Tensor, " N"]
    log_next: Float[Tensor, "N V"]


class NoisyChannelPolicy(BeamPolicy):
    """Decodes one stream: the direct model, a unidirectional transducer, proposes, and the objective selects.

    Channel model and language model have a state after every node of the tree of outputs.
    """

    def __init__(
        self, model: NoisyChannel, settings: BeamSettings, features: NDArray[np.int64], emit_bias: float = 0.0
    ) -> None:
        network = TransducerStreams(cast(Transducer, model.direct))
        self.model, self.device = model, network.device
        with torch.inference_mode():
            self._start_models(torch.as_tensor(features, device=self.device))
        super().__init__(network, settings, features, emit_bias)
        self.width = max(settings.proposals, settings.beam)

    def _start_models(self, features: Int[Tensor, "1 F"]) -> None:
        """The channel before the first token of input and output, and the language model after the start symbol."""
        self.channel: ChannelLattice | None = None
        self.language: LanguageState | None = None
        self.empty_output: int | None = 0
        """The node without tokens, until it is pruned."""
        if self.model.channel is not None:
            theirs, no_inputs = self.model.features_in_channel[features], features.new_zeros(1, 0)
            self.channel = ChannelLattice(self.model.channel, no_inputs, theirs, grows=True)
            self.rows = self.channel.start()
        if self.model.language_model is not None:
            batch = Batch.of([np.zeros(0, np.int32)]).to(self.device)
            batch = batch._replace(features=self.model.features_in_language_model[features])
            self.language_memory, state = self.model.language_model.start(batch)
            first = torch.zeros_like(batch.source_lengths)
            log_next, state = self.model.language_model.step(self.language_memory, state, first + START, first)
            self.language = LanguageState(state, torch.zeros_like(log_next[:, 0], dtype=torch.float64), log_next)

    @torch.inference_mode()
    def _read(self, streams: list[int], tokens: list[int], copied: list[int] | None) -> Any:
        """One more input token, for the channel to write."""
        if self.channel is not None:
            ids, levels = int(self.model.input_in_channel[tokens[0]]), self.tree.levels()
            self.rows = self.channel.append_column(self.rows, ids, self.tree.parent, levels, self.empty_output)
        return super()._read(streams, tokens, copied)

    def _keep(self, extensions: list[Extension]) -> list[Extension]:
        """The proposals with the best objective."""
        scored = [each._replace(value=value) for each, value in zip(extensions, self._values(extensions), strict=True)]
        best = nlargest(self.settings.beam, scored, key=attrgetter("value"))
        worst = best[0].value - self.settings.threshold
        return [each for each in best if each.value >= worst]

    @torch.inference_mode()
    def _values(self, extensions: list[Extension]) -> list[float]:
        """The objective of extensions, divided by the largest weight."""
        log_scores, parents, tokens = zip(*(extension[:3] for extension in extensions), strict=True)
        lengths = [self.tree.length[parent] + 1 for parent in parents]
        direct, length = torch.tensor([log_scores, lengths], dtype=torch.float64, device=self.device)
        parent, given = (torch.tensor(part, device=self.device) for part in (parents, tokens))
        channel, language = torch.zeros_like(direct), torch.zeros_like(direct)
        if self.channel is not None:
            channel = self._append_rows(self.channel, parent, given).scores.last[:, -1]
        if self.language is not None:
            ids = self.model.language_model_ids(given)
            language = self.language.log_prob[parent] + self.language.log_next[parent, ids]
        objective = self.model.weigh(direct, channel, language, length)
        nats: list[float] = (objective / self.model.weights.scale).tolist()
        return nats

    @torch.inference_mode()
    def _decode(self, nodes: range, parents: list[int], tokens: list[int]) -> None:
        parent, given = (torch.tensor(part, device=self.device) for part in (parents, tokens))
        if self.channel is not None:
            self.rows = join(self.rows, self._append_rows(self.channel, parent, given))
        if self.language is not None:
            self.language = join(self.language, self._step_language_model(self.language, parent, given))
        super()._decode(nodes, parents, tokens)

    def _append_rows(
        self, channel: ChannelLattice, parents: Int[Tensor, " M"], tokens: Int[Tensor, " M"]
    ) -> ChannelRows:
        return channel.append_rows(self.rows, parents, self.model.channel_ids(tokens), torch.zeros_like(parents))

    def _step_language_model(
        self, before: LanguageState, parent: Int[Tensor, " M"], tokens: Int[Tensor, " M"]
    ) -> LanguageState:
        assert self.model.language_model is not None
        ids, state = self.model.language_model_ids(tokens), select(before.state, parent)
        log_next, state = self.model.language_model.step(self.language_memory, state, ids, torch.zeros_like(parent))
        return LanguageState(state, before.log_prob[parent] + before.log_next[parent, ids], log_next)

    def _search_score(self, extension: Extension) -> float:
        return extension.value

    def _max_nodes(self) -> int:
        """0: the tree is pruned after every row, so that the channel can prune the columns that no node needs."""
        return 0

    def _needed(self) -> set[int]:
        """Also the nodes above what is written through which channel probability still passes."""
        needed, node = super()._needed(), self.root[0]
        if self.channel is not None:
            while (node := self.tree.parent[node]) >= 0 and self.channel.passes(self.rows, node, self.root[0]):
                needed.add(node)
        return needed

    @torch.inference_mode()
    def _keep_nodes(self, nodes: list[int]) -> None:
        index = torch.tensor(nodes, device=self.device)
        if self.channel is not None:
            self.empty_output = nodes.index(self.empty_output) if self.empty_output in nodes else None
            self.rows = self.channel.drop_columns(select(self.rows, index))
        self.language = select(self.language, index)
        super()._keep_nodes(nodes)


class NoisyChannelStreams:
    """Several streams, one for each row of ``features``, each decoded by a policy of its own."""

    writes_at_once = False

    def __init__(
        self, model: NoisyChannel, settings: BeamSettings, features: NDArray[np.int64], emit_bias: float = 0.0
    ) -> None:
        self._model, self._settings = model, settings
        self._streams: list[NoisyChannelPolicy] = []
        self.add(features, emit_bias)

    def add(self, features: NDArray[np.int64], emit_bias: float = 0.0) -> None:
        """Adds streams, one for each row of ``features``."""
        self._streams += [NoisyChannelPolicy(self._model, self._settings, ids[None], emit_bias) for ids in features]

    def restart(
        self,
        streams: Sequence[int],
        features: NDArray[np.int64],
        emit_bias: Sequence[float],
        prefixes: Sequence[Sequence[int]],
    ) -> None:
        """Begins new inputs of streams; the output of each must begin with the tokens of its prefix."""
        for stream, ids, bias, prefix in zip(streams, features, emit_bias, prefixes, strict=True):
            self._streams[stream] = NoisyChannelPolicy(self._model, self._settings, ids[None], bias)
            self._streams[stream].prefixes[0] = tuple(prefix)

    def outputs(self, stream: int) -> list[tuple[list[int], float]]:
        """What a stream may write next."""
        return self._streams[stream].outputs(0)

    def advance(
        self,
        streams: Sequence[int],
        tokens: Sequence[int],
        copied: Sequence[int] | None = None,
        ending: Sequence[int] = (),
    ) -> list[list[int]]:
        """One more input token of some streams, and the end of others; the tokens that each of them now writes."""
        words = [None] * len(streams) if copied is None else [[word] for word in copied]
        each = zip(streams, tokens, words, strict=True)
        written = [self._streams[stream].advance([0], [token], word)[0] for stream, token, word in each]
        return written + [self._streams[stream].advance([], [], ending=[0])[0] for stream in ending]
