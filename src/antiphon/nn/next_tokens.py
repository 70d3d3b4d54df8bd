"""Probabilities of the next token after many prefixes, summed over the input positions at which it may be written.

    P(n, v) = sum_i weight(n, i) token(v | i, n)
            = exp(C[n, v]) sum_i (weight(n, i) / Z(i, n)) exp(A[i, v])        Z = exp(C) exp(A)^T

Because the softmax is factored, ``Z`` and ``P`` of all prefixes and tokens are one matrix product each. Cells whose
``Z`` underflows are added token by token, so the result is exact for any logits (``factored_softmax.py``).
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from antiphon.device import is_traced
from antiphon.nn.factored_softmax import Exponentials, cell_blocks, has_kernel, underflows

_SMALL_GATHER = 2**18
"""Up to this many elements, copying a source for each of its prefixes is cheaper than a loop over sources."""
_BLOCK = 64
"""Tokens per block: a block is searched only if its maximum is among the best."""


class TokenTable(NamedTuple):
    """One side's part of the token logits of all cells, prepared once for many prefixes of the other side."""

    logits: Float[Tensor, "B I V"]
    exp: Float[Tensor, "B I V"]
    peak: Float[Tensor, "B I"]

    @classmethod
    def of(cls, logits: Float[Tensor, "B I V"]) -> "TokenTable":
        """The table of some logits; kernels need row lengths that are a multiple of 8."""
        if has_kernel(logits):
            from antiphon.nn.factored_softmax_triton import aligned

            logits = aligned(logits)
        exp, peak = Exponentials.of(logits)
        return cls(logits, exp, peak[:, :, 0])

    def slice_rows(self, rows: slice) -> "TokenTable":
        """Some rows of every sentence."""
        return TokenTable(*(tensor[:, rows] for tensor in self))

    def logits_of(self, tokens: Int[Tensor, " N"], sentence: Int[Tensor, " N"]) -> Float[Tensor, "N I"]:
        """The logits of one token in every row of a sentence, for each of ``N`` prefixes."""
        if not is_traced():
            return self.logits[sentence, :, tokens]
        _, I, V = self.logits.shape  # ONNX has no such index but for a transposed copy of the table
        cells = (sentence * I * V + tokens)[:, None] + torch.arange(I) * V
        return self.logits.flatten()[cells]

    def append(self, logits: Float[Tensor, "B 1 V"]) -> "TokenTable":
        """The same with one more row of every sentence."""
        return TokenTable(*(torch.cat(pair, 1) for pair in zip(self, TokenTable.of(logits), strict=True)))


def kernels_fit(logits: Float[Tensor, "N V"], sentence: Int[Tensor, " N"], B: int) -> bool:
    """Whether kernels handle these prefixes: sorted by sentence, the same number for each of ``B`` sentences.

    Not checked while a step is captured, since the same step ran before.
    """
    if not has_kernel(logits) or not len(sentence) or len(sentence) % B:
        return False
    if sentence.is_cuda and torch.cuda.is_current_stream_capturing():
        return True
    by_sentence = sentence.view(B, -1)
    return bool((by_sentence == torch.arange(B, device=sentence.device)[:, None]).all())


class NextTokens(NamedTuple):
    """``log P`` of every token, and the log normaliser of every cell."""

    log_prob: Float[Tensor, "N V"]
    log_z: Float[Tensor, "N I"]


class _Cells(NamedTuple):
    """The cells of some prefixes: exponentials, ``Z`` without peaks, ``log Z``, and where ``Z`` underflows."""

    exp_source: Float[Tensor, "B I V"]
    exp_target: Float[Tensor, "N V"]
    z: Float[Tensor, "N I"]
    log_z: Float[Tensor, "N I"]
    lost: Bool[Tensor, "N I"]


def next_tokens(
    source: TokenTable,
    target_logits: Float[Tensor, "N V"],
    sentence: Int[Tensor, " N"],
    log_weight: Float[Tensor, "N I"],
) -> NextTokens:
    """``log P(n, v)`` of the next token ``v`` after each prefix ``n``, and ``log Z(i, n)``; no gradient.

    Prefix ``n`` belongs to source ``sentence[n]`` and has a weight in each of its rows.
    """
    if kernels_fit(target_logits, sentence, len(source.logits)):
        from antiphon.nn import next_tokens_triton as kernels

        return NextTokens(*kernels.mix_tokens(source.logits, source.exp, source.peak, target_logits, log_weight))
    peak = log_weight.amax(1, keepdim=True).clamp(min=torch.finfo(log_weight.dtype).min)
    weight = (log_weight - peak).exp().to(target_logits.dtype)
    cells = _factor_cells(source, target_logits, sentence)
    per_z = (weight / cells.z).masked_fill(cells.lost, 0.0)
    probs = multiply_by_sentence(per_z, cells.exp_source, sentence).mul_(cells.exp_target)
    for n, i in cell_blocks(cells.lost, probs.shape[1]):
        logits = _lost_logits(source, target_logits, sentence, n, i)
        cells.log_z[n, i] = logits.logsumexp(1)
        probs.index_add_(0, n, logits.softmax(1).mul_(weight[n, i][:, None]))
    return NextTokens(probs.log_().add_(peak.to(probs.dtype)), cells.log_z)


