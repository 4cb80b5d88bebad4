"""The leaves that a rule of matrices or of spheres leaves to another rule, and its hyperparameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

from curvebench.optimizers.adam import ADAM, ADAMW
from curvebench.optimizers.gradient_descent import MOMENTUM, SGD
from curvebench.optimizers.options import Option
from curvebench.optimizers.rule import LEARNING_RATE, Hyperparameter, ParameterRole, Part, Rule
from curvebench.spec.values import choice

OTHERS = {rule.name: rule for rule in (ADAMW, ADAM, MOMENTUM, SGD)}
OTHERS_LEARNING_RATE = 1e-3


def others_option(left: str) -> Option:
    """The choice of the rule of `left`, the leaves that are meant."""
    return Option("adamw", f"the rule of {left}: {', '.join(OTHERS)}", choice(*OTHERS))


def others_hyperparameters(other: Rule) -> dict[str, Hyperparameter]:
    """The other rule's hyperparameters as `others_<name>`, its learning rate with a default."""
    numbers = {f"others_{name}": spec for name, spec in other.hyperparameters.items()}
    return numbers | {"others_learning_rate": replace(LEARNING_RATE, default=OTHERS_LEARNING_RATE)}


def with_fallback(
    rule: Callable[[int], Rule], takes: Callable[[ParameterRole, int], bool], others: str
) -> Rule:
    """The rule of the leaves that it takes, by their order, and the rule named `others` for all else.

    Its hyperparameters are `rule`'s own and, as `others_<name>`, the other rule's, whose learning rate gets a
    default.

    Args:
        rule: `rule(order)`, for leaves of so many axes.
        takes: `takes(role, order)`: whether it is for such a leaf.
        others: a name of OTHERS.
    """
    other = OTHERS[others]
    names = {name: f"others_{name}" for name in other.hyperparameters}
    numbers = others_hyperparameters(other)
    rest, own = Part(other, names), cache(lambda order: Part(rule(order)))
    whole = rule(2)
    return replace(
        whole,
        hyperparameters={**whole.hyperparameters, **numbers},
        part=lambda role, shape: own(len(shape)) if takes(role, len(shape)) else rest,
    )
