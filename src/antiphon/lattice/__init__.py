"""Exact sums and maxima over monotone alignment paths: pure functions on log-score tensors.

From input position ``i`` (a row) and output position ``j`` (a column) a path may

* *write*: produce output token ``j`` and move to column ``j + 1`` in the same row, or
* *shift*: read one more input token and move to row ``i + 1`` in the same column.

It starts at the first cell and ends by writing the last token in the last row. Every model is reduced
to the log scores of these two moves, ``log_write`` and ``log_shift``, both of shape ``(B, I, J)``, and one
recursion computes the forward scores of all of them::

    forward(0, 0) = 0
    forward(i, j) = log(exp(forward(i, j-1) + log_write(i, j-1)) + exp(forward(i-1, j) + log_shift(i-1, j)))
    log p(y | x)  = forward(I-1, J-1) + log_write(I-1, J-1)

``forward(i, j)`` is that of reaching the cell; the thesis's ``alpha(i, j)`` is ``forward(i, j) + log_write(i, j)``.

Axes: ``B`` batch, ``I`` input rows, ``J`` output columns, ``D = I + J`` anti-diagonals. Impossible is ``-inf``.
"""

from antiphon.lattice.best_path import BestPath, best_path
from antiphon.lattice.marginal import Posteriors, log_marginal, posteriors

__all__ = ["BestPath", "Posteriors", "best_path", "log_marginal", "posteriors"]
