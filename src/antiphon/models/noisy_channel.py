"""A noisy channel: direct model, channel model and language model with their weights.

    O(x_1^i, y_1^j) = l1 log p(y_1^j | x_1^i) + l2 log p(x_1^i | y_1^j) + l3 log p(y_1^j) + l4 j

Thesis: chapter 5. ``decode/noisy_channel.py`` scores unfinished outputs.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from antiphon.data.batch import Batch
from antiphon.models.recurrent import LanguageModel
from antiphon.models.transducer import Transducer
from antiphon.nn.copying import copies_as_unknown
from antiphon.torch_free.hypothesis import Weights
from antiphon.torch_free.vocab import SPECIALS


class NoisyChannel(nn.Module):
    """The three models and how their tokens correspond; any but the direct one may be missing.

    ``output_in_channel`` and ``output_in_language_model`` map the direct model's target ids to those of the others,
    ``input_in_channel`` its source ids, ``features_in_channel`` and ``features_in_language_model`` its features.
    """

    output_in_channel: Tensor
    input_in_channel: Tensor
    output_in_language_model: Tensor
    features_in_channel: Tensor
    features_in_language_model: Tensor

    def __init__(
        self,
        direct: nn.Module,
        channel: Transducer | None,
        language_model: LanguageModel | None,
        *,
        output_in_channel: Tensor,
        input_in_channel: Tensor,
        output_in_language_model: Tensor,
        features_in_channel: Tensor | None = None,
        features_in_language_model: Tensor | None = None,
        weights: Weights,
    ) -> None:
        super().__init__()
        self.direct, self.channel, self.language_model = direct, channel, language_model
        self.register_buffer("output_in_channel", output_in_channel)
        self.register_buffer("input_in_channel", input_in_channel)
        self.register_buffer("output_in_language_model", output_in_language_model)
        for name, ids in (("channel", features_in_channel), ("language_model", features_in_language_model)):
            self.register_buffer(f"features_in_{name}", torch.arange(len(SPECIALS)) if ids is None else ids)
        self.weights = weights

    def forward(self, batch: Batch) -> Float[Tensor, " B"]:
        """The objective of each pair: every output is complete, and all alignments are summed."""
        direct: Tensor = self.direct(batch)
        channel, language = None, torch.zeros_like(direct)
        if self.channel is not None:
            channel = self.channel(self._reversed(batch))
        if self.language_model is not None:
            target, features = self.language_model_ids(batch.target), self.features_in_language_model
            language = self.language_model(batch._replace(target=target, features=features[batch.features]))
        return self.weigh(direct, channel, language, batch.target_lengths.to(direct.dtype))

    def _reversed(self, batch: Batch) -> Batch:
        """The batch from outputs to inputs, in the ids of the channel model."""
        return Batch(
            source=self.channel_ids(batch.target),
            source_lengths=batch.target_lengths,
            target=self.input_in_channel[batch.source],
            target_lengths=batch.source_lengths,
            features=self.features_in_channel[batch.features],
            copied=batch.target[:, :0],
        )

    def channel_ids(self, outputs: Int[Tensor, "..."]) -> Int[Tensor, "..."]:
        """The channel's ids of output tokens; it does not know copied words."""
        return self.output_in_channel[copies_as_unknown(outputs, len(self.output_in_channel))]

    def language_model_ids(self, outputs: Int[Tensor, "..."]) -> Int[Tensor, "..."]:
        """The language model's ids of output tokens; it does not know copied words."""
        return self.output_in_language_model[copies_as_unknown(outputs, len(self.output_in_language_model))]

    def objective(self, features: Float[Tensor, "*cells 4"]) -> Float[Tensor, "*cells"]:
        """The weighted sum of direct, channel, language model and length; features of weight 0 do not matter."""
        return self.weigh(*features.unbind(-1))

    def weigh(
        self,
        direct: Float[Tensor, "*cells"],
        channel: Float[Tensor, "*cells"] | None,
        language: Float[Tensor, "*cells"],
        length: Float[Tensor, "..."],
    ) -> Float[Tensor, "*cells"]:
        """The objective of four feature scores; the channel's may be missing."""
        total = torch.zeros_like(direct)
        for weight, feature in zip(self.weights, (direct, channel, language, length), strict=True):
            if weight and feature is not None:
                total = torch.add(total, feature, alpha=weight)
        return total
