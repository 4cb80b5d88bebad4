"""The leaves that a rule of matrices or of spheres leaves to another rule, and its hyperparameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from optimizers.adam import ADAM, ADAMW
from optimizers.gradient_descent import MOMENTUM, SGD
from optimizers.options import Option, choice
from optimizers.rule import LEARNING_RATE, Part, Rule

OTHERS = {rule.name: rule for rule in (ADAMW, ADAM, MOMENTUM, SGD)}
OTHERS_LEARNING_RATE = 1e-3


def others_option(left: str) -> Option:
    """The choice of the rule of `left`, the leaves that are meant."""
    return Option("adamw", f"the rule of {left}: {', '.join(OTHERS)}", choice(*OTHERS))


def beside_others(rule: Rule, part: Callable[[str, tuple[int, ...]], Part | None], others: str) -> Rule:
    """The rule with `part` for the leaves that have one and the rule named `others` for all else.

    Its hyperparameters are `rule`'s own and, as `others_<name>`, the other rule's, whose learning rate gets a
    default.
    """
    other = OTHERS[others]
    names = {name: f"others_{name}" for name in other.hyperparameters}
    numbers = {names[name]: spec for name, spec in other.hyperparameters.items()}
    numbers["others_learning_rate"] = replace(LEARNING_RATE, default=OTHERS_LEARNING_RATE)
    rest = Part(other, names)
    return replace(
        rule,
        hyperparameters={**rule.hyperparameters, **numbers},
        part=lambda kind, shape: part(kind, shape) or rest,
    )
