"""Types of the arrays that rules receive, and functions of arrays that several rules share.

In citations, 002 is Stratos (2026), "Adaptive Learning Methods", a set of notes (docs/sources.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from curvebench.spec.values import Option, flag

Array = Any  # An array is a numpy.ndarray, torch.Tensor or jax.Array; rules do not depend on which.
Ops = Any  # The array functions of a backend (curvebench/arrays), passed to each function of a rule.
# Values by name: hyperparameters, `step`, `schedule`, and other values that a rule needs, such as a Hessian.
Hyper = Mapping[str, Any]
State = Any  # A NamedTuple of arrays (or of nested NamedTuples), never a bare array.


def map_arrays(function: Callable[..., Any], tree: Any, *trees: Any) -> Any:
    """Apply `function` to each array of nested mappings and tuples.

    Args:
        function: receives an array of `tree`, and the arrays at the same position in `trees`.
        tree: an array, or mappings and tuples (also named tuples) of trees.
        trees: further trees of the same structure.

    Returns:
        A tree of the same structure.
    """
    if isinstance(tree, Mapping):
        return {
            name: map_arrays(function, value, *(branch[name] for branch in trees))
            for name, value in tree.items()
        }
    if isinstance(tree, tuple):
        parts = [map_arrays(function, *branches) for branches in zip(tree, *trees, strict=True)]
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    return function(tree, *trees)


def safe_divide(ops: Ops, numerator: Array, denominator: Array) -> Array:
    """Return the entrywise quotient, with 0 where the denominator is 0.

    This is the pseudo-inverse of a diagonal preconditioner: an entry whose gradients were all 0 does not
    move.
    """
    is_zero = denominator == 0
    quotient = numerator / ops.where(is_zero, ops.ones_like(denominator), denominator)
    return ops.where(is_zero, ops.zeros_like(quotient), quotient)


def entry_signs(ops: Ops, array: Array) -> Array:
    """Return the sign of each entry: 1, -1 or 0, and NaN for NaN.

    `ops.sign` is not used, because in PyTorch the sign of NaN is 0, and a diverged run would not be noticed.
    """
    return safe_divide(ops, array, ops.abs(array))


def smoothed_root(ops: Ops, square: Array, epsilon: Array, inside: bool) -> Array:
    """Return sqrt(square) + epsilon, or with `inside` sqrt(square + epsilon) (002 Sec. 4.1.1, Fig. 1)."""
    return ops.sqrt(square + epsilon) if inside else ops.sqrt(square) + epsilon


INSIDE_ROOT = Option(False, "whether epsilon is added inside the root instead of to it", flag)
