"""Online decoding with a noisy channel in PyTorch: direct model, channel model and language model."""

from typing import NamedTuple, cast

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from antiphon.data.batch import Batch
from antiphon.decode.channel_lattice import ChannelLattice
from antiphon.decode.streaming.beam_decoder import BeamDecoder
from antiphon.decode.streaming.prefix_tree import PrefixTree
from antiphon.models.noisy_channel import NoisyChannel
from antiphon.models.transducer import Transducer
from antiphon.nn.recurrent import LSTMState, join_states, select_states
from antiphon.torch_free.beam_row import Candidate
from antiphon.torch_free.hypothesis import BeamSettings
from antiphon.torch_free.noisy_channel_policy import NoisyChannelPolicy, ScoredTree, SeparateStreams
from antiphon.torch_free.vocab import END, START


class LanguageState(NamedTuple):
    """The language model after each of ``N`` output prefixes."""

    state: LSTMState
    log_prob: Float[Tensor, " N"]
    log_next: Float[Tensor, "N V"]

    def select(self, index: Int[Tensor, " M"]) -> "LanguageState":
        """Some of the prefixes."""
        return LanguageState(select_states(self.state, index), self.log_prob[index], self.log_next[index])

    def join(self, others: "LanguageState") -> "LanguageState":
        """These prefixes and others."""
        rest = (torch.cat(parts) for parts in zip(self[1:], others[1:], strict=True))
        return LanguageState(join_states(self.state, others.state), *rest)


class ScoredPrefixTree(PrefixTree, ScoredTree):
    """The active outputs of one stream, with their channel and language model scores."""

    def __init__(self, model: NoisyChannel, features: Int[Tensor, "1 F"]) -> None:
        super().__init__(cast(Transducer, model.direct), features)
        self.combined = model  # ``self.model`` is the direct one
        self.device = self.target.logits.device
        features = features.to(self.device)
        self.language_memory: Tensor | None = None
        self.language = self._start_language_model(model.features_in_language_model[features])
        self.channel: ChannelLattice | None = None
        self.empty_output: int | None = 0
        """The node without tokens, until it is dropped."""
        if model.channel is not None:
            no_inputs = torch.zeros(1, 0, dtype=torch.long, device=self.device)
            self.channel = ChannelLattice(model.channel, no_inputs, model.features_in_channel[features], grows=True)
            self.rows = self.channel.start()

    def _start_language_model(self, features: Int[Tensor, "1 F"]) -> LanguageState | None:
        """The language model after the start symbol."""
        if self.combined.language_model is None:
            return None
        batch = Batch.of([np.zeros(0, np.int32)]).to(self.device)._replace(features=features)
        self.language_memory, state = self.combined.language_model.start(batch)
        first = torch.zeros_like(batch.source_lengths)
        log_next, state = self.combined.language_model.step(self.language_memory, state, first + START, first)
        return LanguageState(state, torch.zeros_like(log_next[:, 0], dtype=torch.float64), log_next)

    def _append_rows(self, parents: list[int], tokens: Int[Tensor, " M"]) -> None:
        assert self.channel is not None
        index = torch.tensor(parents, device=self.device)
        self.rows = self.rows.join(self.channel.append_rows(self.rows, index, tokens, torch.zeros_like(index)))

    def read(self, token: int) -> None:
        """One more input token, for the channel to write."""
        if self.channel is None:
            return
        ids = int(self.combined.input_in_channel[token])
        self.rows = self.channel.append_column(self.rows, ids, self.parent, self.levels(), self.empty_output)

    def keep(self, nodes: list[int]) -> dict[int, int]:
        """Drops all other nodes, here and in channel and language model."""
        index = torch.tensor(nodes, device=self.device)
        if self.channel is not None:
            self.empty_output = nodes.index(self.empty_output) if self.empty_output in nodes else None
            self.rows = self.channel.drop_columns(self.rows.select(index))
        self.language = self.language and self.language.select(index)
        return super().keep(nodes)

    def passes(self, node: int, below: int) -> bool:
        """Whether channel probability still passes through a node above another one."""
        return self.channel is not None and self.channel.passes(self.rows, node, below)

    def _add(self, parents: list[int], tokens: list[int]) -> None:
        index, given = (torch.tensor(part, device=self.device) for part in (parents, tokens))
        if self.channel is not None:
            self._append_rows(parents, self.combined.channel_ids(given))
        if self.language is not None:
            self.language = self.language.join(self._step_language_model(self.language, index, given))
        super()._add(parents, tokens)

    def _step_language_model(
        self, before: LanguageState, parent: Int[Tensor, " M"], tokens: Int[Tensor, " M"]
    ) -> LanguageState:
        """The language model after one more token of each prefix."""
        assert self.combined.language_model is not None
        ids = self.combined.language_model_ids(tokens)
        state = select_states(before.state, parent)
        log_next, state = self.combined.language_model.step(self.language_memory, state, ids, torch.zeros_like(parent))
        return LanguageState(state, before.log_prob[parent] + before.log_next[parent, ids], log_next)

    def values(self, candidates: list[Candidate]) -> list[float]:
        """The objective of candidates, divided by the largest weight."""
        log_scores, parents, tokens = zip(*(candidate[:3] for candidate in candidates), strict=True)
        direct = torch.tensor(log_scores, dtype=torch.float64, device=self.device)
        parent, given = (torch.tensor(part, device=self.device) for part in (parents, tokens))
        lengths = direct.new_tensor([self.length[node] + 1 for node in parents])
        channel, language = torch.zeros_like(direct), torch.zeros_like(direct)
        if self.channel is not None:
            ids = self.combined.channel_ids(given)
            rows = self.channel.append_rows(self.rows, parent, ids, torch.zeros_like(parent))
            reads_last = (given == END) | (self.combined.reading == "last")
            channel = torch.where(reads_last, rows.scores.last[:, -1], rows.scores.anywhere[:, -1])
        if self.language is not None:
            ids = self.combined.language_model_ids(given)
            language = self.language.log_prob[parent] + self.language.log_next[parent, ids]
        objective = self.combined.objective(torch.stack([direct, channel, language, lengths], 1))
        nats: list[float] = (objective / self.combined.weights.scale).tolist()
        return nats


class NoisyChannelBeamDecoder(NoisyChannelPolicy, BeamDecoder):
    """Decodes one stream: the direct model proposes, the objective selects."""

    tree: ScoredPrefixTree

    def __init__(
        self, model: NoisyChannel, features: Int[Tensor, "1 F"], settings: BeamSettings, emit_bias: float = 0.0
    ) -> None:
        super().__init__(cast(Transducer, model.direct), features, settings, emit_bias)
        self._begin(ScoredPrefixTree(model, features), max(settings.proposals, settings.beam))


class NoisyChannelDecoder(SeparateStreams):
    """Decodes several streams, each separately."""

    def __init__(
        self, model: NoisyChannel, features: Int[Tensor, "N F"], settings: BeamSettings, emit_bias: float = 0.0
    ) -> None:
        def start(ids: NDArray[np.int64], bias: float) -> NoisyChannelBeamDecoder:
            return NoisyChannelBeamDecoder(model, torch.from_numpy(ids), settings, bias)

        super().__init__(start, features.cpu().numpy(), emit_bias)
