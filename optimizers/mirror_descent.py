"""Mirror descent: a gradient step in dual coordinates, then the Bregman projection onto a domain.

psi is the function whose gradient maps a parameter w to its dual coordinates z. g is the gradient of the
loss, and eta the learning rate.

In citations, 002 is Stratos (2026), "Adaptive Learning Methods", a set of notes (docs/sources.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from curvebench.optimizers.arrays import Array, Hyper, Ops
from curvebench.optimizers.gradient_descent import SGD, Empty
from curvebench.optimizers.matricization import for_matrices
from curvebench.optimizers.matrix_functions.scaling import normalized
from curvebench.optimizers.options import Option, OptionError, Options
from curvebench.optimizers.rule import LEARNING_RATE, Rule, configured, positive
from curvebench.spec.values import choice

Projection = Callable[[Ops, Array, Hyper], Array]

# --- projections: the point of the domain nearest to each row of (..., vectors, n) -----------------


def _onto_space(ops: Ops, point: Array, hyper: Hyper) -> Array:
    return point


def _onto_ball(ops: Ops, point: Array, hyper: Hyper) -> Array:
    unit, length = normalized(ops, point, -1)
    return ops.where(length > hyper["radius"], hyper["radius"] * unit, point)


def _onto_box(ops: Ops, point: Array, hyper: Hyper) -> Array:
    return ops.maximum(ops.minimum(point, hyper["radius"]), -hyper["radius"])


def onto_simplex(ops: Ops, point: Array, hyper: Hyper) -> Array:
    """Return max(v - theta, 0), with the number theta that makes the sum 1 (Held, Wolfe and Crowder 1974).

    With the entries sorted as u_1 >= u_2 >= ..., theta is the maximum of (u_1 + ... + u_k - 1) / k over k.
    Entries are first shifted so that the largest is 0, which does not change the result; otherwise large
    entries would lose the 1 to rounding.
    """
    shifted = point - ops.max(point, axis=-1, keepdims=True)
    descending = -ops.take_along_axis(-shifted, ops.argsort(-shifted, -1), -1)
    counts = ops.arange(point.shape[-1]) + 1
    theta = ops.max((ops.cumsum(descending, -1) - 1) / counts, axis=-1, keepdims=True)
    return ops.maximum(shifted - theta, 0.0)


PROJECTIONS: Mapping[str, Projection] = {
    "space": _onto_space,
    "ball": _onto_ball,
    "box": _onto_box,
    "simplex": onto_simplex,
}
ENTRYWISE = ("space", "box")
RADII = {
    "ball": positive("the greatest Euclidean norm", 1.0),
    "box": positive("the greatest absolute value of an entry", 1.0),
}


# --- Euclidean mirror function psi(w) = |w|^2 / 2 ---------------------------------------------------------


def _update_euclidean(
    ops: Ops, grad: Array, state: Empty, param: Array, hyper: Hyper, projection: Projection
) -> tuple[Array, Empty]:
    """Do a step of projected gradient descent (002 eqs. 2-3, Sec. 1.3.1 with A = I).

    w becomes the point of the domain that is nearest to w - eta g.
    """
    return projection(ops, param - hyper["learning_rate"] * grad, hyper), state


# --- entropy psi(w) = sum w log w on the simplex ------------------------------------------------------------


class Mirrored(NamedTuple):
    # z_t = log w_t, (..., vectors, n), which is finite also for weights that underflow.
    dual: Array


def _init_entropy(ops: Ops, param: Array) -> Mirrored:
    """Return the logarithm of the parameter, with -infinity for log 0.

    The dual coordinates of a parameter on the simplex differ from its logarithm by a constant, which the
    first update removes. A vector with a negative entry, or with zeros only, is not in the domain of the
    entropy, and is replaced by equal weights.
    """
    total, smallest = ops.sum(param, axis=-1, keepdims=True), -ops.max(-param, axis=-1, keepdims=True)
    weights = ops.where((smallest < 0) | (total == 0), 1.0, param)
    is_zero = weights == 0
    return Mirrored(ops.where(is_zero, -math.inf, ops.log(ops.where(is_zero, 1.0, weights))))


def _update_entropy(
    ops: Ops, grad: Array, state: Mirrored, param: Array, hyper: Hyper
) -> tuple[Array, Mirrored]:
    """Do a step of exponentiated gradient, in dual coordinates z = log w (002 eq. 91).

    w_i <- w_i exp(-eta g_i) / sum_j w_j exp(-eta g_j).

    z - eta g is the result of 002 eq. 2, up to a constant. The division by the sum is the projection of 002
    eq. 3; in dual coordinates it is a subtraction.
    """
    mirrored = state.dual - hyper["learning_rate"] * grad
    # Shift the largest entry to 0 first; otherwise the logarithm of the sum could be lost to rounding.
    dual = ops.log_softmax(mirrored - ops.max(mirrored, axis=-1, keepdims=True), -1)
    return ops.exp(dual), Mirrored(dual)


# --- rules ------------------------------------------------------------------------------------------------

OPTIONS = {
    "mirror": Option(
        "euclidean", "psi: euclidean (|w|^2 / 2) or entropy (sum w log w)", choice("euclidean", "entropy")
    ),
    "domain": Option(
        "space",
        "of each vector or row: space (all numbers), ball (Euclidean, of a radius), box (entries up to a "
        "radius), simplex",
        choice(*PROJECTIONS),
    ),
}


def _entropy(name: str) -> Rule:
    """Return the update rule of mirror descent for the entropy on the simplex, under the name `name`."""
    numbers = {"learning_rate": LEARNING_RATE}
    rule = Rule(name, "002 App. D, eq. 91", numbers, _init_entropy, _update_entropy)
    return for_matrices(lambda order: rule)


@configured("mirror_descent", OPTIONS)
def mirror_descent(chosen: Options) -> Rule:
    """Return the update rule of mirror descent; options that are not given keep their defaults.

    The rule moves vectors in the domain: a parameter with one axis, or each row of a parameter with more axes
    (a slice along its first axis, flattened). A scalar is a vector of length 1. If the initial parameters are
    outside the domain, the first update moves them into the domain: by projection, or, for the entropy, by
    division by the sum.

    Raises:
        OptionError: for an unknown option, a wrong value, or the entropy on another domain than the simplex.
    """
    domain = chosen["domain"]
    if chosen["mirror"] == "entropy":
        if domain != "simplex":
            raise OptionError(
                f"mirror_descent: mirror = 'entropy' needs domain = 'simplex' and not {domain!r}, "
                "where psi or its projection has no closed form; "
                f"mirror = 'euclidean' has {', '.join(PROJECTIONS)}"
            )
        return _entropy("mirror_descent")
    numbers = {"learning_rate": LEARNING_RATE}
    if domain in RADII:
        numbers["radius"] = RADII[domain]
    rule = Rule(
        name="mirror_descent",
        source="002 eqs. 1-3",
        hyperparameters=numbers,
        init=SGD.init,
        update=partial(_update_euclidean, projection=PROJECTIONS[domain]),
    )
    return rule if domain in ENTRYWISE else for_matrices(lambda order: rule)


RULES = (mirror_descent({}), _entropy("exponentiated_gradient"))
