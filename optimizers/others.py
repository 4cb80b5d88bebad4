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
from curvebench.optimizers.rule import Hyperparameter, ParameterRole, Part, Rule, positive
from curvebench.spec.values import choice

OTHERS = {rule.name: rule for rule in (ADAMW, ADAM, MOMENTUM, SGD)}
RATIO = "others_ratio"


def others_option(parameters: str) -> Option:
    """Return the option `others`, which chooses the fallback rule.

    Args:
        parameters: description of the parameters that the fallback rule updates.
    """
    return Option("adamw", f"the rule of {parameters}: {', '.join(OTHERS)}", choice(*OTHERS))


@cache
def fallback(others: str) -> Part:
    """Return a fallback rule as a part of an optimizer with the hyperparameters `others_hyperparameters`.

    Args:
        others: name of the fallback rule, a key of OTHERS.
    """
    rule = OTHERS[others]
    names = {name: f"others_{name}" for name in rule.hyperparameters if name != "learning_rate"}
    return Part(rule, names, RATIO)


def others_hyperparameters(part: Part) -> dict[str, Hyperparameter]:
    """Return the hyperparameters that an optimizer needs for its fallback rule.

    They are `others_ratio`, by which the learning rate is multiplied to get the rate of the fallback rule,
    and the other hyperparameters of the fallback rule under the names `others_<name>`.
    """
    ratio = positive("learning rate of the rule `others`, divided by `learning_rate`", 1.0)
    return {RATIO: ratio} | {full: part.rule.hyperparameters[name] for name, full in part.names.items()}


def with_fallback(
    rule: Callable[[int], Rule], takes: Callable[[ParameterRole, int], bool], others: str
) -> Rule:
    """Return a rule that updates some parameters by `rule`, and all other parameters by the fallback rule.

    The result has the hyperparameters of `rule`, and those of `others_hyperparameters`.

    Args:
        rule: `rule(order)`, the rule for parameters of `order` axes.
        takes: `takes(role, order)`, whether `rule` updates the parameters of this role with `order` axes.
        others: name of the fallback rule, a key of OTHERS.
    """
    other, part_of = fallback(others), cache(lambda order: Part(rule(order)))
    matrix_rule = rule(2)
    return replace(
        matrix_rule,
        hyperparameters={**matrix_rule.hyperparameters, **others_hyperparameters(other)},
        part=lambda role, shape: part_of(len(shape)) if takes(role, len(shape)) else other,
    )
