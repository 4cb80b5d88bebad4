"""Matrix decompositions that give NaN where a library would raise, on any of the three array libraries."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

Array = Any


def symmetric_part(x: Array) -> Array:
    """X / 2 + X^T / 2: one meaning and one gradient where libraries read one triangle or both.

    Halved first: the sum of finite entries may overflow.
    """
    return x / 2 + x.swapaxes(-1, -2) / 2


def guarded_factor(factor: Callable[[Array], Array], isfinite: Any, where: Any) -> Callable[[Array], Array]:
    """`guarded` for a factorization into one array."""
    whole = guarded(lambda x: (factor(x),), isfinite, where)
    return lambda x: whole(x)[0]


def guarded(
    decompose: Callable[[Array], tuple[Array, ...]], isfinite: Any, where: Any
) -> Callable[[Array], tuple[Array, ...]]:
    """A decomposition that gives NaN for matrices with an entry that is not finite.

    LAPACK's drivers may raise or not return on those, and one diverged lane would stop its bundle.
    """

    def decomposition(x: Array) -> tuple[Array, ...]:
        finite = isfinite(x).all(-1).all(-1)[..., None]
        parts = decompose(where(finite[..., None], x, 0.0))
        return tuple(
            where(finite if part.ndim < x.ndim else finite[..., None], part, math.nan) for part in parts
        )

    return decomposition
