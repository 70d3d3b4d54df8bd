"""What a search asks of a model: log probabilities of the next token after each prefix."""

from typing import Any, Protocol

from jaxtyping import Float
from torch import Tensor

from antiphon.data.batch import Batch


class LeftToRight(Protocol):
    """A model of the next token. ``memory`` is what it keeps of the sources, ``state`` what it keeps of prefixes."""

    def start(self, batch: Batch) -> tuple[Any, Any]:
        """Memory, and the state before the start symbol of every sentence."""
        ...

    def step(self, memory: Any, state: Any, tokens: Tensor, sentence: Tensor) -> tuple[Tensor, Any]:
        """Log probabilities of the token after these, which belong to prefixes of a sentence, and the next state."""
        ...

    def select(self, state: Any, index: Tensor) -> Any:
        """The states of some prefixes."""
        ...


class AlignedModel(LeftToRight, Protocol):
    """A model that knows in which input row each token is written."""

    def is_long(self, memory: Any) -> bool:
        """Whether the sources are so long that hypotheses must be kept from staying in one row."""
        ...

    def unfinished_row(self, memory: Any, state: Any) -> int | None:
        """The row in which hypotheses will write next, if some source does not end there yet."""
        ...

    def log_rows(
        self, memory: Any, state: Any, parent: Tensor, tokens: Tensor, sentence: Tensor
    ) -> tuple[int, Float[Tensor, "N R"]]:
        """The first row, and log probabilities of the rows of one more token after each parent."""
        ...


def copies_unknown(model: object) -> bool:
    """Whether a model copies: it writes the unknown token, which stands for the input token of the row.

    Source and target have one symbol for all that they do not know; a model learns to copy it from pairs in which a
    token of both sides was made unknown (``data/changing_pairs.py``).
    """
    return bool(getattr(model, "copies", False))
