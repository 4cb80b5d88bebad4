"""Steepest descent under a norm, by one of two principles.

The trust-region principle takes steps of length eta in the norm. The majorization-minimization principle
multiplies the step by the dual norm of the gradient.

In formulas, W is the parameter, an m x n matrix, G its gradient, eta the learning rate, O the matrix of norm
1 with the greatest inner product <G, O>, and |G|_* that inner product (the dual norm).

In citations, 002 is Stratos (2026), "Adaptive Learning Methods", a set of notes (docs/sources.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from curvebench.optimizers.arrays import Array, Hyper, Ops, entry_signs
from curvebench.optimizers.gradient_descent import SGD, Empty
from curvebench.optimizers.matricization import for_matrices
from curvebench.optimizers.matrix_functions import orthogonal_factor
from curvebench.optimizers.matrix_functions.scaling import normalized
from curvebench.optimizers.options import Option, Options
from curvebench.optimizers.rule import LEARNING_RATE, Roles, Rule, Shapes, configured
from curvebench.spec.values import choice


def _frobenius(ops: Ops, grad: Array) -> Array:
    return normalized(ops, grad, (-2, -1))[0]


# By norm: a function of G (..., m, n). It returns the O of norm 1 with the greatest <G, O>, or 0 if G is 0.
DIRECTIONS: Mapping[str, Callable[[Ops, Array], Array]] = {
    "frobenius": _frobenius,
    "max": entry_signs,
    "spectral": orthogonal_factor,
}

PRINCIPLE = Option(
    "trust_region",
    "trust_region, a step of length eta, or majorization, of length eta times the gradient's dual norm",
    choice("trust_region", "majorization"),
)
SIGN_OPTIONS = {"principle": PRINCIPLE}
OPTIONS = {
    "norm": Option(
        "frobenius",
        "frobenius (gradient descent), max (sign descent; the greatest entry), spectral (Muon's direction)",
        choice(*DIRECTIONS),
    ),
    "principle": PRINCIPLE,
}


def _rule(name: str, norm: str, principle: str) -> Rule:
    direction, majorizes = DIRECTIONS[norm], principle == "majorization"

    def update(ops: Ops, grad: Array, state: Empty, param: Array, hyper: Hyper) -> tuple[Array, Empty]:
        """Do a step along O, the direction of norm 1 with the greatest <G, O> (002 eqs. 67 to 69).

        The trust-region principle has the step W <- W - eta O. Majorization-minimization has the step
        W <- W - eta <G, O> O.
        """
        steepest, rate = direction(ops, grad), hyper["learning_rate"]
        if majorizes:
            rate = rate * ops.sum(grad * steepest, axis=(-2, -1), keepdims=True)
        return param - rate * steepest, state

    def special_case(shapes: Shapes, roles: Roles) -> str | None:
        """Return the rule under the Frobenius norm, which is the spectral norm of vectors."""
        if norm != "spectral" or any(len(shape) > 1 for shape in shapes.values()):
            return None
        return "sgd" if majorizes else "steepest_descent"

    rule = Rule(name, "002 Sec. 7, eq. 69", {"learning_rate": LEARNING_RATE}, SGD.init, update)
    is_entrywise = norm == "max" and not majorizes
    return replace(rule if is_entrywise else for_matrices(lambda order: rule), special_case=special_case)


@configured("steepest_descent", OPTIONS)
def steepest_descent(chosen: Options) -> Rule:
    """Return the update rule of steepest descent; options that are not given keep their defaults.

    Every parameter has its own norm. A convolution is treated as a matrix, outputs x all other axes, and a
    vector as one row, whose spectral norm is the Euclidean norm.
    """
    return _rule("steepest_descent", chosen["norm"], chosen["principle"])


@configured("sign_descent", SIGN_OPTIONS)
def sign_descent(chosen: Options) -> Rule:
    """Return the update rule of steepest descent under the max norm, named `sign_descent`."""
    return _rule("sign_descent", "max", chosen["principle"])


RULES = (steepest_descent({}), sign_descent({}))
