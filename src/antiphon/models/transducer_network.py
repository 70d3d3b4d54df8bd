"""The network of a transducer: what source and target contribute to every cell of the lattice.

    h_i               state of the source at position i, unidirectional or bidirectional: of an LSTM or a transformer
    s_j               state of the target prefix y_1..y_{j-1}; it may attend to all h_i (``nn/source_attention.py``)
    logits            W_h h_i and W_s s_j + b, which are added in cell (i, j)
    transition        T_h h_i and T_s s_j + c, likewise

With a tied output ``W_s`` is also the table of target embeddings, and ``W_h = W_s P``: one vector for each word.

If there are features, their vector is added to the embedding of every token of both sides.
"""

from typing import Literal, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from antiphon.data.batch import Batch
from antiphon.lattice.moves import split_odds
from antiphon.nn.cell_factors import CausalState, CellFactors, SideState
from antiphon.nn.copying import copies_as_unknown
from antiphon.nn.recurrent import FeatureEmbedding, LSTMSizes, LSTMState, PrefixEncoder, SourceEncoder, valid_positions
from antiphon.nn.source_attention import SourceAttention, SourceContext
from antiphon.nn.token_logits import TokenLogits
from antiphon.nn.transformer_encoder import TransformerEncoder
from antiphon.nn.transformer_layers import LayerSizes
from antiphon.nn.transition import GeometricTransition, NeuralTransition
from antiphon.torch_free.vocab import NOT_COPIED

_CPU_ELEMENTS, _GPU_ELEMENTS = 2**23, 2**26
"""Elements of the hidden transition units that are computed at once when no gradient is needed."""

SourceState = SideState | CausalState
"""The source side of a unidirectional transducer after some tokens, read by an LSTM or by a transformer."""


