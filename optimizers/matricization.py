"""Parameters of any order seen as matrices, so that a rule is written once, for matrices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

from curvebench.optimizers.rule import Array, Hyper, Ops, Part, Rule, State
from curvebench.optimizers.tensors import matricized

Amortized = Callable[[Ops, Array, State, Hyper], State]


def as_matrix(ops: Ops, array: Array, order: int) -> Array:
    """A stack of tensors (..., n_1, ..., n_order) as matrices (..., n_1, entries of the other axes).

    A vector is one row, (..., 1, n), and a scalar (..., 1, 1).
    """
    if order > 1:
        return matricized(ops, array, order, 0)
    return ops.reshape(array, (*array.shape[: array.ndim - order], 1, -1))


def seeing_matrices(rule: Rule, order: int) -> Rule:
    """A rule for parameters of so many axes out of one for matrices.

    Args:
        rule: has no needs; its functions see parameters and gradients by `as_matrix` and hyperparameters as
            (..., 1, 1), and its state belongs to the matrix.
        order: the number of a parameter's axes.
    """

    def init(ops: Ops, param: Array) -> State:
        return rule.init(ops, as_matrix(ops, param, order))

    def seen(ops: Ops, hyper: Hyper) -> Hyper:
        return {name: as_matrix(ops, value, order) for name, value in hyper.items()}

    def update(ops: Ops, grad: Array, state: State, param: Array, hyper: Hyper) -> tuple[Array, State]:
        gradient, matrix = as_matrix(ops, grad, order), as_matrix(ops, param, order)
        new, state = rule.update(ops, gradient, state, matrix, seen(ops, hyper))
        return ops.reshape(new, tuple(param.shape)), state

    def amortized(work: Amortized | None) -> Amortized | None:
        if work is None:
            return None
        return lambda ops, grad, state, hyper: work(ops, as_matrix(ops, grad, order), state, seen(ops, hyper))

    return replace(
        rule,
        init=init,
        update=update,
        refresh=amortized(rule.refresh),
        start=amortized(rule.start),
        scope="leaf",
    )


def for_matrices(rule_of: Callable[[int], Rule]) -> Rule:
    """A rule for parameters of any order out of rules for matrices.

    Args:
        rule_of: `rule_of(order)`, the rule for parameters of so many axes, as `seeing_matrices` takes it.

    Returns:
        The rule with a `part`, the same object for all parameters of one order.
    """
    part = cache(lambda order: Part(seeing_matrices(rule_of(order), order)))
    return replace(part(2).rule, part=lambda role, shape: part(len(shape)))
