"""Simulations of tests: how often they reject without an effect, and how often they find an effect."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from scipy.stats import gamma

from curvebench.reports.statistics.paired import sign_p_value
from curvebench.reports.statistics.selection import best_set
from tests.reports.statistics.simulated import (
    DIFFERENCES,
    LEVEL,
    SIZES,
    assert_between,
    assert_documented,
    assert_rare,
)

pytestmark = pytest.mark.long


@pytest.mark.parametrize("shape", DIFFERENCES)
def test_the_sign_test_of_no_effect(shape: str):
    """It is a test of the median, whatever the shape of differences."""
    random = np.random.default_rng(0)
    for size in SIZES:
        # the larger differences below the median, where the tests look for an effect
        differences = -DIFFERENCES[shape](random, (2000, size))
        assert_rare([sign_p_value(values) <= LEVEL for values in differences])


@pytest.mark.parametrize(
    ("deviations", "powers"), [(0.5, (0.147, 0.136, 0.376, 0.820)), (1.0, (0.420, 0.513, 0.918, 1.000))]
)
def test_power_of_the_sign_test(deviations: float, powers: tuple[float, ...]):
    random = np.random.default_rng(0)
    for size, power in zip(SIZES, powers, strict=True):
        differences = random.normal(-deviations, 1, (2000, size))
        assert_documented(power, [sign_p_value(values) <= LEVEL for values in differences])


def drawn_losses(random: np.random.Generator, shape: str, seeds: int, methods: int) -> np.ndarray:
    """Losses (seeds, methods) that share a problem instance by seed; no other method beats the first."""
    values = 0.3 * random.normal(size=(seeds, methods))
    if (
        shape == "skewed"
    ):  # The first method has a long tail of large losses, the other methods a long tail of small losses.
        values = 0.3 * (random.exponential(size=(seeds, methods)) - gamma(2).median() / 2)
        values[:, 1:] *= -1
    elif shape == "diverging":  # the first diverges on 45 % of seeds, and is the best on the rest
        values[:, 0] = values.min(axis=1) - 0.1
        values[random.random(seeds) < 0.45, 0] = np.inf
    return np.exp(random.normal(size=(seeds, 1)) + values)


def kept(losses: np.ndarray) -> list[bool]:
    """Whether each method may be the best."""
    seeds, methods = losses.shape
    names = [str(method) for method in range(methods)] * seeds
    frame = pl.DataFrame(
        {"seed": np.repeat(np.arange(seeds), methods), "method": names, "value": losses.ravel()}
    )
    return best_set(frame, "minimize", LEVEL)["kept"].to_list()


@pytest.mark.parametrize("shape", ["symmetric", "skewed", "diverging"])
@pytest.mark.parametrize("methods", [3, 6])
def test_the_best_method_is_not_lost(shape: str, methods: int):
    random = np.random.default_rng(0)
    beaten = np.diff(drawn_losses(random, shape, 100_000, 2)) < 0
    assert_between(0.44, beaten.ravel().tolist(), 0.5)
    for size in SIZES:
        assert_rare([not kept(drawn_losses(random, shape, size, methods))[0] for _ in range(400)])


@pytest.mark.parametrize(
    ("shape", "methods", "powers"),
    [
        ("symmetric", 3, (0.0, 0.839, 0.999, 1.0)),
        ("symmetric", 6, (0.0, 0.150, 0.985, 1.0)),
        ("skewed", 6, (0.0, 0.043, 0.880, 1.0)),
    ],
)
def test_a_method_with_half_the_loss_is_the_best_alone(shape: str, methods: int, powers: tuple[float, ...]):
    random, factors = np.random.default_rng(0), np.where(np.arange(methods) == 0, 0.5, 1.0)
    for size, power in zip(SIZES, powers, strict=True):
        studies = [factors * drawn_losses(random, shape, size, methods) for _ in range(300)]
        assert_documented(power, [sum(kept(losses)) == 1 for losses in studies])
