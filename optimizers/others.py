"""Fallback rules: a rule for matrices or spheres leaves all other parameters to a rule such as AdamW.

In names and options, "others" are the parameters that the main rule does not update.
"""

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


def others_option(parameters: str) -> Option:
    """Return the option `others`, which chooses the fallback rule.

    Args:
        parameters: description of the parameters that the fallback rule updates.
    """
    return Option("adamw", f"the rule of {parameters}: {', '.join(OTHERS)}", choice(*OTHERS))


def others_hyperparameters(other: Rule) -> dict[str, Hyperparameter]:
    """Return the hyperparameters of the fallback rule `other` under the names `others_<name>`.

    `others_learning_rate` gets a default.
    """
    numbers = {f"others_{name}": spec for name, spec in other.hyperparameters.items()}
    return numbers | {"others_learning_rate": replace(LEARNING_RATE, default=OTHERS_LEARNING_RATE)}


def with_fallback(
    rule: Callable[[int], Rule], takes: Callable[[ParameterRole, int], bool], others: str
) -> Rule:
    """Return a rule that updates some parameters by `rule`, and all other parameters by the fallback rule.

    The result has the hyperparameters of `rule`, and the hyperparameters of the fallback rule under the names
    `others_<name>`. `others_learning_rate` has a default.

    Args:
        rule: `rule(order)`, the rule for parameters of `order` axes.
        takes: `takes(role, order)`, whether `rule` updates the parameters of this role with `order` axes.
        others: name of the fallback rule, a key of OTHERS.
    """
    other = OTHERS[others]
    names = {name: f"others_{name}" for name in other.hyperparameters}
    numbers = others_hyperparameters(other)
    fallback, part_of = Part(other, names), cache(lambda order: Part(rule(order)))
    matrix_rule = rule(2)
    return replace(
        matrix_rule,
        hyperparameters={**matrix_rule.hyperparameters, **numbers},
        part=lambda role, shape: part_of(len(shape)) if takes(role, len(shape)) else fallback,
    )
