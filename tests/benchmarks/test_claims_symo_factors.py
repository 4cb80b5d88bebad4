"""Factors that single networks estimate: gradients and formulas by hand, and that wrong ones are noticed."""

from __future__ import annotations

import numpy as np
import pytest

from curvebench.benchmarks.claims import symo_factors
from curvebench.benchmarks.claims.symo_factors import (
    BETAS,
    ESTIMATES,
    MOMENTUM,
    Amount,
    Data,
    correlation,
    correlations,
    data_of,
    factors,
    gradients,
    pairwise,
    training,
    without_noise,
)
from curvebench.property_checks.checks import Series, Trace, part_results
from tests.benchmarks.claim_mutations import assert_noticed, failing, few, wrap

NARROW = {f"{name} at width 10" for name in ("Φ₁", "Ψ₁", "Φ₂")}
LEVEL = "without momentum correlations are about 0.5"
RAISED = "momentum raises them to about 0.7"
AT_WIDTHS = {
    f"{name} at width {width:,}" for name in ("Φ₁", "Ψ₁", "Φ₂") for width in (10, 100, 1_000, 10_000)
}
WITH_WIDTH = {f"{name} rises with the width" for name in ("Φ₁", "Ψ₁", "Φ₂")}
BACK = "after about 10 timescales of momentum they are back at about 0.5"


def network(seed: int, *lead: int, d0: int = 5, d1: int = 4, d2: int = 3) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return random.normal(size=(*lead, d1, d0)), random.normal(size=(*lead, d2, d1))


def data(seed: int, points: int = 7) -> Data:
    random = np.random.default_rng(seed)
    return Data(random.normal(size=(points, 5)), random.normal(size=(points, 3)))


# --- gradients and factors ----------------------------------------------------------------------------------


def loss(given: Data, w1: np.ndarray, w2: np.ndarray) -> float:
    residuals = np.tanh(given.inputs @ w1.T) @ w2.T - given.targets
    return float(np.mean(np.sum(residuals**2, 1)) / 2)


@pytest.mark.parametrize("entries", [1, 1 << 22])
def test_gradients_are_central_differences_of_the_loss(monkeypatch, entries):
    monkeypatch.setattr(symo_factors, "ENTRIES", entries)  # point after point, or all at once
    given, weights = data(0), network(1)
    found = gradients(given, *weights)
    for place, weight in enumerate(weights):
        for index in np.ndindex(weight.shape):
            sides = []
            for step in (1e-6, -1e-6):
                moved = [one.copy() for one in weights]
                moved[place][index] += step
                sides.append(loss(given, *moved))
            assert found[place][index] == pytest.approx((sides[0] - sides[1]) / 2e-6, rel=1e-6, abs=1e-9)


def test_several_networks_have_their_own_gradients():
    given, (w1, w2) = data(0), network(1, 6)
    together = gradients(given, w1, w2)
    for number in range(6):
        for both, alone in zip(together, gradients(given, w1[number], w2[number]), strict=True):
            np.testing.assert_allclose(both[number], alone, rtol=1e-12)


def test_factors_are_the_sums_over_hidden_units_of_equations_37_to_39():
    first, second = network(2)
    phi1, psi1, phi2 = np.zeros((5, 5)), np.zeros((5, 3)), np.zeros((3, 3))
    for i in range(4):
        phi1 += np.outer(first[i], first[i]) / 4
        psi1 += np.outer(first[i], second[:, i]) / 4
        phi2 += np.outer(second[:, i], second[:, i]) / 4
    for found, wanted in zip(factors(first, second), (phi1, psi1, phi2), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_the_data_are_those_of_the_workload():
    given = data_of(np.random.default_rng(0), (8, 6, 3), 4000)
    assert (given.inputs.shape, given.targets.shape) == ((4000, 8), (4000, 3))
    values = np.linalg.eigvalsh(given.inputs.T.astype(float) @ given.inputs / 4000)[::-1]
    np.testing.assert_allclose(values, np.geomspace(1, 1e-5, 8), rtol=0.1)


# --- correlations -------------------------------------------------------------------------------------------


def test_correlations_by_hand():
    assert correlation(
        np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[2.0, 4.0], [6.0, 8.0]])
    ) == pytest.approx(1)
    vectors = np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [3.0, 2.0, 1.0]])
    assert pairwise(vectors) == pytest.approx((1 - 1 - 1) / 3)


@pytest.mark.parametrize(("rho", "count"), [(0.3, 4), (0.6, 4), (0.6, 100), (-0.5, 10)])
def test_the_noise_of_the_mean_is_taken_out(rho, count):
    seen = rho / np.sqrt(1 + (1 / rho**2 - 1) / count)
    assert abs(seen) < abs(rho)
    assert float(without_noise(np.array(seen), count)) == pytest.approx(rho)


def test_the_noise_of_a_mean_of_vectors_is_taken_out():
    """Vectors that are a common one plus noise, of which the mean of four is taken."""
    random = np.random.default_rng(0)
    common, noise = random.normal(size=20_000), random.normal(size=(5, 20_000))
    one, mean = common + 1.5 * noise[0], common + 1.5 * noise[1:].mean(0)
    found = float(without_noise(np.array(correlation(one, mean)), 4))
    assert found == pytest.approx(1 / np.sqrt(1 + 1.5**2), abs=0.02)


