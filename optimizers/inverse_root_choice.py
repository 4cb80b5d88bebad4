"""The ways to an inverse root that a study may choose from, and the powers that each of them has."""

from __future__ import annotations

from collections.abc import Callable

from curvebench.optimizers.matrix_functions import (
    coupled_newton_inverse_root,
    inverse_root,
    newton_schulz_inverse_root,
    rank_cutoff,
)
from curvebench.optimizers.options import Option, OptionError, Options
from curvebench.optimizers.rule import Array, Ops
from curvebench.spec.values import choice, whole

ROOT_OPTIONS = {
    "root": Option(
        "eigendecomposition",
        "how roots are computed: eigendecomposition; by products alone, coupled_newton (1 / power whole) or "
        "newton_schulz (power 1/2, 1/4, 1/8, 1/16); tracked_basis, one orthogonal iteration of a kept basis",
        choice("eigendecomposition", "coupled_newton", "newton_schulz", "tracked_basis"),
    ),
    "steps": Option(30, "iterations of coupled_newton and newton_schulz", whole(1)),
}
HALVINGS = {2.0**-count: count for count in range(1, 5)}


def root_of(owner: str, chosen: Options, power: float) -> Callable[[Ops, Array, Array], Array] | None:
    """The function `root(ops, matrix, damping)` that gives (matrix + damping I)^(-power).

    The eigendecomposition gives the pseudo-inverse's root where that matrix is singular. The iterations have
    none: they damp by the size of rounding, n eps tr A, as well, so that no eigenvalue is below 0, and
    `steps` bounds what becomes of those near it.

    Args:
        owner: the rule's name, for messages.
        chosen: ROOT_OPTIONS by name.
        power: the exponent.

    Returns:
        None for a tracked basis, which needs more than the matrix.

    Raises:
        OptionError: where the chosen way does not lead to the power.
    """
    steps = chosen["steps"]

    def refused(what: str) -> OptionError:
        return OptionError(f"{owner}: root = {chosen['root']!r} needs {what}, and the power is {power:g}")

    if chosen["root"] == "tracked_basis":
        return None
    if chosen["root"] == "eigendecomposition":
        return lambda ops, matrix, damping: inverse_root(
            ops, matrix, power, damping, rank_cutoff(ops, matrix.shape[-1])
        )
    if chosen["root"] == "coupled_newton":
        root = round(1 / power)
        if abs(1 / power - root) > 1e-9 * root:
            raise refused("a power of which 1 / power is whole, such as 1/4")
        return lambda ops, matrix, damping: coupled_newton_inverse_root(
            ops, matrix, root, steps, _above_rounding(ops, matrix, damping)
        )
    if power not in HALVINGS:
        raise refused("a power of 1/2, 1/4, 1/8 or 1/16")
    return lambda ops, matrix, damping: newton_schulz_inverse_root(
        ops, matrix, HALVINGS[power], steps, _above_rounding(ops, matrix, damping)
    )


def _above_rounding(ops: Ops, matrix: Array, damping: Array) -> Array:
    trace = ops.sum(ops.diagonal(matrix), axis=-1)[..., None, None]
    return damping + rank_cutoff(ops, matrix.shape[-1]) * trace