def log_normalisers_by_sentence(
    source: TokenTable, target_logits: Float[Tensor, "N V"], sentence: Int[Tensor, " N"]
) -> Float[Tensor, "N I"]:
    """``log Z(i, n)`` of every row ``i`` of the sentence of each prefix ``n``."""
    if kernels_fit(target_logits, sentence, len(source.logits)):
        from antiphon.nn import next_tokens_triton as kernels

        return kernels.log_normalisers(source.logits, source.exp, source.peak, target_logits)
    cells = _factor_cells(source, target_logits, sentence)
    for n, i in cell_blocks(cells.lost, target_logits.shape[1]):
        cells.log_z[n, i] = _lost_logits(source, target_logits, sentence, n, i).logsumexp(1)
    return cells.log_z


def _lost_logits(
    source: TokenTable, target_logits: Tensor, sentence: Tensor, n: Int[Tensor, " C"], i: Int[Tensor, " C"]
) -> Float[Tensor, "C V"]:
    """The logits of some cells; only kernels have more columns than tokens."""
    return source.logits[sentence[n], i][:, : target_logits.shape[1]] + target_logits[n]


def _factor_cells(source: TokenTable, target_logits: Float[Tensor, "N V"], sentence: Int[Tensor, " N"]) -> _Cells:
    exp_source = source.exp if is_traced() else source.exp[:, :, : target_logits.shape[1]]
    exp_target, peak = Exponentials.of(target_logits)
    z = multiply_by_sentence(exp_target, exp_source.transpose(1, 2), sentence)
    log_z = z.log() + source.peak.index_select(0, sentence) + peak
    return _Cells(exp_source, exp_target, z, log_z, underflows(z, target_logits.shape[1]))


def multiply_by_sentence(
    left: Float[Tensor, "N X"], right: Float[Tensor, "B X Y"], sentence: Int[Tensor, " N"]
) -> Float[Tensor, "N Y"]:
    """``left[n] @ right[sentence[n]]`` for every ``n``; ``sentence`` is sorted."""
    if is_traced():
        return _multiply_in_slots(left, right, sentence)
    B, X, Y = right.shape
    if B == 1:
        return left @ right[0]
    if len(left) * X * Y <= _SMALL_GATHER:
        return torch.bmm(left[:, None], right.index_select(0, sentence))[:, 0]
    result = left.new_empty(len(left), Y)
    done = 0
    for b, count in enumerate(torch.bincount(sentence, minlength=B).tolist()):
        if count:
            torch.mm(left[done : done + count], right[b], out=result[done : done + count])
            done += count
    return result


def _multiply_in_slots(
    left: Float[Tensor, "N X"], right: Float[Tensor, "B X Y"], sentence: Int[Tensor, " N"]
) -> Float[Tensor, "N Y"]:
    """The same without a loop: one product, in which every sentence has as many slots as any has prefixes."""
    counts = (sentence[:, None] == torch.arange(right.shape[0])).sum(0)
    first = counts.cumsum(0) - counts
    slots = torch.arange(counts.amax())  # type: ignore[call-overload]  # a size that is traced
    prefix = (first[:, None] + slots).clamp(max=left.shape[0] - 1)  # empty slots repeat some prefix
    products = torch.bmm(left[prefix], right)
    rank = torch.arange(left.shape[0]) - first[sentence]
    return products.flatten(0, 1)[sentence * slots.shape[0] + rank]


def top_tokens(scores: Float[Tensor, "N V"], width: int) -> tuple[Float[Tensor, "N W"], Int[Tensor, "N W"]]:
    """The ``width`` highest scores and their indices, found in the ``width`` blocks with the highest maxima."""
    N, V = scores.shape
    count, rest = divmod(V, _BLOCK)
    if count < 2 * width:
        best, index = scores.topk(width, 1)
        return best, index
    if has_kernel(scores):
        from antiphon.nn import next_tokens_triton as kernels

        return kernels.top_tokens(scores, width)
    blocks = scores[:, : V - rest].unflatten(1, (count, _BLOCK))
    chosen = blocks.amax(2).topk(width, 1).indices
    every_index = torch.arange(V, device=scores.device)
    index = (chosen[:, :, None] * _BLOCK + every_index[:_BLOCK]).flatten(1)
    index = torch.cat([index, every_index[V - rest :].expand(N, rest)], 1)
    best, which = scores.gather(1, index).topk(width, 1)
    return best, index.gather(1, which)
