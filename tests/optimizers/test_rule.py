"""Rules and hyperparameters: what is valid, and what the errors say."""

from __future__ import annotations

import math

import numpy as np
import pytest

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.optimizers import HyperparameterError, rules
from curvebench.optimizers.arrays import safe_divide
from curvebench.optimizers.rule import Hyperparameter


@pytest.mark.parametrize("optimizer", rules())
@pytest.mark.parametrize(
    ("given", "parts"),
    [
        ({}, ["needs 'learning_rate'", "no default"]),
        ({"learning_rate": 0.0}, ["learning_rate = 0.0", "(0, inf)"]),
        ({"learning_rate": -0.1}, ["learning_rate = -0.1", "(0, inf)"]),
        ({"learning_rate": math.nan}, ["learning_rate = nan", "(0, inf)"]),
        ({"learning_rate": math.inf}, ["learning_rate = inf", "(0, inf)"]),
        ({"learning_rate": "1e-3"}, ["learning_rate = '1e-3'", "not a number"]),
        ({"learning_rate": True}, ["learning_rate = True", "not a number"]),
        ({"learning_rat": 0.1}, ["'learning_rat'", "did you mean 'learning_rate'?", "(valid: learning_rate"]),
        ({"learning_rate": 0.1, "beta9": 0.1}, ["no hyperparameter 'beta9'", "(valid: learning_rate"]),
        ({"learning_rate": 0.1, 3: 0.1}, ["no hyperparameter 3", "(valid: learning_rate"]),
    ],
)
def test_wrong_hyperparameters_are_refused(optimizer: str, given: dict[str, float], parts: list[str]) -> None:
    with pytest.raises(HyperparameterError) as caught:
        rules()[optimizer].complete(given)
    for part in [optimizer, *parts]:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("bounds", "value", "legal"),
    [
        ({"low": 0.0}, 0.0, True),
        ({"low": 0.0, "low_open": True}, 0.0, False),
        ({"high": 1.0}, 1.0, True),
        ({"high": 1.0, "high_open": True}, 1.0, False),
        ({}, math.inf, False),
        ({}, -1e300, True),
    ],
)
def test_intervals(bounds: dict[str, float], value: float, legal: bool) -> None:
    read = Hyperparameter("x", **bounds).read
    if legal:
        assert read(value) == value
    else:
        with pytest.raises(ValueError, match=r"is outside [\[(]"):
            read(value)


def test_safe_divide_is_the_pseudo_inverse_of_a_diagonal() -> None:
    for dtype in ("float32", "float64"):
        numerator = np.array([[6.0, 0.0, 5.0], [1.0, -2.0, 0.0]], dtype)
        denominator = np.array([[3.0, 0.0, 0.0], [4.0, -1.0, 7.0]], dtype)
        quotient = safe_divide(numpy_ops(dtype), numerator, denominator)
        np.testing.assert_array_equal(quotient, [[2.0, 0.0, 0.0], [0.25, 2.0, 0.0]])
        assert quotient.dtype == dtype


def test_an_option_is_no_hyperparameter() -> None:
    with pytest.raises(HyperparameterError, match="kfac: 'fisher' is an option; give it with the options"):
        rules()["kfac"].complete({"learning_rate": 0.1, "fisher": 1.0})
