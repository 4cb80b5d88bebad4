"""Products that are symmetric, of which a half is computed."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

PANELS = 4  # columns are computed in so many panels, each from the diagonal down: 5/8 of the work
WORTH_HALVING = 512  # below, joining the panels costs more than the products that are saved


def symmetric_product(ops: Any, a: Any, b: Any) -> Any:
    """A B where that is known to be symmetric, such as X X^T or two polynomials of one symmetric matrix.

    Args:
        a: (..., n, k).
        b: (..., k, n).

    Returns:
        (..., n, n). From n = 512 on, what lies above the diagonal's blocks is copied from below.
    """
    n = a.shape[-2]
    if n < WORTH_HALVING:
        return a @ b
    bounds = list(pairwise(n * panel // PANELS for panel in range(PANELS + 1)))
    panels = [a[..., low:, :] @ b[..., low:high] for low, high in bounds]
    rows = []
    for number, (low, high) in enumerate(bounds):
        before = [
            panels[other][..., low - start : high - start, :]
            for other, (start, _) in enumerate(bounds[:number])
        ]
        rows.append(ops.concatenate([*before, ops.matrix_transpose(panels[number])], -1))
    return ops.concatenate(rows, -2)


def gram(ops: Any, x: Any) -> Any:
    """X X^T of matrices (..., m, n), (..., m, m)."""
    return symmetric_product(ops, x, ops.matrix_transpose(x))
