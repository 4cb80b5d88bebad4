"""What the three array libraries have in common: functions by the names of the table, of which a backend
then writes the rest; and decompositions that give NaN where a library would raise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
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


# Names and meanings of the array API standard, which NumPy, JAX and PyTorch share.
EVERYWHERE = (
    *("zeros_like", "ones_like", "full_like", "where", "swapaxes", "reshape", "broadcast_to"),
    *("sqrt", "square", "sign", "exp", "log", "sin", "cos", "tanh", "atan2", "isfinite"),
    *("matmul", "einsum", "tril"),
)
# NumPy and JAX alone: PyTorch has other names or arguments.
NUMPY = (
    *("power", "maximum", "minimum", "clip", "sum", "mean", "max", "cumsum", "argmax"),
    *("pad", "concatenate", "stack", "take", "take_along_axis", "flip", "matrix_transpose"),
    "permute_dims",
)


def named(library: Any, names: Iterable[str]) -> dict[str, Any]:
    """Functions of a library by their names."""
    return {name: getattr(library, name) for name in names}


def like_numpy(library: Any, kind: Any) -> dict[str, Any]:
    """What NumPy and JAX have in common, in a precision of theirs."""
    linalg = library.linalg
    return {
        **named(library, (*EVERYWHERE, *NUMPY)),
        "zeros": lambda shape: library.zeros(shape, kind),
        "eye": lambda n: library.eye(n, dtype=kind),
        "arange": lambda n: library.arange(n, dtype=kind),
        "argsort": lambda x, axis: library.argsort(x, axis=axis, stable=True),
        "unstack": lambda x, axis: library.unstack(x, axis=axis),
        "norm": lambda x: library.sqrt(library.sum(library.square(x))),
        **named(linalg, ("diagonal", "qr")),
        "svd": guarded(lambda x: linalg.svd(x, full_matrices=False), library.isfinite, library.where),
    }
