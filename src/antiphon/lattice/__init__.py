"""Exact sums, maxima and draws over monotone alignments: pure functions on the log scores of two moves.

From input position ``i`` (a row) and output position ``j`` (a column) a path may

* *write*: produce output token ``j`` and move to column ``j + 1`` in the same row, or
* *read*: go on to the next input token and move to row ``i + 1`` in the same column.

RNN-T calls them *emit* and *blank*. Here ``emit`` is the choice of writing rather than reading in a cell, before a
token is chosen: ``write = emit * token`` and ``read = 1 - emit``.

It starts at the first cell and ends by writing the last token in the last row. Every model is reduced
to the log scores of these two moves, ``log_write`` and ``log_read``, both of shape ``(B, I, J)``, and one
recursion computes the forward scores of all of them::

    forward(0, 0) = 0
    forward(i, j) = log(exp(forward(i, j-1) + log_write(i, j-1)) + exp(forward(i-1, j) + log_read(i-1, j)))
    log p(y | x)  = forward(I-1, J-1) + log_write(I-1, J-1)

``forward(i, j)`` is that of reaching the cell; the thesis's ``alpha(i, j)`` is ``forward(i, j) + log_write(i, j)``.

Axes: ``B`` batch, ``I`` input rows, ``J`` output columns, ``D = I + J`` anti-diagonals, ``S`` samples. Impossible is
``-inf``. All functions take ``log_write``, ``log_read`` and the lengths of both sides, integers of shape ``(B,)``:

* Scores need not be probabilities, and may be ``-inf``; those outside a pair's lengths are never looked at.
* float16 and bfloat16 are computed, and returned, in float32; float32 and float64 in themselves.
* A pair whose input or output has length 0 has no path, like one whose paths are all impossible: its log score is
  ``-inf``, its gradients and posteriors are 0, its alignment is -1 everywhere. ``B``, ``I`` and ``J`` may be 0.
* Wrong shapes, types and devices raise ``ValueError``, as do lengths out of range, where looking at them costs no wait
  for a GPU.

Modules: ``paths`` (the two moves, sums, best path, draws), ``marginal_triton`` for GPUs.
"""

from antiphon.lattice.paths import BestPath, Moves, Posteriors, best_path, log_marginal, posteriors, sample_alignments

__all__ = ["BestPath", "Moves", "Posteriors", "best_path", "log_marginal", "posteriors", "sample_alignments"]
