"""Array functions that several libraries share by name, and decompositions that return NaN on failure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

Array = Any


def symmetric_part(x: Array) -> Array:
    """Return (x + x^T) / 2 for matrices x.

    Some libraries read only one triangle of a matrix that should be symmetric. For a matrix that is not
    symmetric, results and gradients would then differ between libraries; for its symmetric part, all
    libraries agree. The entries are halved before they are added, because a sum of finite entries may
    overflow.
    """
    return x / 2 + x.swapaxes(-1, -2) / 2


def guarded(decompose: Callable[[Array], Any], isfinite: Any, where: Any) -> Callable[[Array], Any]:
    """Return a decomposition that returns NaN for matrices that are not finite.

    For such matrices, LAPACK may raise an error, hang or return finite numbers. A run that has diverged would
    then stop all runs that are computed together with it, or would continue as if it had not diverged.

    Args:
        decompose: decomposition of matrices (..., m, n) into an array or a tuple of arrays.
        isfinite: `isfinite` of the array library.
        where: `where` of the array library.
    """

    def decomposition(x: Array) -> Any:
        finite = isfinite(x).all(-1).all(-1)[..., None]

        def or_nan(factor: Array) -> Array:
            return where(finite if factor.ndim < x.ndim else finite[..., None], factor, math.nan)

        factors = decompose(where(finite[..., None], x, 0.0))
        return tuple(map(or_nan, factors)) if isinstance(factors, tuple) else or_nan(factors)

    return decomposition


# Functions of the array API standard that NumPy, JAX and PyTorch provide by the same name and meaning.
COMMON = (
    *("zeros_like", "ones_like", "full_like", "where", "swapaxes", "reshape", "broadcast_to"),
    *("sqrt", "square", "sign", "exp", "log", "sin", "cos", "tanh", "atan2", "isfinite"),
    *("matmul", "einsum", "tril"),
)
# Functions of the array API standard that NumPy and JAX provide by the same name.
# PyTorch has other names or arguments for these functions.
NUMPY = (
    *("power", "maximum", "minimum", "clip", "sum", "mean", "max", "cumsum", "argmax"),
    *("pad", "concatenate", "stack", "take", "take_along_axis", "flip", "matrix_transpose"),
    "permute_dims",
)


def named(library: Any, names: Iterable[str]) -> dict[str, Any]:
    """Return a mapping from each of the given names to the function of `library` with this name."""
    return {name: getattr(library, name) for name in names}


def like_numpy(library: Any, dtype: Any) -> dict[str, Any]:
    """Return the array functions whose definition is the same for NumPy and JAX, by their names in `Ops`.

    Args:
        library: the module `numpy` or `jax.numpy`.
        dtype: data type of the arrays that constructors such as `zeros` create.
    """
    linalg = library.linalg
    return {
        **named(library, (*COMMON, *NUMPY)),
        "zeros": lambda shape: library.zeros(shape, dtype),
        "eye": lambda n: library.eye(n, dtype=dtype),
        "arange": lambda n: library.arange(n, dtype=dtype),
        "argsort": lambda x, axis: library.argsort(x, axis=axis, stable=True),
        "unstack": lambda x, axis: library.unstack(x, axis=axis),
        "norm": lambda x: library.sqrt(library.sum(library.square(x))),
        **named(linalg, ("diagonal", "qr")),
        "svd": guarded(lambda x: linalg.svd(x, full_matrices=False), library.isfinite, library.where),
    }
