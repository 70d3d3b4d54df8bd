"""Token probabilities for every lattice cell, without a tensor over cells and vocabulary.

The logits of cell ``(i, j)`` are a sum of a source part and a target part, so the normaliser of all cells is one
matrix product::

    log token(i, j) = A[i, y_j] + C[j, y_j] - log Z(i, j)
    Z(i, j)         = sum_v exp(A[i, v]) exp(C[j, v])

In a search, with ``n`` a prefix and a weight for each position at which its next token may be written, so are the
probabilities of all tokens::

    P(n, v) = sum_i weight(n, i) token(v | i, n)
            = exp(C[n, v]) sum_i (weight(n, i) / Z(i, n)) exp(A[i, v])

Each row's maximum is subtracted first. Where two rows peak on different tokens the product can still underflow; only
those cells are recomputed as an ordinary log-sum-exp, in blocks, so the result is exact for any logits. Not in the
thesis, which computes I * J separate softmaxes and calls them its bottleneck.

Kernels: ``factored_softmax_triton.py`` for all cells, ``next_tokens_triton.py`` for a search.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from antiphon.device import is_traced, kernels_can_run
from antiphon.nn.copying import CellCopies

_BLOCK_ELEMENTS = 2**22
"""Elements of one block of recomputed cells."""
_SMALL_GATHER = 2**18
"""Up to this many elements, copying a source for each of its prefixes is cheaper than a loop over sources."""
_BLOCK = 64
"""Tokens per block: a block is searched only if its maximum is among the best."""


def log_token_probabilities(
    source_logits: Float[Tensor, "B I V"],
    target_logits: Float[Tensor, "B J V"],
    targets: Int[Tensor, "B J"],
    copies: CellCopies | None = None,
) -> Float[Tensor, "B I J"]:
    """``log softmax(source_logits[i] + target_logits[j])`` read off at ``targets[j]``, for every ``i`` and ``j``.

    With ``copies``, the probability of a copy is added where the token may be one (``nn/copying.py``).

    Cost: three products of (I x V) and (V x J), memory O((I + J) V + I J).
    """
    with torch.autocast(source_logits.device.type, enabled=False):
        if has_kernel(source_logits):
            from antiphon.nn import factored_softmax_triton as kernels

            return kernels.log_token_probabilities(source_logits, target_logits, targets, copies)
        logits = (_at_least_single(side) for side in (source_logits, target_logits))
        result: Tensor = _LogTokenProbabilities.apply(*logits, targets, copies)  # type: ignore[no-untyped-call]
        return result


def smoothing_term(
    source_logits: Float[Tensor, "B I V"], target_logits: Float[Tensor, "B J V"], targets: Int[Tensor, "B J"]
) -> Float[Tensor, "B I J"]:
    """``mean over v of log token(i, j, v) - log token(i, j, y_j)``, which label smoothing adds to a cell, weighted.

    The normalisers cancel, so it is the sum of a source part and a target part:
    ``mean of A[i] - A[i, y_j] + mean of C[j] - C[j, y_j]``.
    """
    own_source = source_logits.gather(2, _for_every_row(targets, source_logits.shape[1]))
    own_target = target_logits.gather(2, targets[:, :, None])[:, :, 0]
    source = _at_least_single(source_logits.mean(2, keepdim=True) - own_source)
    return source + _at_least_single(target_logits.mean(2) - own_target)[:, None]


class Exponentials(NamedTuple):
    """``exp(logits - peak)`` of every row."""

    exp: Float[Tensor, "... V"]
    peak: Float[Tensor, "... 1"]

    @classmethod
    def of(cls, logits: Float[Tensor, "... V"]) -> "Exponentials":
        """The exponentials of some rows of logits."""
        peak = logits.amax(-1, keepdim=True)
        return cls((logits - peak).exp_(), peak)


def has_kernel(logits: Tensor) -> bool:
    """Whether Triton kernels handle these logits: on a GPU, in single precision or less."""
    return kernels_can_run(logits) and logits.dtype != torch.float64


def _at_least_single(logits: Tensor) -> Tensor:
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


class _LogTokenProbabilities(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, source_logits: Tensor, target_logits: Tensor, targets: Tensor, copies: CellCopies | None
    ) -> Tensor:
        source, target = Exponentials.of(source_logits), Exponentials.of(target_logits)
        z = torch.bmm(source.exp, target.exp.mT)
        underflow = underflows(z, source_logits.shape[2])
        log_z = z.log() + source.peak + target.peak.mT
        for cells in cell_blocks(underflow, source_logits.shape[2]):
            b, i, j = cells
            log_z[cells] = torch.logsumexp(source_logits[b, i] + target_logits[b, j], 1)
        ctx.save_for_backward(source_logits, target_logits, targets, source.exp, target.exp, z, log_z, underflow)
        result, ctx.copied = read_tokens(source_logits, target_logits, targets, log_z, copies)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        """d/dA[i, v] = sum_j gradient(i, j) (1[v = y_j] - softmax(i, j, v)), and the same for C over i.

        Where a token may be a copy, ``1[v = y_j]`` is divided between the token and the class *copy*.
        """
        source_logits, target_logits, targets, exp_source, exp_target, z, log_z, underflow = ctx.saved_tensors
        per_z = (gradient / z).masked_fill(underflow, 0.0)
        for_source = exp_source.mul(torch.bmm(per_z, exp_target)).neg_()
        for_target = exp_target.mul(torch.bmm(per_z.mT, exp_source)).neg_()
        for cells in cell_blocks(underflow, source_logits.shape[2]):
            b, i, j = cells
            softmax = (source_logits[b, i] + target_logits[b, j] - log_z[cells][:, None]).exp_()
            share = softmax.mul_(gradient[cells][:, None]).neg_()
            for_source.index_put_((b, i), share, accumulate=True)
            for_target.index_put_((b, j), share, accumulate=True)
        _add_at_tokens(for_source, for_target, targets, gradient, ctx.copied)
        return for_source, for_target, None, None


class CopyShare(NamedTuple):
    """The share of copying in the probability of every cell's token, and the id of the class *copy*."""

    share: Float[Tensor, "B I J"]
    class_id: int


