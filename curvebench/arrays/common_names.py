"""What array libraries have under the names of the table, of which a backend then writes the rest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from curvebench.arrays.decompositions import guarded

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
