"""Parameters seen in another shape, such as matrices, so that a rule is written once, for that shape."""

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


def seen_through(rule: Rule, view: Callable[[Ops, Array], Array]) -> Rule:
    """A rule for parameters out of one that sees them in another shape.

    Args:
        rule: has no needs; its functions see parameters, gradients and hyperparameters by the view, and its
            state belongs to what they see.
        view: `view(ops, array) -> array`, with as many entries.
    """

    def init(ops: Ops, param: Array) -> State:
        return rule.init(ops, view(ops, param))

    def seen(ops: Ops, hyper: Hyper) -> Hyper:
        return {name: view(ops, value) for name, value in hyper.items()}

    def update(ops: Ops, grad: Array, state: State, param: Array, hyper: Hyper) -> tuple[Array, State]:
        new, state = rule.update(ops, view(ops, grad), state, view(ops, param), seen(ops, hyper))
        return ops.reshape(new, tuple(param.shape)), state

    def amortized(work: Amortized | None) -> Amortized | None:
        if work is None:
            return None
        return lambda ops, grad, state, hyper: work(ops, view(ops, grad), state, seen(ops, hyper))

    return replace(
        rule,
        init=init,
        update=update,
        refresh=amortized(rule.refresh),
        start=amortized(rule.start),
        scope="leaf",
    )


def seeing_matrices(rule: Rule, order: int) -> Rule:
    """A rule for parameters of so many axes out of one for matrices, which it sees by `as_matrix`."""
    return seen_through(rule, lambda ops, array: as_matrix(ops, array, order))


def for_matrices(rule_of: Callable[[int], Rule]) -> Rule:
    """A rule for parameters of any order out of rules for matrices.

    Args:
        rule_of: `rule_of(order)`, the rule for parameters of so many axes, as `seeing_matrices` takes it.

    Returns:
        The rule with a `part`, the same object for all parameters of one order.
    """
    part = cache(lambda order: Part(seeing_matrices(rule_of(order), order)))
    return replace(part(2).rule, part=lambda role, shape: part(len(shape)))
