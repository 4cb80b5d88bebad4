"""Manifold Muon: weight matrices with orthonormal columns, moved along the steepest tangential direction."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from curvebench.optimizers.matricization import seeing_matrices
from curvebench.optimizers.matrix_functions import rank_cutoff
from curvebench.optimizers.matrix_functions.scaling import normalized
from curvebench.optimizers.muon import OPTIONS as OPTIONS_OF_MUON
from curvebench.optimizers.muon import is_matrix, polar_factor
from curvebench.optimizers.options import Option, Options
from curvebench.optimizers.others import with_fallback
from curvebench.optimizers.rule import LEARNING_RATE, Array, Hyper, Hyperparameter, Ops, Rule, configured
from curvebench.spec.values import whole

PolarFactor = Callable[[Ops, Array], Array]

ROUNDING = 8.0  # a tangential part below so many times the rank cutoff of the gradient is none
OVER_RELAXATION = 1.6  # fewer iterations than 1 for every shape tried

OPTIONS = {
    "orthogonalization": replace(OPTIONS_OF_MUON["orthogonalization"], default="svd"),
    # Jordan's iteration leaves singular values 0.7 to 1.2: too far from the manifold
    "coefficients": replace(OPTIONS_OF_MUON["coefficients"], default="polar_express"),
    "steps": replace(OPTIONS_OF_MUON["steps"], default=8),
    "dual_steps": Option(12, "iterations for the tangential direction", whole(1)),
    "others": OPTIONS_OF_MUON["others"],
}


class Point(NamedTuple):
    point: Array  # W_t, (..., D, d) with D >= d and orthonormal columns; starts at the polar factor


def symmetric(ops: Ops, matrix: Array) -> Array:
    """sym(M) = (M + M^T) / 2 (002 Lemma S.20)."""
    return (matrix + ops.matrix_transpose(matrix)) / 2


def tangency_error(ops: Ops, direction: Array, point: Array) -> Array:
    """|Z^T W + W^T Z|_F, (..., 1, 1), of matrices (..., D, d)."""
    product = ops.matrix_transpose(point) @ direction
    return _frobenius_norm(ops, product + ops.matrix_transpose(product))


def _frobenius_norm(ops: Ops, matrix: Array) -> Array:
    """Of matrices (..., m, n) with ordinary entries, (..., 1, 1)."""
    return ops.sqrt(ops.sum(ops.square(matrix), axis=(-2, -1), keepdims=True))


def clipped_by_svd(ops: Ops, matrix: Array) -> Array:
    """The nearest matrix with spectral norm at most 1: U min(S, 1) V^T of U S V^T, (..., m, n)."""
    u, values, vh = ops.svd(matrix)
    return (u * ops.minimum(values, 1.0)[..., None, :]) @ vh


def clipped_by(ops: Ops, polar: PolarFactor, matrix: Array) -> Array:
    """The same by polar factors alone: min(S, 1) = (S + 1 - |S - 1|) / 2.

    Q = U V^T gives R = M - Q = U (S - 1) V^T, whose polar factor P has P^T R = V |S - 1| V^T.
    """
    factor = polar(ops, matrix)
    rest = matrix - factor
    return (matrix + factor - factor @ (ops.matrix_transpose(polar(ops, rest)) @ rest)) / 2


def tangential_direction(
    ops: Ops,
    grad: Array,
    point: Array,
    tolerance: Array,
    steps: int,
    polar: PolarFactor,
    clipped: Callable[[Ops, Array], Array],
) -> Array:
    """Z of spectral norm at most 1, tangent at W, with the greatest <Z, G> (002 eqs. 78-79, Lemma S.22).

    The dual problem, min over symmetric Lambda of |G + W Lambda|_nuc, is solved by the alternating direction
    method of multipliers on |Y|_nuc subject to Y = G + W Lambda: the multiplier is Z, which at every
    iteration has spectral norm at most 1 and is a subgradient at Y. The subgradient method of the notes, with
    the polar factor of G + W Lambda for Z, does not become tangent where that matrix is singular at the
    minimum, as is common: a tangent Z then has singular values below 1 in its null space.

    A matrix's iteration stops where |Z^T W + W^T Z|_F and the last change of Z, by which Y differs from
    G + W Lambda, are within the tolerance: it is then frozen while others go on.

    Args:
        grad: G, (..., D, d), of any scale.
        point: W, likewise, with orthonormal columns.
        tolerance: broadcasts against (..., 1, 1).
        steps: the greatest number of iterations.
        polar: the polar factor.
        clipped: the nearest matrix of spectral norm at most 1.

    Returns:
        Z, (..., D, d); 0 where the gradient has no tangential part beyond rounding.
    """
    rows, columns = grad.shape[-2:]
    scaled, _ = normalized(ops, grad, (-2, -1))
    transposed = ops.matrix_transpose(point)
    # G at the first Lambda, -sym(W^T G): the minimum where D = d or W^T G is symmetric
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
    """The functions of the rule for matrices (..., outputs, inputs)."""

    dual_steps: int
    polar: PolarFactor
    clipped: Callable[[Ops, Array], Array]

    def tall(self, ops: Ops, matrix: Array) -> Array:
        """Matrices as (..., D, d), D >= d."""
        rows, columns = matrix.shape[-2:]
        return ops.matrix_transpose(matrix) if rows < columns else matrix

    def init(self, ops: Ops, param: Array) -> Point:
        return Point(self.polar(ops, self.tall(ops, param)))

    def update(self, ops: Ops, grad: Array, state: Point, param: Array, hyper: Hyper) -> tuple[Array, Point]:
        """W <- Orth(W - eta Z) (002 eq. 77)."""
        tolerance = hyper["tangency_tolerance"]
        direction = tangential_direction(
            ops, self.tall(ops, grad), state.point, tolerance, self.dual_steps, self.polar, self.clipped
        )
        point = self.polar(ops, state.point - hyper["learning_rate"] * direction)
        matrix = point if point.shape[-2:] == param.shape[-2:] else ops.matrix_transpose(point)
        return matrix, Point(point)


@configured("manifold_muon", OPTIONS)
def manifold_muon(chosen: Options) -> Rule:
    """The rule for some choices of its options, by name; the others have their defaults.

    Weight matrices, and convolutions as outputs x the rest, are kept on the Stiefel manifold, a wide one by
    its transpose. They begin at the polar factor of their start, with the gradient of the start itself.
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
