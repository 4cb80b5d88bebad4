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


def guarded(decompose: Callable[[Array], Any], isfinite: Any, where: Any) -> Callable[[Array], Any]:
    """A decomposition, into one array or a tuple, that gives NaN for matrices that are not finite.

    LAPACK's drivers may raise, not return or give a number on those, and one diverged lane would stop its
    bundle or go on.
    """

    def decomposition(x: Array) -> Any:
        finite = isfinite(x).all(-1).all(-1)[..., None]

        def kept(part: Array) -> Array:
            return where(finite if part.ndim < x.ndim else finite[..., None], part, math.nan)

        found = decompose(where(finite[..., None], x, 0.0))
        return tuple(map(kept, found)) if isinstance(found, tuple) else kept(found)

    return decomposition
