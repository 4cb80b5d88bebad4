"""Optimization on spheres: weight vectors have a fixed length, or learn length and direction separately.

In formulas, w is a weight vector of n entries and length r, g its gradient, and eta the learning rate. A
gradient or step is tangential if it is orthogonal to w.

In citations, 002 is Stratos (2026), "Adaptive Learning Methods", a set of notes (docs/sources.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from curvebench.optimizers.arrays import Array, Hyper, Ops, safe_divide
from curvebench.optimizers.layers import LAYER_KINDS
from curvebench.optimizers.matricization import seeing_matrices
from curvebench.optimizers.matrix_functions import rank_cutoff
from curvebench.optimizers.matrix_functions.scaling import normalized
from curvebench.optimizers.options import Option, Options
from curvebench.optimizers.others import others_option, with_fallback
from curvebench.optimizers.rule import LEARNING_RATE, ParameterRole, Rule, configured
from curvebench.spec.values import choice

# Kinds of parameters whose slices along the first axis are vectors, each of which moves on a sphere.
ROWS = (*LAYER_KINDS, "embedding")
OTHERS = others_option("biases, norms and single numbers")
# Relative errors up to this factor times the number of entries of a vector times eps count as rounding.
ROUNDING = 8.0
# Newton steps for the l1 norm; vectors whose entries span 20 orders of magnitude needed 10.
NEWTON_STEPS = 20


class Radius(NamedTuple):
    radius: Array  # r, the initial length of each vector, (..., 1).


class DirectionAndScale(NamedTuple):
    direction: Array  # Direction v_t, (..., n), which starts as the weight vector.
    scale: Array  # Length s_t, (..., 1), which starts as the length of the weight vector.


def _inner(ops: Ops, a: Array, b: Array) -> Array:
    """Return the inner product of vectors (..., n), as (..., 1)."""
    return ops.sum(a * b, axis=-1, keepdims=True)


def tangential(ops: Ops, grad: Array, point: Array) -> Array:
    """Return the component of the gradient orthogonal to the point, (I - w w^T / r^2) g (002 eq. 71).

    Gradient and point are (..., n).
    """
    unit, _ = normalized(ops, point, -1)
    once = grad - unit * _inner(ops, unit, grad)
    # Project twice: rounding errors of the first projection leave a small component along the point.
    return once - unit * _inner(ops, unit, once)


def unit_tangential(ops: Ops, grad: Array, point: Array) -> tuple[Array, Array]:
    """Return the tangential component of a gradient, scaled to length 1, and a bound on its rounding error.

    Returns:
        The component, (..., n), which is 0 if it may be a rounding error of the gradient; and a bound, (...,
        1), on the rounding error of its inner product with the point of length 1.
    """
    unit, length = normalized(ops, tangential(ops, grad, point), -1)
    _, grad_length = normalized(ops, grad, -1)
    rounding = ROUNDING * rank_cutoff(ops, grad.shape[-1]) * safe_divide(ops, grad_length, length)
    is_rounding = (length == 0) | (rounding >= 1)
    return ops.where(is_rounding, ops.zeros_like(unit), unit), rounding


def retracted(ops: Ops, moved: Array, radius: Array, old_point: Array) -> Array:
    """Scale vectors (..., n) to their radius (..., 1); a vector that moved to 0 returns to its old point."""
    unit, length = normalized(ops, moved, -1)
    return ops.where(length == 0, old_point, radius * unit)


# --- the steepest tangential direction (002 eq. 73, Lemma S.21) ---------------------------------------
#
# The arguments are tangential gradients g of norm 1 (or 0) and points w of norm 1, (..., n).
# `rounding` is a bound on the rounding error of w^T g, (..., 1).
# Each function returns the vector z, (..., n), that maximizes g^T z subject to |z| <= 1 and w^T z = 0.
# Tied entries get equal shares, so that z does not depend on the order of entries.
# Entries within a tolerance count as tied, because a compiler may round a value differently in two places.


def tie_tolerance(ops: Ops, tangent: Array, point: Array, multiplier: Array, rounding: Array) -> Array:
    """Return a bound on the rounding error of each entry of g + lambda w.

    g is the gradient `tangent`, w the weight vector `point`, and lambda the number `multiplier`.
    """
    relative_error = ROUNDING * rank_cutoff(ops, point.shape[-1])
    along = relative_error * ops.abs(multiplier) + rounding
    return relative_error * ops.abs(tangent) + along * ops.abs(point)


def steepest_l2(ops: Ops, tangent: Array, point: Array, rounding: Array) -> Array:
    """Return z = g, the steepest direction for the Euclidean norm."""
    return tangent


def steepest_linfinity(ops: Ops, tangent: Array, point: Array, rounding: Array) -> Array:
    """Return z = sign(g + lambda w), the steepest direction for the l-infinity norm.

    lambda is the number that minimizes |g + lambda w|_1. It is a median with the weights |w_i|.

    At the minimum, one or several entries of g + lambda w are 0. In these positions, z_i is sign(w_i) times a
    common number in [-1, 1], such that w^T z = 0.
    """
    weight = ops.abs(point)
    breakpoints = -safe_divide(ops, tangent, point)
    order = ops.argsort(breakpoints, -1)
    reached = ops.cumsum(ops.take_along_axis(weight, order, -1), -1)
    is_past = reached >= ops.sum(weight, axis=-1, keepdims=True) / 2
    sorted_breakpoints = ops.take_along_axis(breakpoints, order, -1)
    # The weighted median is the smallest breakpoint at which at least half of the weight is reached.
    # The weighted median is computed as a maximum, so that no index is needed.
    multiplier = -ops.max(ops.where(is_past, -sorted_breakpoints, -math.inf), axis=-1, keepdims=True)
    lagrangian = tangent + multiplier * point
    is_tied = ops.abs(lagrangian) <= tie_tolerance(ops, tangent, point, multiplier, rounding)
    zero = ops.zeros_like(point)
    signs = ops.where(is_tied, zero, ops.sign(lagrangian))
    tied_weight = ops.sum(ops.where(is_tied, weight, zero), axis=-1, keepdims=True)
    share = safe_divide(ops, -_inner(ops, point, signs), tied_weight)
    return ops.where(is_tied, share * ops.sign(point), signs)


def steepest_l1(ops: Ops, tangent: Array, point: Array, rounding: Array) -> Array:
    """Return z, the steepest direction for the l1 norm.

    z is 0 except at the largest entries of g + lambda w, where lambda minimizes the size t of these entries.

    The size t is |g + lambda w|_infinity. For each entry i, |g_i + lambda w_i| <= t is an interval of lambda,
    and the minimum is the smallest t for which all intervals have a common lambda. This t is the largest of
    (u_i |w_j| - u_j |w_i|) / (|w_i| + |w_j|) over all pairs i, j, with u = -sign(w) g.

    Newton's method approaches this t from below. It is applied to the function (largest lower end) -
    (smallest upper end) of the intervals, which is convex and piecewise linear in t: each piece belongs to a
    pair of intervals. A step divides the product of the function's value and slope by 4 or more. The method
    has converged when the pair no longer changes.
    """
    weight, signed = ops.abs(point), -ops.sign(point) * tangent
    # If w_i = 0, the interval of lambda for entry i is empty or contains all numbers.
    is_free = weight == 0
    divisor = ops.where(is_free, ops.ones_like(weight), weight)
    size = ops.sum(ops.abs(tangent), axis=-1, keepdims=True)
    free = ops.max(ops.where(is_free, ops.abs(tangent), 0.0), axis=-1, keepdims=True)
    # Start with the larger of two lower bounds of t. The bound `free` comes from entries with w_i = 0.
    # The other lower bound, |g|^2 / |g|_1, comes from the vector z = g / |g|_1.
    greatest = ops.maximum(free, safe_divide(ops, _inner(ops, tangent, tangent), size))
    for _ in range(NEWTON_STEPS):
        lower = ops.where(is_free, -math.inf, (signed - greatest) / divisor)
        upper = ops.where(is_free, math.inf, (signed + greatest) / divisor)
        i, j = ops.argmax(lower, -1)[..., None], ops.argmax(-upper, -1)[..., None]
        signed_i, weight_i = ops.take_along_axis(signed, i, -1), ops.take_along_axis(weight, i, -1)
        signed_j, weight_j = ops.take_along_axis(signed, j, -1), ops.take_along_axis(weight, j, -1)
        of_pair = safe_divide(ops, signed_i * weight_j - signed_j * weight_i, weight_i + weight_j)
        greatest = ops.maximum(greatest, of_pair)
    # At the minimum, lambda is the lower end of the interval of entry i, and the upper end for entry j.
    # Compute lambda from the end that is divided by the larger weight, because its rounding error is smaller.
    multiplier = ops.where(
        weight_i >= weight_j,
        safe_divide(ops, signed_i - greatest, weight_i),
        safe_divide(ops, signed_j + greatest, weight_j),
    )
    lagrangian = tangent + multiplier * point
    threshold = greatest * (1 - ROUNDING * rank_cutoff(ops, point.shape[-1]))
    tolerance = tie_tolerance(ops, tangent, point, multiplier, rounding)
    is_greatest = ops.astype_float(ops.abs(lagrangian) >= threshold - tolerance)
    signs = is_greatest * ops.sign(lagrangian)

    def count(x: Array) -> Array:
        return ops.sum(x, axis=-1, keepdims=True)

    # If some of the largest entries have w_i = 0, z is nonzero only at these entries, where w^T z stays 0.
    # If w_i != 0 for all largest entries, the products w_i z_i have both signs, and shares make w^T z = 0.
    alone = is_greatest * ops.astype_float(is_free)
    pulls_down = is_greatest * ops.astype_float(lagrangian * point < 0)
    pulls_up = is_greatest * ops.astype_float(lagrangian * point > 0)
    weight_down, weight_up = count(pulls_down * weight), count(pulls_up * weight)
    both = count(pulls_down) * weight_up + count(pulls_up) * weight_down
    balanced = safe_divide(ops, pulls_down * weight_up + pulls_up * weight_down, both)
    return signs * ops.where(count(alone) > 0, safe_divide(ops, alone, count(alone)), balanced)


NORMS: Mapping[str, Callable[[Ops, Array, Array, Array], Array]] = {
    "l1": steepest_l1,
    "l2": steepest_l2,
    "linfinity": steepest_linfinity,
}


# --- rules -------------------------------------------------------------------------------------------
#
# The rules in this section move vectors: the rows of a parameter that is seen as a matrix.
# A parameter with one axis is one row; otherwise each slice along the first axis is a row.

# Function of (ops, gradient, point, learning rate), which returns the point to which a rule moves a vector.
# The rule then scales the point that the function returns to the length of the vector.
Step = Callable[[Ops, Array, Array, Array], Array]


@dataclass(frozen=True)
class _Spheres:
    """Functions of an update rule that keeps each vector's length.

    Args:
        step: function that moves a vector before it is scaled to its length.
    """

    step: Step

    def init(self, ops: Ops, param: Array) -> Radius:
        return Radius(normalized(ops, param, -1)[1])

    def update(
        self, ops: Ops, grad: Array, state: Radius, param: Array, hyper: Hyper
    ) -> tuple[Array, Radius]:
        moved = self.step(ops, grad, param, hyper["learning_rate"])
        return retracted(ops, moved, state.radius, param), state


def _pin_to_sphere(ops: Ops, grad: Array, point: Array, rate: Array) -> Array:
    """Return w - eta g (002 eq. 70)."""
    return point - rate * grad


def _riemannian(ops: Ops, grad: Array, point: Array, rate: Array) -> Array:
    """Return w - eta g_perp for the tangential gradient g_perp (002 eq. 72)."""
    return point - rate * tangential(ops, grad, point)


def _trust_region(norm: str) -> Step:
    """Return the step w - eta z, where z is the steepest tangential direction for a norm (002 eq. 73)."""
    steepest = NORMS[norm]

    def step(ops: Ops, grad: Array, point: Array, rate: Array) -> Array:
        unit, _ = normalized(ops, point, -1)
        # Tiny entries of w become 0, because a division by them could overflow.
        # Tiny entries of w change w^T z by less than the rounding error.
        unit = ops.where(ops.abs(unit) <= rank_cutoff(ops, 1) ** 2, ops.zeros_like(unit), unit)
        tangent, rounding = unit_tangential(ops, grad, point)
        # Adding 0 times the gradient makes the result NaN if the gradient is not finite.
        return point - rate * (steepest(ops, tangent, unit, rounding) + 0 * tangent)

    return step


@dataclass(frozen=True)
class _WeightNormalization:
    """Functions of weight normalization.

    Args:
        frozen: whether the lengths are not learned, so that each vector keeps its length.
    """

    frozen: bool

    def init(self, ops: Ops, param: Array) -> DirectionAndScale:
        return DirectionAndScale(ops.zeros_like(param) + param, normalized(ops, param, -1)[1])

    def update(
        self, ops: Ops, grad: Array, state: DirectionAndScale, param: Array, hyper: Hyper
    ) -> tuple[Array, DirectionAndScale]:
        """Do a step of weight normalization, w = s v / |v|, for the direction v and length s (002 eq. 74).

        v <- v - eta g_v and s <- s - eta g_s, where g_v and g_s are the gradients with respect to v and s.
        """
        rate = hyper["learning_rate"]
        unit, length = normalized(ops, state.direction, -1)
        factor = safe_divide(ops, state.scale, length)
        direction = state.direction - rate * factor * tangential(ops, grad, unit)
        scale = state.scale if self.frozen else state.scale - rate * _inner(ops, unit, grad)
        return scale * normalized(ops, direction, -1)[0], DirectionAndScale(direction, scale)


def _is_vectors(role: ParameterRole, order: int) -> bool:
    return role.kind == "vector" if order == 1 else role.kind in ROWS and order > 1


def _rule(name: str, source: str, functions: Callable[[Options], Any], options: Mapping[str, Option]) -> Rule:
    """Return a rule for vectors, with a fallback rule for all other parameters.

    Args:
        functions: `functions(chosen)`, which takes the completed options, and returns an object with the
            functions of the rule.
    """

    @configured(name, options)
    def build(chosen: Options) -> Rule:
        methods = functions(chosen)
        rule = Rule(name, source, {"learning_rate": LEARNING_RATE}, methods.init, methods.update)
        return with_fallback(partial(seeing_matrices, rule), _is_vectors, chosen["others"])

    return build({})


RULES = (
    _rule("pin_to_sphere", "002 eq. 70", lambda chosen: _Spheres(_pin_to_sphere), {"others": OTHERS}),
    _rule("riemannian_sgd", "002 eq. 72", lambda chosen: _Spheres(_riemannian), {"others": OTHERS}),
    _rule(
        "trust_region_sphere",
        "002 eq. 73, Lemma S.21",
        lambda chosen: _Spheres(_trust_region(chosen["norm"])),
        {"norm": Option("l2", f"that bounds the step: {', '.join(NORMS)}", choice(*NORMS)), "others": OTHERS},
    ),
    _rule(
        "weight_normalization",
        "002 eqs. 74-76, Lemma 8.1",
        lambda chosen: _WeightNormalization(chosen["scale"] == "frozen"),
        {
            "scale": Option("free", "free, learned like the direction, or frozen", choice("free", "frozen")),
            "others": OTHERS,
        },
    ),
)
