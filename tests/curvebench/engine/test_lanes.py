"""Rules that are tried with lanes together and alone: every rule of the suite passes, none is left out."""

from __future__ import annotations

import dataclasses
import math

import pytest

from curvebench.engine.lanes import check_lanes
from curvebench.optimizers import rules
from curvebench.optimizers.gradient_descent import SGD
from curvebench.optimizers.rule import Hyperparameter
from curvebench.spec.errors import InputError


@pytest.mark.parametrize("name", rules())
def test_every_rule_has_lanes_of_their_own(name: str) -> None:
    check_lanes(rules()[name])


@pytest.mark.parametrize(
    ("low", "high"), [(0.0, 1.0), (3.0, math.inf), (-math.inf, -2.0), (-math.inf, math.inf)]
)
def test_what_has_no_default_has_a_legal_value(low: float, high: float) -> None:
    size = Hyperparameter("a size", None, low, high, low_open=True, high_open=True)
    check_lanes(dataclasses.replace(SGD, hyperparameters={**SGD.hyperparameters, "size": size}))


def test_a_state_that_mixes_lanes_shows_at_the_second_step() -> None:
    momentum = rules()["momentum"]

    def update(ops, grad, state, param, hyper):
        param, state = momentum.update(ops, grad, state, param, hyper)
        return param, state._replace(velocity=state.velocity / ops.norm(state.velocity))

    with pytest.raises(InputError, match="mixes lanes"):
        check_lanes(dataclasses.replace(momentum, update=update))
