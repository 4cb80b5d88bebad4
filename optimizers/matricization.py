"""Views of parameters in another shape, such as matrices, so that a rule has to support this shape only.

`order` is the number of axes of a parameter, without batch axes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

from curvebench.optimizers.arrays import Array, Hyper, Ops, State
from curvebench.optimizers.rule import Part, Rule
from curvebench.optimizers.tensors import matricized

Amortized = Callable[[Ops, Array, State, Hyper], State]


def as_matrix(ops: Ops, array: Array, order: int) -> Array:
    """Return tensors (..., n_1, ..., n_order) as matrices (..., n_1, entries of the other axes).

    A vector becomes one row, (..., 1, n), and a scalar (..., 1, 1).
    """
    if order > 1:
        return matricized(ops, array, order, 0)
    return ops.reshape(array, (*array.shape[: array.ndim - order], 1, -1))


def seen_through(rule: Rule, view: Callable[[Ops, Array], Array]) -> Rule:
    """Return a rule that reshapes parameters and gradients by `view`, and then applies `rule`.

    Args:
        rule: a rule without needs. Its functions receive parameters, gradients and hyperparameters in the
            shape that `view` returns, and its state belongs to this shape.
        view: `view(ops, array) -> array`, which returns the entries of the array in another shape.
    """

    def init(ops: Ops, param: Array) -> State:
        return rule.init(ops, view(ops, param))

    def viewed(ops: Ops, hyper: Hyper) -> Hyper:
        return {name: view(ops, value) for name, value in hyper.items()}

    def update(ops: Ops, grad: Array, state: State, param: Array, hyper: Hyper) -> tuple[Array, State]:
        new, state = rule.update(ops, view(ops, grad), state, view(ops, param), viewed(ops, hyper))
        return ops.reshape(new, tuple(param.shape)), state

    def amortized(work: Amortized | None) -> Amortized | None:
        if work is None:
            return None
        return lambda ops, grad, state, hyper: work(ops, view(ops, grad), state, viewed(ops, hyper))

    return replace(
        rule,
        init=init,
        update=update,
        refresh=amortized(rule.refresh),
        start=amortized(rule.start),
        scope="leaf",
    )


def seeing_matrices(rule: Rule, order: int) -> Rule:
    """Return a rule that reshapes parameters of `order` axes by `as_matrix`, and then applies `rule`."""
    return seen_through(rule, lambda ops, array: as_matrix(ops, array, order))


def for_matrices(rule_of: Callable[[int], Rule]) -> Rule:
    """Return a rule for parameters with any number of axes from rules for matrices.

    Args:
        rule_of: `rule_of(order)`, a rule for matrices, which is applied to parameters of `order` axes
            reshaped to matrices (`seeing_matrices`).

    Returns:
        A rule whose `part` returns one object for all parameters with the same number of axes.
    """
    part = cache(lambda order: Part(seeing_matrices(rule_of(order), order)))
    return replace(part(2).rule, part=lambda role, shape: part(len(shape)))
