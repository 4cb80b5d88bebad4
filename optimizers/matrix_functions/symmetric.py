"""Products that are known to be symmetric, of which only a part is computed."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

# Number of panels, which are blocks of columns.
# Each panel is computed from the diagonal down. Together, the panels have 5/8 of the entries.
PANELS = 4
# Minimum number of rows for panels.
# For fewer rows, joining the panels takes longer than computing the whole product.
WORTH_HALVING = 512


def symmetric_product(ops: Any, a: Any, b: Any) -> Any:
    """Return A B for a product known to be symmetric, such as X X^T, or polynomials of one matrix.

    Args:
        a: (..., n, k).
        b: (..., k, n).

    Returns:
        (..., n, n). From n = 512 on, entries above the diagonal blocks are copied from their mirror images
        below the diagonal.
    """
    n = a.shape[-2]
    if n < WORTH_HALVING:
        return a @ b
    bounds = list(pairwise(n * panel // PANELS for panel in range(PANELS + 1)))
    panels = [a[..., low:, :] @ b[..., low:high] for low, high in bounds]
    rows = []
    for number, (low, high) in enumerate(bounds):
        earlier_panels = [
            panels[earlier][..., low - start : high - start, :]
            for earlier, (start, _) in enumerate(bounds[:number])
        ]
        rows.append(ops.concatenate([*earlier_panels, ops.matrix_transpose(panels[number])], -1))
    return ops.concatenate(rows, -2)


def gram(ops: Any, x: Any) -> Any:
    """Return X X^T, (..., m, m), for matrices X (..., m, n)."""
    return symmetric_product(ops, x, ops.matrix_transpose(x))