def test_more_reference_networks_leave_the_correlation_where_it_is():
    few_networks, many = (
        correlations(np.random.default_rng(seed), 10, Amount(500, count, 60)).mean(0)
        for seed, count in ((0, 10), (0, 300))
    )
    np.testing.assert_allclose(few_networks, many, atol=0.08)


# --- the checks ---------------------------------------------------------------------------------------------


def test_narrow_networks_are_as_printed():
    assert not failing(few(ESTIMATES, 1, NARROW))


def test_factors_of_one_hidden_unit_are_noticed(monkeypatch):
    wrap(monkeypatch, symo_factors, "factors", lambda right, first, second: right(first[:1], second[:, :1]))
    assert_noticed(ESTIMATES, 1, *NARROW)


def test_gradients_of_different_hidden_units_are_noticed(monkeypatch):
    def wrong(right, first, second):
        return right(first, np.roll(second, 1, axis=-1))

    wrap(monkeypatch, symo_factors, "factors", wrong)
    assert_noticed(ESTIMATES, 1, "Ψ₁ at width 10")
    assert not failing(few(ESTIMATES, 1, {"Φ₁ at width 10", "Φ₂ at width 10"}))


def test_estimates_that_do_not_rise_with_the_width_are_noticed(monkeypatch):
    monkeypatch.setattr(
        symo_factors, "correlations", lambda random, width, sample: np.full((2, 3), 1 / width)
    )
    assert_noticed(ESTIMATES, 1, *WITH_WIDTH)


def test_estimates_that_correlate_with_nothing_are_noticed_at_every_width(monkeypatch):
    monkeypatch.setattr(symo_factors, "correlations", lambda random, width, sample: np.zeros((2, 3)))
    assert_noticed(ESTIMATES, 1, *AT_WIDTHS)


def drop(level: float, raised: float, times: float):
    """Correlations that momentum raises for so many of its timescales."""

    def fake(random, points, steps, betas):
        ends = [round(times / (1 - beta)) if beta else 0 for beta in betas]
        return np.array([np.where(np.arange(1, steps + 1) < end, raised, level) for end in ends])

    return fake


def test_what_the_figure_says_of_momentum_holds_and_all_else_is_noticed(monkeypatch):
    monkeypatch.setattr(symo_factors, "training", drop(0.5, 0.7, 10))
    assert not failing(few(MOMENTUM, 1))
    for level, raised, times, parts in (
        (0.65, 0.78, 10, {LEVEL, BACK}),
        (0.5, 0.55, 10, {RAISED, BACK}),
        (0.5, 0.9, 10, {RAISED}),
        (0.5, 0.7, 3, {BACK}),
        (0.5, 0.7, 25, {BACK}),
    ):
        monkeypatch.setattr(symo_factors, "training", drop(level, raised, times))
        assert {part for part, _ in failing(few(MOMENTUM, 1))} == parts


def test_training_is_gradient_descent_and_momentum_a_running_mean():
    random = np.random.default_rng(0)
    found = training(random, 50, 3, (0.0, 0.5))
    random = np.random.default_rng(0)
    given = data_of(random, symo_factors.WIDTHS, 50)
    students = [symo_factors._weights(random, symo_factors.WIDTHS) for _ in range(10)]
    means = [np.zeros(15_600) for _ in students]
    for step in range(3):
        vectors = []
        for student in students:
            first, second = gradients(given, student["W1"], student["W2"])
            parts = [first.T @ first, first.T @ second.T, second @ second.T]
            vectors.append(np.concatenate([part.ravel() for part in parts]))
            student["W1"], student["W2"] = student["W1"] - 0.8 * first, student["W2"] - 0.8 * second
        means = [(mean + vector) / 2 for mean, vector in zip(means, vectors, strict=True)]
        for row, seen in ((0, vectors), (1, means)):
            assert found[row, step] == pytest.approx(pairwise(np.array(seen)), rel=1e-4)


def test_momentum_of_zero_raises_nothing(monkeypatch):
    """The greatest correlation of a run without is 0.7 too, and above the mean of that run."""
    monkeypatch.setattr(symo_factors, "OWN_BETA", 0.0)
    assert RAISED in {part for part, _ in failing(few(MOMENTUM, 1, {RAISED}))}


def test_students_that_start_alike_are_noticed(monkeypatch):
    drawn = symo_factors._weights(np.random.default_rng(0), symo_factors.WIDTHS)
    monkeypatch.setattr(symo_factors, "_weights", lambda random, widths: drawn)
    monkeypatch.setattr(symo_factors, "pairwise", lambda vectors: 1.0)  # numbers of variance 0 have none
    assert_noticed(MOMENTUM, 1, LEVEL, RAISED, BACK)


def test_the_figure_has_a_line_for_each_momentum(monkeypatch):
    monkeypatch.setattr(symo_factors, "training", drop(0.5, 0.7, 10))
    (check,) = few(MOMENTUM, 1, {BACK}).checks
    drawn = [each.series for each in part_results(MOMENTUM.id, check, "quick") if isinstance(each, Trace)]
    assert [one.label for one in drawn] == [f"β_h = {beta:g}" for beta in BETAS]
    assert {type(one) for one in drawn} == {Series}
    assert {len(one.x) for one in drawn} == {220}
