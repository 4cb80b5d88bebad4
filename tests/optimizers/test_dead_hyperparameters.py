"""Mutations of rules: each hyperparameter and each option is ignored in turn, and a test has to notice.

    python -m tests.optimizers.test_dead_hyperparameters

lists the mutations that no test notices. An ignored hyperparameter has its default at every step (twice the
tested value if there is no default), and an ignored option has its default. The tests are those against the
plain loops, on NumPy, of all entries of the rule in the battery, and the tests in `ELSEWHERE`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import pytest

from curvebench import interop
from curvebench.optimizers import rules
from curvebench.optimizers.options import Options
from curvebench.optimizers.rule import Rule
from curvebench.spec.errors import InputError
from curvebench.steps.update import Update
from tests.curvebench import test_precision
from tests.optimizers import (
    test_hessian_diagonal,
    test_kfac,
    test_lbfgs,
    test_momentum,
    test_rules,
    test_state_precision,
    test_symo,
)
from tests.optimizers.entry import HELD
from tests.optimizers.references import BATTERY

# Tests of what does not change a path under given gradients in float64, by option or hyperparameter.
ELSEWHERE: Mapping[str, Callable[[str], Any]] = {
    HELD: test_state_precision.test_a_path_is_that_of_state_rounded_between_steps,
    "fisher": test_kfac.test_the_option_fisher_chooses_the_statistics,
    "gradient": lambda _: test_momentum.test_a_gradient_is_taken_where_an_option_says(),
    "curvature": lambda _: test_lbfgs.test_a_path_on_rosenbrocks_function_is_that_of_the_plain_loop(),
    "memory": lambda _: test_lbfgs.test_a_path_on_rosenbrocks_function_is_that_of_the_plain_loop(),
    "sufficient_decrease": lambda _: (
        test_lbfgs.test_a_path_on_rosenbrocks_function_is_that_of_the_plain_loop()
    ),
    "newton_schulz_precision": lambda _: (
        test_precision.test_newton_schulz_in_half_precision_is_that_of_pytorchs_muon("torch")
    ),
    "probe": lambda _: test_hessian_diagonal.test_probes_have_the_distribution_of_their_name(),
    "spatial_averaging": lambda _: (
        test_hessian_diagonal.test_the_mean_over_a_filter_replaces_each_of_its_entries("torch")
    ),
    "precision": lambda _: test_symo.test_float32_is_refused_by_name_and_taken_where_asked_for(),
}


def without_option(rule: Rule, option: str) -> Rule:
    """Return the rule with an option that has its default, whatever is chosen.

    Hyperparameters that depend on the option are still accepted, and have no effect.
    """

    def build(chosen: Options) -> Rule:
        assert rule.build is not None
        built = rule.build({**chosen, option: rule.options[option].default})
        accepted = {**rule.build(chosen).hyperparameters, **built.hyperparameters}
        return replace(built, hyperparameters=accepted, build=build)

    return replace(rule, build=build)


@contextmanager
def mutated_option(name: str, option: str) -> Iterator[None]:
    """Let tests get the rule of this name without an option inside the block."""
    mutated = {**rules(), name: without_option(rules()[name], option)}
    with ExitStack() as stack:
        for module in (interop, test_hessian_diagonal, test_state_precision):
            stack.enter_context(mock.patch.object(module, "rules", return_value=mutated))
        yield


def mutated_number(name: str, number: float) -> AbstractContextManager[Any]:
    """Return a context in which a hyperparameter of this name always has the given value."""

    def fixed(function: Callable[..., Any]) -> Callable[..., Any]:
        def method(update: Update, *arguments: Any) -> Any:
            return function(update, *(with_number(argument) for argument in arguments))

        return method

    def with_number(argument: Any) -> Any:
        if not isinstance(argument, Mapping) or name not in argument:
            return argument
        return {**argument, name: np.full_like(argument[name], number)}

    return mock.patch.multiple(Update, apply=fixed(Update.apply), point=fixed(Update.point))


def mutations(name: str) -> Iterator[tuple[str, AbstractContextManager[Any], Callable[[], Any]]]:
    """Yield each mutation of a rule with each of its tests: its name, its context, and the test."""
    for label, entry in BATTERY.items():
        if entry.optimizer == name:
            path = partial(test_rules.test_path_is_that_of_a_plain_loop, label, "numpy", test_rules.SHAPES)
            for key, value in entry.hyper.items():
                default = entry.rule.hyperparameters[key].default
                yield key, mutated_number(key, 2 * value if default is None else default), path
            for option in entry.options:
                yield option, mutated_option(name, option), path
    rule = rules()[name]
    for key, test in ELSEWHERE.items():
        if key in rule.options:
            yield key, mutated_option(name, key), partial(test, name)
        elif key in rule.hyperparameters:
            number = rule.hyperparameters[key].default
            assert number is not None
            yield key, mutated_number(key, number), partial(test, name)


def survivors(name: str) -> set[str]:
    """Return the hyperparameters and options of a rule that no test notices if they are ignored."""
    noticed: dict[str, bool] = {}
    for mutation, context, test in mutations(name):
        if not noticed.get(mutation):
            with context:
                try:
                    test()
                    noticed[mutation] = False
                except (AssertionError, InputError, pytest.fail.Exception):
                    noticed[mutation] = True
    return {mutation for mutation, is_noticed in noticed.items() if not is_noticed}


@pytest.mark.parametrize("name", rules())
def test_no_rule_has_a_hyperparameter_or_option_that_no_test_notices(name: str) -> None:
    assert survivors(name) == set()


if __name__ == "__main__":
    found = [f"{name}: {mutation}" for name in rules() for mutation in sorted(survivors(name))]
    sys.stdout.write("\n".join([*found, f"{len(found)} survivors\n"]))
