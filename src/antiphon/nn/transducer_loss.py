"""The loss of a transducer whose cells add a source part and a target part, for any PyTorch model.

    token(i, j) = softmax(source_logits[i] + target_logits[j]) at y_j
    emit(i, j)  = sigmoid(emit_log_odds[i, j])
    write(i, j) = emit(i, j) token(i, j),  read(i, j) = 1 - emit(i, j)
    loss        = - log of the sum over all alignments of the product of their moves

``antiphon.models.transducer`` computes the same from its layers, with the same functions.
"""

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from antiphon.lattice.paths import INTEGERS, check_lengths, check_range, described, log_marginal, moves_of_cells
from antiphon.nn.factored_softmax import log_token_probabilities


def transducer_loss(
    source_logits: Float[Tensor, "B I V"],
    target_logits: Float[Tensor, "B J V"],
    emit_log_odds: Float[Tensor, "..."],
    targets: Int[Tensor, "B J"],
    source_lengths: Int[Tensor, " B"],
    target_lengths: Int[Tensor, " B"],
    *,
    reduction: Literal["mean", "sum", "none"] = "mean",
    final_write: Literal["learned", "forced"] = "learned",
) -> Float[Tensor, " B"] | Float[Tensor, ""]:
    """``-log p(targets | source)``, all monotone alignments summed, in float32, or float64 where logits are.

    An alignment writes every token in some row, never in an earlier one than the token before, and the last token,
    usually an end symbol, in the last row. With ``final_write="forced"``, ``emit`` is 1 in the last row.

    Args:
        source_logits: what each source position adds to the logits of all tokens.
        target_logits: what each target position adds; position ``j`` may depend on ``targets[:, :j]``.
        emit_log_odds: log odds of writing rather than reading in each cell: (B, I, J) or what broadcasts to it.
        targets: token ids from 0 to V - 1; any integers after the end of each target.
        source_lengths: number of positions of each source; logits after its end must be finite, and do not count.
        target_lengths: number of tokens of each target.
        reduction: ``mean`` over the pairs of the batch, ``sum``, or ``none`` for one loss per pair.
        final_write: whether ``emit`` in the last row is learned, or forced.

    A pair with a length of 0 has no alignment: its loss is ``inf``, its gradients are 0. Arguments that do not fit
    raise ``ValueError``; ids and lengths on a GPU are looked at too, which waits for them, except in a CUDA graph.

    Cost: three products of (I x V) and (V x J) and I + J vector steps over I x J cells, with gradients; memory
    O((I + J) V + I J).
    """
    for name, given, known in (
        ("reduction", reduction, ("mean", "sum", "none")),
        ("final_write", final_write, ("learned", "forced")),
    ):
        if given not in known:
            raise ValueError(f"{name} is {given!r}, expected one of {', '.join(map(repr, known))}")
    _check_shapes(source_logits, target_logits, emit_log_odds, targets)
    tokens = _checked_tokens(source_logits, targets, source_lengths, target_lengths)
    log_token = log_token_probabilities(source_logits, target_logits, tokens)
    log_odds = emit_log_odds.to(log_token.dtype).expand_as(log_token)
    moves = moves_of_cells(log_token, log_odds, source_lengths, final_write_forced=final_write == "forced")
    loss = -log_marginal(*moves, source_lengths, target_lengths)
    if reduction == "none":
        return loss
    return loss.mean() if reduction == "mean" else loss.sum()


def _check_shapes(source_logits: Tensor, target_logits: Tensor, emit_log_odds: Tensor, targets: Tensor) -> None:
    """Raises ``ValueError`` for the first argument whose type, shape or device does not go with those before it."""
    device = source_logits.device
    if source_logits.ndim != 3 or not source_logits.is_floating_point():
        raise ValueError(f"source_logits is {described(source_logits)}, expected floating-point logits (B, I, V)")
    B, I, V = source_logits.shape
    J = target_logits.shape[1] if target_logits.ndim == 3 else -1
    fits = target_logits.shape == (B, J, V) and target_logits.device == device
    if not (fits and target_logits.is_floating_point()):
        expected = f"floating-point logits of shape ({B}, J, {V}) on {device}"
        raise ValueError(f"target_logits is {described(target_logits)}, expected {expected}")
    fits = _broadcasts(emit_log_odds, (B, I, J)) and emit_log_odds.device == device
    if not (fits and emit_log_odds.is_floating_point()):
        expected = f"floating-point log odds of shape {(B, I, J)}, or what broadcasts to it, on {device}"
        raise ValueError(f"emit_log_odds is {described(emit_log_odds)}, expected {expected}")
    if targets.shape != (B, J) or targets.dtype not in INTEGERS or targets.device != device:
        raise ValueError(f"targets is {described(targets)}, expected integers of shape {(B, J)} on {device}")


def _broadcasts(tensor: Tensor, shape: tuple[int, ...]) -> bool:
    return tensor.ndim <= len(shape) and all(
        own in (1, wanted) for own, wanted in zip(reversed(tensor.shape), reversed(shape), strict=False)
    )


def _checked_tokens(
    source_logits: Float[Tensor, "B I V"],
    targets: Int[Tensor, "B J"],
    source_lengths: Int[Tensor, " B"],
    target_lengths: Int[Tensor, " B"],
) -> Int[Tensor, "B J"]:
    """The targets with padding as 0; ids and lengths that do not fit raise ``ValueError``."""
    B, I, V = source_logits.shape
    check_lengths("source_lengths", source_lengths, B, source_logits.device)
    check_lengths("target_lengths", target_lengths, B, source_logits.device)
    is_padding = torch.arange(targets.shape[1], device=targets.device) >= target_lengths[:, None]
    tokens = targets.long().masked_fill(is_padding, 0)
    if not (tokens.is_cuda and torch.cuda.is_current_stream_capturing()):
        check_range("source_lengths", source_lengths, I)
        check_range("target_lengths", target_lengths, targets.shape[1])
        check_range("targets", tokens, V - 1)
    return tokens