class TransducerNetwork(nn.Module):
    """Encoder, decoder, token logits and transition of a transducer."""

    def __init__(
        self,
        source_size: int,
        target_size: int,
        feature_size: int = 0,
        *,
        encoder: Literal["unidirectional", "bidirectional"],
        encoder_network: Literal["lstm", "transformer"],
        encoder_layers: int,
        encoder_heads: int,
        encoder_feedforward_size: int,
        transition: Literal["geometric", "neural"],
        final_write: Literal["learned", "forced"],
        context: Literal["none", "attention"],
        copy_words: bool,
        copy_unknown: bool,
        tie_output: bool,
        hidden_size: int,
        embedding_size: int,
        layers: int,
        dropout: float,
        forget_bias: float,
        write_probability: float = 0.5,
    ) -> None:
        """``encoder_layers``, ``encoder_heads`` and ``encoder_feedforward_size`` are of a transformer as encoder.
        With ``tie_output`` one vector per target token is its embedding and its output weights for both sides.
        """
        super().__init__()
        sizes = LSTMSizes(embedding_size, hidden_size, layers, dropout, forget_bias)
        is_bidirectional = encoder == "bidirectional"
        layer_sizes = LayerSizes(hidden_size, encoder_heads, encoder_feedforward_size, dropout)
        self.encoder: SourceEncoder | TransformerEncoder = (
            TransformerEncoder(source_size, layer_sizes, encoder_layers, bidirectional=is_bidirectional)
            if encoder_network == "transformer"
            else SourceEncoder(source_size, sizes, bidirectional=is_bidirectional)
        )
        self.decoder = PrefixEncoder(None if tie_output else target_size, sizes)
        self.source_features = FeatureEmbedding(feature_size, self.encoder.embedding_size) if feature_size else None
        self.target_features = FeatureEmbedding(feature_size, embedding_size) if feature_size else None
        source_width = self.encoder.output_size
        self.attention = SourceAttention(hidden_size, source_width, dropout) if context == "attention" else None
        self.target_size, self.copies_words = target_size, copy_words
        self.copies_unknown = copy_unknown and not copy_words
        """Whether an unknown token in the output stands for the source token at its position."""
        classes = target_size + 1 if copy_words else target_size  # the last is *copy* (``nn/copying.py``)
        self.source_logits = None if tie_output else TokenLogits(source_width, classes, bias=False)
        self.source_projection = nn.Linear(source_width, hidden_size, bias=False) if tie_output else None
        self.target_logits = TokenLogits(hidden_size, classes)
        if tie_output:
            nn.init.normal_(self.target_logits.weight, std=hidden_size**-0.5)
        self.final_write_forced = final_write == "forced"
        self.transition: NeuralTransition | GeometricTransition = (
            NeuralTransition(source_width, hidden_size, units=hidden_size)
            if transition == "neural"
            else GeometricTransition(write_probability)
        )

    def copied_words(self, batch: Batch) -> Int[Tensor, "B I"]:
        """The target id of every source token that can be copied; none can in a batch without the column ``copied``."""
        return batch.copied if batch.copied.shape[1] else torch.full_like(batch.source, NOT_COPIED)

    def source_state(self, features: Int[Tensor, "N F"], room: int = 0) -> SourceState:
        """The source side before its first token; one that grows has room for ``room`` tokens from the start."""
        vectors = self.source_feature_vectors(features)
        if isinstance(self.encoder, TransformerEncoder):
            return CausalState.initial(self.encoder.initial_cache(features.shape[0], room), vectors)
        return SideState.initial(self.encoder.initial_state(features.shape[0]), vectors)

    def target_state(self, features: Int[Tensor, "N F"]) -> SideState:
        """The target side before the start symbol."""
        vectors = self.target_feature_vectors(features)
        return SideState.initial(self.decoder.initial_state(features.shape[0]), vectors)

    def source_feature_vectors(self, features: Int[Tensor, "N F"]) -> Float[Tensor, "N E"] | None:
        """The vector that the features of each pair add to its source tokens; None if the model reads no features."""
        return None if self.source_features is None else self.source_features(features)

    def target_feature_vectors(self, features: Int[Tensor, "N F"]) -> Float[Tensor, "N E"] | None:
        """The vector that the features of each pair add to its target tokens; None if the model reads no features."""
        return None if self.target_features is None else self.target_features(features)

    def encode(self, batch: Batch) -> tuple[CellFactors, SourceContext | None]:
        """The source's contribution to every cell, and what the decoder attends to, if it does."""
        states = self.encoder(batch.source, batch.source_lengths, self.source_feature_vectors(batch.features))
        factors = self.source_factors(states)
        if self.attention is None:
            return factors, None
        return factors, SourceContext(states, valid_positions(batch.source_lengths, states.shape[1]))

    def encode_step(self, tokens: Int[Tensor, " N"], state: SourceState) -> tuple[CellFactors, SourceState]:
        """The contribution of one more source token, and the state to continue from; for unidirectional encoders."""
        after: SourceState
        if isinstance(state, CausalState):
            states, cache = cast(TransformerEncoder, self.encoder).step(tokens, state.cache, state.features)
            after = CausalState(cache, state.features)
        else:
            before = state.hidden, state.cell
            states, (hidden, cell) = cast(SourceEncoder, self.encoder).step(tokens, before, state.features)
            after = SideState(hidden, cell, state.features)
        return self.source_factors(states), after

    def decode_prefix(
        self, prefix: Int[Tensor, "N J"], state: SideState, context: SourceContext | None = None
    ) -> tuple[CellFactors, SideState]:
        """The target's contribution after each token of the prefix, and the state to continue from.

        ``context`` is the source of each prefix, for models that attend to it.
        """
        states, after = self.read_prefix(prefix, state)
        return self.target_factors(self.attend(states, context)), after

    def read_prefix(self, prefix: Int[Tensor, "N J"], state: SideState) -> tuple[Float[Tensor, "N J H"], SideState]:
        """The decoder's state after each token of the prefix, and the state to continue from."""
        known = copies_as_unknown(prefix, self.target_size) if self.copies_words else prefix
        states, (hidden, cell) = self.decode_tokens(known, (state.hidden, state.cell), state.features)
        return states, SideState(hidden, cell, state.features)

    def decode_tokens(
        self, tokens: Int[Tensor, "N J"], state: LSTMState, features: Float[Tensor, "N E"] | None
    ) -> tuple[Float[Tensor, "N J H"], LSTMState]:
        """The decoder's state after each token, and the state to continue from."""
        table = self.target_logits.weight if self.decoder.embedding is None else None
        states, after = self.decoder(tokens, state, features, table)
        return states, after

    def attend(self, states: Float[Tensor, "N J H"], context: SourceContext | None) -> Float[Tensor, "N J H"]:
        """The states of the target after attention to the source, if there is any."""
        return states if self.attention is None else self.attention(states, context)

    def source_factors(self, states: Float[Tensor, "*N S"]) -> CellFactors:
        """The source's contribution to every cell."""
        if self.source_logits is not None:
            logits = self.source_logits(states)
        else:
            logits = self.target_logits(cast(nn.Linear, self.source_projection)(states), add_bias=False)
        return CellFactors(logits, self.transition.source_part(states))

    def target_factors(self, states: Float[Tensor, "N J H"]) -> CellFactors:
        """The target's contribution to every cell."""
        return CellFactors(self.target_logits(states), self.transition.target_part(states))

    def split_odds(
        self, log_odds: Float[Tensor, "*cells"], in_last_row: Bool[Tensor, "..."]
    ) -> tuple[Float[Tensor, "*cells"], Float[Tensor, "*cells"]]:
        """Log probabilities of emit and read; emit is certain in the last row if it is forced there."""
        return split_odds(log_odds, in_last_row if self.final_write_forced else None)

    def emit_log_odds(self, source: Float[Tensor, "B I T"], target: Float[Tensor, "B J T"]) -> Float[Tensor, "B I J"]:
        """Log odds of every cell; without gradients, some columns at a time."""
        B, I, T = source.shape
        elements = _CPU_ELEMENTS if source.device.type == "cpu" else _GPU_ELEMENTS
        at_once = target.shape[1] if torch.is_grad_enabled() else elements // max(1, B * I * T)
        parts = target.split(max(1, at_once), dim=1)
        return torch.cat([self.transition.all_log_odds(source, part) for part in parts], 2)
