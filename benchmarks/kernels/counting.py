"""Floating-point operations of an update rule, counted by the shapes of the arrays that it computes with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from math import prod
from typing import Any, Literal

import numpy as np

from harness.backends.numpy_ops import numpy_ops
from harness.backends.ops import Ops

Shape = tuple[int, ...]

ARITHMETIC = frozenset(
    {
        *(np.add, np.subtract, np.multiply, np.divide, np.power, np.sqrt, np.square, np.exp, np.log),
        *(np.sin, np.cos, np.arctan2, np.tanh),
    }
)


# --- decompositions --------------------------------------------------------------------------------


def eigh_flops(n: int) -> int:
    """Eigenvalues and vectors of a symmetric matrix (Golub, Van Loan, "Matrix Computations", 8.3)."""
    return 9 * n**3


def svd_flops(rows: int, columns: int) -> int:
    """A reduced decomposition of the matrix or its transpose, after a QR (Golub, Van Loan, 8.6)."""
    long, short = max(rows, columns), min(rows, columns)
    return 6 * long * short**2 + 20 * short**3


def qr_flops(rows: int, columns: int) -> int:
    """Householder's QR with an explicit reduced Q (002 Q.2, Compute); further columns are reflected."""
    short = min(rows, columns)
    return 4 * rows * short**2 - 4 * short**3 // 3 + 2 * short**2 * (columns - short)


def cholesky_flops(n: int) -> int:
    """A Cholesky factor (Golub, Van Loan, 4.2)."""
    return n**3 // 3


def solve_flops(n: int, columns: int) -> int:
    """An LU factorization and two triangular systems a column (Golub, Van Loan, 3.1 and 3.2)."""
    return 2 * n**3 // 3 + 2 * n**2 * columns


# The work on one matrix and the shapes of what comes out, from the shapes of the last two axes.
DECOMPOSITIONS: Mapping[str, Callable[..., tuple[int, tuple[Shape, ...]]]] = {
    "eigh": lambda a: (eigh_flops(a[0]), ((a[0],), a)),
    "svd": lambda a: (svd_flops(*a), ((a[0], min(a)), (min(a),), (min(a), a[1]))),
    "qr": lambda a: (qr_flops(*a), ((a[0], min(a)), (min(a), a[1]))),
    "cholesky": lambda a: (cholesky_flops(a[0]), (a,)),
    "solve": lambda a, b: (solve_flops(a[0], b[1]), (b,)),
}


# --- arrays that count -------------------------------------------------------------------------------


class Counted(np.ndarray):
    """An array whose arithmetic adds to a tally that it shares with what is computed from it."""

    tally: list[int]

    def __array_finalize__(self, source: Any) -> None:
        self.tally = getattr(source, "tally", [0])

    def __array_ufunc__(
        self,
        ufunc: np.ufunc,
        method: Literal["__call__", "reduce", "reduceat", "accumulate", "outer", "at"],
        *inputs: Any,
        **kwargs: Any,
    ) -> Any:
        given = tuple(kwargs.pop("out", ()))  # of np.mean, which divides its sum in place
        tally = next(each.tally for each in (*inputs, *given) if isinstance(each, Counted))
        plain = [np.asarray(each) if isinstance(each, Counted) else each for each in inputs]
        if ufunc is np.matmul:
            shape = product_shape(*map(np.shape, plain))
            if prod(shape) > 1:
                tally[0] += 2 * prod(shape) * np.shape(plain[0])[-1]
            return counted(nothing(shape), tally)
        result = getattr(ufunc, method)(*plain, **kwargs)
        size = np.size(plain[0]) if method == "reduce" else np.size(result)
        # Arithmetic between single numbers, such as 1 - beta, is left out.
        if size > 1 and ufunc in ARITHMETIC:
            tally[0] += size
        return counted(result, tally)


def counted(value: Any, tally: list[int]) -> Any:
    """An array as one that counts; anything else as it is."""
    if not isinstance(value, (np.ndarray, np.generic)):
        return value
    array = np.asarray(value).view(Counted)
    array.tally = tally
    return array


def nothing(shape: Shape) -> np.ndarray:
    """Zeros that take no memory and no time: the result of a product that is counted and not computed."""
    return np.broadcast_to(np.zeros(()), shape)


def product_shape(a: Shape, b: Shape) -> Shape:
    """The shape of a matrix product, of stacks or vectors too."""
    return (*np.broadcast_shapes(a[:-2], b[:-2]), *a[-2:-1], *(b[-1:] if len(b) > 1 else ()))


def einsum_shape(subscripts: str, shapes: tuple[Shape, ...]) -> tuple[int, Shape]:
    """The number of index tuples of an einsum with an explicit result, and the result's shape."""
    left, result = subscripts.replace(" ", "").split("->")
    lengths: dict[str, int] = {}
    batch: Shape = ()
    for term, shape in zip(left.split(","), shapes, strict=True):
        names = term.removeprefix("...")
        first = len(shape) - len(names)
        batch = np.broadcast_shapes(batch, shape[:first])
        lengths |= dict(zip(names, shape[first:], strict=True))
    kept = (batch if result.startswith("...") else ()), result.removeprefix("...")
    return prod(batch) * prod(lengths.values()), (*kept[0], *(lengths[name] for name in kept[1]))


def counting_ops(tally: list[int]) -> Ops:
    """The float64 NumPy table whose arrays count.

    Matrix products and decompositions are not computed, only counted: their results are zeros of the right
    shape. Networks' functions, which update rules do not use, count what their arithmetic counts.
    """
    ops = numpy_ops("float64")

    def counting(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            return counted(function(*arguments, **options), tally)

        return call

    def decomposing(name: str) -> Callable[..., Any]:
        def call(*matrices: Any) -> Any:
            shapes = [tuple(matrix.shape) for matrix in matrices]
            flops, results = DECOMPOSITIONS[name](*(shape[-2:] for shape in shapes))
            batch = np.broadcast_shapes(*(shape[:-2] for shape in shapes))
            tally[0] += prod(batch) * flops
            made = tuple(counted(nothing((*batch, *shape)), tally) for shape in results)
            return made if len(made) > 1 else made[0]

        return call

    def einsum(subscripts: str, *arrays: Any) -> Any:
        tuples, shape = einsum_shape(subscripts, tuple(tuple(array.shape) for array in arrays))
        tally[0] += 2 * tuples
        return counted(nothing(shape), tally)

    def cumsum(x: Any, axis: int) -> Any:
        tally[0] += np.size(x)
        return counted(np.cumsum(np.asarray(x), axis=axis), tally)

    functions: dict[str, Any] = {
        field.name: counting(getattr(ops, field.name))
        for field in fields(ops)
        if callable(getattr(ops, field.name))
    }
    decompositions = {name: decomposing(name) for name in DECOMPOSITIONS}
    return replace(ops, **{**functions, **decompositions, "einsum": einsum, "cumsum": cumsum})


def count(function: Callable[[Ops, Mapping[str, Any]], Any], shapes: Mapping[str, Shape]) -> int:
    """The floating-point operations of `function(ops, arrays)` on arrays of these shapes.

    Counted are sums, differences, products, quotients, powers, roots and elementary functions, one an entry;
    two for each product and sum inside a matrix product; and for a decomposition its leading terms, as the
    functions above have them. Comparison, selection and layout are free. Values do not matter, as a rule has
    no branch on them: matrix products are not computed.
    """
    tally = [0]
    ops = counting_ops(tally)
    with np.errstate(all="ignore"):
        function(ops, {name: counted(np.ones(shape), tally) for name, shape in shapes.items()})
    return tally[0]