def read_tokens(
    source: Float[Tensor, "B I V"],
    target: Float[Tensor, "B J V"],
    targets: Int[Tensor, "B J"],
    log_z: Float[Tensor, "B I J"],
    copies: CellCopies | None,
) -> tuple[Float[Tensor, "B I J"], CopyShare | None]:
    """The log probability of every cell's token, and the share of copying in it, if there is copying."""
    from_source = source.gather(2, _for_every_row(targets, source.shape[1])).to(log_z.dtype)
    from_target = target.gather(2, targets[:, :, None])[:, None, :, 0].to(log_z.dtype)
    log_token = from_source + from_target - log_z
    if copies is None:
        return log_token, None
    copy = copies.class_id
    from_source, from_target = source[:, :, copy, None].to(log_z.dtype), target[:, None, :, copy].to(log_z.dtype)
    log_token, share = copies.mix(log_token, from_source + from_target - log_z)
    return log_token, CopyShare(share, copy)


def divide_gradient(
    gradient: Float[Tensor, "B I J"], copied: CopyShare | None
) -> tuple[Float[Tensor, "B I J"], Float[Tensor, "B I J"] | None]:
    """The gradient of every cell, divided between its token and the class *copy*, if there is copying."""
    if copied is None:
        return gradient, None
    at_copy = gradient * copied.share
    return gradient - at_copy, at_copy


def _add_at_tokens(
    for_source: Float[Tensor, "B I V"],
    for_target: Float[Tensor, "B J V"],
    targets: Int[Tensor, "B J"],
    gradient: Float[Tensor, "B I J"],
    copied: CopyShare | None,
) -> None:
    """Adds the gradient of every cell to the logits of its token, or in part to those of copying."""
    at_token, at_copy = divide_gradient(gradient, copied)
    if copied is not None and at_copy is not None:
        for_source[:, :, copied.class_id] += at_copy.sum(2)
        for_target[:, :, copied.class_id] += at_copy.sum(1)
    for_source.scatter_add_(2, _for_every_row(targets, for_source.shape[1]), at_token)
    for_target.scatter_add_(2, targets[:, :, None], at_token.sum(1)[:, :, None])


def underflows(z: Float[Tensor, "..."], V: int) -> Bool[Tensor, "..."]:
    """True where up to V terms lost to underflow, each below ``tiny``, may matter."""
    return z < min_sum(V, z.dtype)


def min_sum(V: int, dtype: torch.dtype = torch.float32) -> float:
    """``V tiny / eps``: the lowest sum of ``V`` products that underflow cannot have changed."""
    kind = torch.finfo(dtype)
    return V * kind.tiny / kind.eps


def cell_blocks(cells: Bool[Tensor, "..."], V: int) -> Iterator[tuple[Tensor, ...]]:
    """Indices of the true cells, in blocks whose logits fit a fixed amount of memory; in a graph, in one block."""
    if is_traced():
        yield cells.nonzero().unbind(1)
        return
    for block in cells.nonzero().split(max(1, _BLOCK_ELEMENTS // V)):
        if len(block):
            yield block.unbind(1)


def _for_every_row(targets: Int[Tensor, "B J"], I: int) -> Int[Tensor, "B I J"]:
    return targets[:, None, :].expand(-1, I, -1)


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
