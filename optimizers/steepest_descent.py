"""Steepest descent under a norm: by the trust-region and by the majorization-minimization principle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from documents.values import choice
from optimizers.gradient_descent import Empty
from optimizers.matricization import for_matrices
from optimizers.matrix_functions import orthogonal_factor
from optimizers.matrix_functions.scaling import normalized
from optimizers.options import Option, Options, complete
from optimizers.rule import LEARNING_RATE, Array, Ops, Rule, safe_divide


def _frobenius(ops: Ops, grad: Array) -> Array:
    return normalized(ops, grad, (-2, -1))[0]


def _sign(ops: Ops, grad: Array) -> Array:
    # not by ops.sign, which on torch is 0 at NaN: a lane that diverged would go on unseen
    return safe_divide(ops, grad, ops.abs(grad))


# The O with |O| = 1 and <G, O> = |G|_*, the dual norm, of matrices (..., m, n); 0 where G is 0.
DIRECTIONS: Mapping[str, Callable[[Ops, Array], Array]] = {
    "frobenius": _frobenius,
    "max": _sign,
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


def _init(ops: Ops, param: Array) -> Empty:
    return Empty()


def _update_trust_region(
    ops: Ops,
    grad: Array,
    state: Empty,
    param: Array,
    hyper: Mapping[str, Array],
    direction: Callable[[Ops, Array], Array],
) -> tuple[Array, Empty]:
    """W <- W - eta O (002 eqs. 67 and 69, left)."""
    return param - hyper["learning_rate"] * direction(ops, grad), state


def _update_majorization(
    ops: Ops,
    grad: Array,
    state: Empty,
    param: Array,
    hyper: Mapping[str, Array],
    direction: Callable[[Ops, Array], Array],
) -> tuple[Array, Empty]:
    """W <- W - eta |G|_* O (002 eqs. 68 and 69, right); the dual norm |G|_* is <G, O>."""
    steepest = direction(ops, grad)
    dual_norm = ops.sum(grad * steepest, axis=(-2, -1), keepdims=True)
    return param - hyper["learning_rate"] * dual_norm * steepest, state


def _rule(
    name: str, norm: str, options: Mapping[str, Option], chosen: Options, build: Callable[[Options], Rule]
) -> Rule:
    trust_region = chosen["principle"] == "trust_region"
    entrywise = trust_region and norm == "max"
    rule = Rule(
        name=name,
        source="002 Sec. 7, eq. 69",
        hyperparameters={"learning_rate": LEARNING_RATE},
        init=_init,
        update=partial(
            _update_trust_region if trust_region else _update_majorization, direction=DIRECTIONS[norm]
        ),
        options=options,
        chosen=chosen,
        build=build,
    )
    return rule if entrywise else for_matrices(lambda order: rule)


def steepest_descent(options: Options) -> Rule:
    """The rule for some choices of its options, by name; the others have their defaults.

    Every parameter has a norm of its own: that of a matrix, of a convolution as outputs x the rest, and of a
    vector as one row, whose spectral norm is the Euclidean one.
    """
    chosen = complete("steepest_descent", OPTIONS, options)
    return _rule("steepest_descent", chosen["norm"], OPTIONS, chosen, steepest_descent)


def sign_descent(options: Options) -> Rule:
    """Steepest descent under the max norm by its own name."""
    chosen = complete("sign_descent", SIGN_OPTIONS, options)
    return _rule("sign_descent", "max", SIGN_OPTIONS, chosen, sign_descent)


RULES = (steepest_descent({}), sign_descent({}))
