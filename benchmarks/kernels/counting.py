"""Floating-point operations of an update rule, counted while it runs on NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from math import prod
from typing import Any, Literal

import numpy as np

from harness.backends.numpy_ops import numpy_ops
from harness.backends.ops import Ops

ARITHMETIC = frozenset(
    {np.add, np.subtract, np.multiply, np.divide, np.power, np.sqrt, np.square, np.exp, np.log}
)


class Counted(np.ndarray):
    """An array whose arithmetic adds to a tally that it shares with what is computed from it."""

    tally: list[int]

    def __array_ufunc__(
        self,
        ufunc: np.ufunc,
        method: Literal["__call__", "reduce", "reduceat", "accumulate", "outer", "at"],
        *inputs: Any,
        **kwargs: Any,
    ) -> Any:
        tally = next(each.tally for each in inputs if isinstance(each, Counted))
        plain = [np.asarray(each) if isinstance(each, Counted) else each for each in inputs]
        result = getattr(ufunc, method)(*plain, **kwargs)
        size = np.size(plain[0]) if method == "reduce" else np.size(result)
        # Arithmetic between single numbers, such as 1 - beta, is left out.
        if size > 1:
            if ufunc is np.matmul:
                tally[0] += 2 * size * np.shape(plain[0])[-1]
            elif ufunc in ARITHMETIC:
                tally[0] += size
        return counted(result, tally)


def counted(value: Any, tally: list[int]) -> Any:
    """An array as one that counts; anything else as it is."""
    if not isinstance(value, (np.ndarray, np.generic)):
        return value
    array = np.asarray(value).view(Counted)
    array.tally = tally
    return array


def counting_ops(tally: list[int]) -> Ops:
    """The float64 NumPy table whose arrays count; `einsum` counts a product and a sum an index tuple."""
    ops = numpy_ops("float64")

    def counting(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            return counted(function(*arguments, **options), tally)

        return call

    def einsum(subscripts: str, *arrays: Any) -> Any:
        terms = subscripts.split("->", maxsplit=1)[0].split(",")
        lengths = {
            index: length
            for term, array in zip(terms, arrays, strict=True)
            for index, length in zip(term, array.shape, strict=True)
        }
        tally[0] += 2 * prod(lengths.values())
        return counted(np.einsum(subscripts, *map(np.asarray, arrays)), tally)

    functions: dict[str, Any] = {
        field.name: counting(getattr(ops, field.name))
        for field in fields(ops)
        if callable(getattr(ops, field.name))
    }
    return replace(ops, **{**functions, "einsum": einsum})


def count(function: Callable[[Ops, Mapping[str, Any]], Any], arrays: Mapping[str, np.ndarray]) -> int:
    """The floating-point operations of `function(ops, arrays)`.

    Counted are sums, differences, products, quotients, powers, roots, exponentials and logarithms, one an
    entry, and two for each product and sum inside a matrix product. Comparison, selection and layout are
    free.
    """
    tally = [0]
    ops = counting_ops(tally)
    function(ops, {name: counted(array, tally) for name, array in arrays.items()})
    return tally[0]
