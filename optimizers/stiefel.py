"""Manifold Muon: weight matrices with orthonormal columns, moved along the steepest tangential direction.

The matrices W, D x d with D >= d, that satisfy W^T W = I form the Stiefel manifold. A direction Z is
tangential at W if Z^T W + W^T Z = 0. G is the gradient, and eta the learning rate.

In citations, 002 is Stratos (2026), "Adaptive Learning Methods", a set of notes (docs/sources.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from curvebench.optimizers.arrays import Array, Hyper, Ops
from curvebench.optimizers.layers import is_matrix
from curvebench.optimizers.matricization import seeing_matrices
from curvebench.optimizers.matrix_functions import rank_cutoff
from curvebench.optimizers.matrix_functions.scaling import normalized
from curvebench.optimizers.muon import OPTIONS as OPTIONS_OF_MUON
from curvebench.optimizers.muon import polar_factor
from curvebench.optimizers.options import Option, Options
from curvebench.optimizers.others import with_fallback
from curvebench.optimizers.rule import LEARNING_RATE, Hyperparameter, Rule, configured
from curvebench.spec.values import whole

PolarFactor = Callable[[Ops, Array], Array]

# A tangential component smaller than this number times the rank cutoff of the gradient counts as 0.
ROUNDING = 8.0
# Factor of over-relaxation in the alternating direction method of multipliers.
# For every shape of matrix that was tried, this factor needs fewer iterations than the factor 1.
OVER_RELAXATION = 1.6

OPTIONS = {
    "orthogonalization": replace(OPTIONS_OF_MUON["orthogonalization"], default="svd"),
    # Jordan's iteration leaves singular values between 0.7 and 1.2, too far from the manifold.
    "coefficients": replace(OPTIONS_OF_MUON["coefficients"], default="polar_express"),
    "steps": replace(OPTIONS_OF_MUON["steps"], default=8),
    "dual_steps": Option(12, "iterations for the tangential direction", whole(1)),
    "others": OPTIONS_OF_MUON["others"],
}


class Point(NamedTuple):
    # W_t, (..., D, d), with orthonormal columns; it starts as the polar factor of the parameter.
    point: Array


def symmetric(ops: Ops, matrix: Array) -> Array:
    """Return the symmetric part (M + M^T) / 2 of matrices M (002 Lemma S.20)."""
    return (matrix + ops.matrix_transpose(matrix)) / 2


def tangency_error(ops: Ops, direction: Array, point: Array) -> Array:
    """Return |Z^T W + W^T Z|_F, (..., 1, 1), for a direction Z and a point W, both (..., D, d)."""
    product = ops.matrix_transpose(point) @ direction
    return _frobenius_norm(ops, product + ops.matrix_transpose(product))


def _frobenius_norm(ops: Ops, matrix: Array) -> Array:
    """Return the Frobenius norm of matrices (..., m, n), as (..., 1, 1), if no squared entry overflows."""
    return ops.sqrt(ops.sum(ops.square(matrix), axis=(-2, -1), keepdims=True))


def clipped_by_svd(ops: Ops, matrix: Array) -> Array:
    """Return the nearest matrix with spectral norm at most 1: U min(S, 1) V^T for U S V^T, (..., m, n)."""
    u, values, vh = ops.svd(matrix)
    return (u * ops.minimum(values, 1.0)[..., None, :]) @ vh


def clipped_by(ops: Ops, polar: PolarFactor, matrix: Array) -> Array:
    """Return the nearest matrix with spectral norm at most 1, computed with polar factors only.

    The matrix is M = U S V^T, and the result U min(S, 1) V^T, where min(S, 1) = (S + 1 - |S - 1|) / 2. Q =
    U V^T gives R = M - Q = U (S - 1) V^T, whose polar factor P has P^T R = V |S - 1| V^T.
    """
    factor = polar(ops, matrix)
    remainder = matrix - factor
    return (matrix + factor - factor @ (ops.matrix_transpose(polar(ops, remainder)) @ remainder)) / 2


def tangential_direction(
    ops: Ops,
    grad: Array,
    point: Array,
    tolerance: Array,
    steps: int,
    polar: PolarFactor,
    clipped: Callable[[Ops, Array], Array],
) -> Array:
    """Return the Z of spectral norm at most 1 and tangential at W that has the greatest inner product <Z, G>.

    See 002 eqs. 78-79, Lemma S.22. The dual problem, min over symmetric Lambda of |G + W Lambda|_nuc, is
    solved by the alternating direction method of multipliers on |Y|_nuc subject to Y = G + W Lambda. The
    multiplier is Z, which at every iteration has spectral norm at most 1 and is a subgradient at Y. The
    subgradient method of 002 uses the polar factor of G + W Lambda as Z. That Z does not become tangential if
    G + W Lambda is singular at the minimum, which is common: a tangential Z then has singular values below 1
    in the null space of G + W Lambda.

    The iteration for a matrix stops when |Z^T W + W^T Z|_F and the last change of Z are within the tolerance.
    (The change of Z is the difference between Y and G + W Lambda.) The Z of this matrix then stays unchanged
    while the other matrices of the batch are iterated further.

    Args:
        grad: G, (..., D, d), of any scale.
        point: W, (..., D, d), with orthonormal columns.
        tolerance: bound on |Z^T W + W^T Z|_F and on the change of Z; it broadcasts against (..., 1, 1).
        steps: maximum number of iterations.
        polar: function that computes the polar factor.
        clipped: function that computes the nearest matrix of spectral norm at most 1.

    Returns:
        Z, (..., D, d); 0 where the gradient has no tangential component beyond rounding.
    """
    rows, columns = grad.shape[-2:]
    scaled, _ = normalized(ops, grad, (-2, -1))
    transposed = ops.matrix_transpose(point)
    # G + W Lambda at the first Lambda, -sym(W^T G), which is the minimum if D = d or W^T G is symmetric.
    part, length = normalized(ops, scaled - point @ symmetric(ops, transposed @ scaled), (-2, -1))
    is_rounding = length <= ROUNDING * rank_cutoff(ops, rows, columns)
    tangent = ops.where(is_rounding, ops.zeros_like(part), part * math.sqrt(columns))
    direction, primal, stopped = polar(ops, tangent), tangent, is_rounding
    for _ in range(steps):
        shifted = tangent + point @ symmetric(ops, transposed @ (primal - direction))
        mixed = OVER_RELAXATION * shifted + (1 - OVER_RELAXATION) * primal + direction
        new = clipped(ops, mixed)
        change = _frobenius_norm(ops, new - direction)
        direction = ops.where(stopped, direction, new)
        primal = mixed - new
        stopped = stopped | ((tangency_error(ops, new, point) <= tolerance) & (change <= tolerance))
    return direction


@dataclass(frozen=True)
class _Stiefel:
    """Functions of the rule for matrices (..., outputs, inputs).

    Args:
        dual_steps: maximum number of iterations for the tangential direction.
        polar: function that computes the polar factor.
        clipped: function that computes the nearest matrix of spectral norm at most 1.
    """

    dual_steps: int
    polar: PolarFactor
    clipped: Callable[[Ops, Array], Array]

    def tall(self, ops: Ops, matrix: Array) -> Array:
        """Return matrices as (..., D, d) with D >= d, transposed where necessary."""
        rows, columns = matrix.shape[-2:]
        return ops.matrix_transpose(matrix) if rows < columns else matrix

    def init(self, ops: Ops, param: Array) -> Point:
        return Point(self.polar(ops, self.tall(ops, param)))

    def update(self, ops: Ops, grad: Array, state: Point, param: Array, hyper: Hyper) -> tuple[Array, Point]:
        """Do a step of manifold Muon: W becomes the polar factor of W - eta Z (002 eq. 77)."""
        tolerance = hyper["tangency_tolerance"]
        direction = tangential_direction(
            ops, self.tall(ops, grad), state.point, tolerance, self.dual_steps, self.polar, self.clipped
        )
        point = self.polar(ops, state.point - hyper["learning_rate"] * direction)
        matrix = point if point.shape[-2:] == param.shape[-2:] else ops.matrix_transpose(point)
        return matrix, Point(point)


@configured("manifold_muon", OPTIONS)
def manifold_muon(chosen: Options) -> Rule:
    """Return the update rule of manifold Muon; options that are not given keep their defaults.

    Weight matrices, and convolutions as matrices outputs x all other axes, stay on the Stiefel manifold. If a
    matrix has more columns than rows, its transpose stays on the manifold. The first step starts from the
    polar factor of the initial matrix, but its gradient is computed at the initial matrix itself.
    """
    polar = polar_factor(chosen)

    def by_polar_factors(ops: Ops, matrix: Array) -> Array:
        return clipped_by(ops, polar, matrix)

    clipped = clipped_by_svd if chosen["orthogonalization"] == "svd" else by_polar_factors
    numbers = {
        "learning_rate": LEARNING_RATE,
        "tangency_tolerance": Hyperparameter(
            "of |Z^T W + W^T Z|_F and of the change of Z, where the direction Z is good enough", 1e-6, 0.0
        ),
    }

    functions = _Stiefel(chosen["dual_steps"], polar, clipped)
    source = "002 eqs. 77-79, Lemma S.22"
    rule = Rule("manifold_muon", source, numbers, functions.init, functions.update)
    return with_fallback(partial(seeing_matrices, rule), is_matrix, chosen["others"])


RULES = (manifold_muon({}),)
