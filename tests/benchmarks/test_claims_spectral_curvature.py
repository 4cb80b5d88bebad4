"""Spectral-factorized curvature: distances, limits and losses by hand, and that wrong steps are noticed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from benchmarks.claims import spectral_curvature
from benchmarks.claims._curvature_paths import (
    CHOLESKY,
    DEFAULT,
    KRONECKER_CHOLESKY,
    PROJECTION,
    RETRACTION,
    STARTS,
    WHOLE,
    distinct,
    geometric,
    gradients_of,
    identity,
    kronecker_spectral,
    likeliest_product,
    matrix_of,
    nearest_product,
    off_product,
    path,
    product,
    relative_frobenius,
    relative_wasserstein,
    spectral,
    spectral_of_curvature,
    spread_matrix,
)
from benchmarks.claims._matrices import power
from benchmarks.claims.spectral_curvature import (
    FULL_FIXED_POINT,
    FULL_ITERATE,
    KRONECKER,
    LOG_DET,
    METRIC_NEARNESS,
    log_det,
    log_det_gradient,
    nearness,
    nearness_gradient,
)
from harness.checks import PropertyClaim
from optimizers.matrix_functions import SpectralMaps, curvature_steps, spectral_steps
from tests.benchmarks.claim_mutations import assert_noticed, failing, few, found_rows, wrap

MAPS = SpectralMaps()
PRINTED, CORRECTED = "as printed", "as corrected"


def parts_of(claim: PropertyClaim, start: str = "") -> set[str]:
    return {check.part for check in claim.checks if check.part.startswith(start)}


FIXED_POINTS = parts_of(FULL_FIXED_POINT)
ORDERS_OF_STEPS = parts_of(FULL_ITERATE, "order after 10 steps")
ORDERS_OF_STEPS_DISTINCT = parts_of(FULL_ITERATE, "order after 10 steps, S_0 distinct")
ORDERS_OF_STEPS_IDENTITY = parts_of(FULL_ITERATE, "order after 10 steps, S_0 the identity")
ORDERS_OF_TIME = parts_of(FULL_ITERATE, "order after a time")
NEAR = parts_of(FULL_ITERATE, "near")
PRODUCTS = parts_of(KRONECKER)
NEARNESSES = parts_of(METRIC_NEARNESS)
LOG_DETERMINANTS = parts_of(LOG_DET)


# --- draws and distances -------------------------------------------------------------------------


def test_covariances_have_their_condition_and_starts_their_product():
    random = np.random.default_rng(0)
    drawn = spread_matrix(random, 6, 100.0)
    np.testing.assert_allclose(np.linalg.eigvalsh(drawn), geometric(6, 100.0), rtol=1e-12)
    assert np.linalg.det(drawn) == pytest.approx(1)
    for start in STARTS.values():
        assert np.linalg.det(matrix_of(start(random, 5))) == pytest.approx(1)


def test_neighbours_of_a_distinct_start_are_not_tied_at_paper_scale():
    for size in (100, 60, 11, 9):
        values = distinct(np.random.default_rng(0), size).values
        assert np.diff(values).min() > 0
        assert (1 - values[:-1] / values[1:]).min() > spectral_curvature.TIED


def test_gradients_have_their_covariance():
    random = np.random.default_rng(0)
    covariance = spread_matrix(random, 3, 10.0)
    drawn = gradients_of(random, covariance, 100_000)
    np.testing.assert_allclose(drawn.T @ drawn / 100_000, covariance, atol=0.05)


def test_the_wasserstein_distance_is_that_of_the_formula():
    random = np.random.default_rng(0)
    one, other = (spread_matrix(random, 5, condition) for condition in (10.0, 30.0))
    root = power(one, 0.5)
    square = np.trace(one) + np.trace(other) - 2 * np.trace(power(root @ other @ root, 0.5))
    found = relative_wasserstein(one, other)
    assert float(found) == pytest.approx(np.sqrt(square / np.trace(other)), rel=1e-10)
    assert float(relative_wasserstein(np.zeros((2, 2)) - 1, np.eye(2))) == np.inf


def test_the_wasserstein_distance_of_near_matrices_does_not_cancel():
    random = np.random.default_rng(0)
    one = spread_matrix(random, 5, 10.0)
    near, nearer = (float(relative_wasserstein(one * (1 + step), one)) for step in (1e-6, 1e-10))
    assert near == pytest.approx(5e-7, rel=1e-6)
    assert nearer == pytest.approx(5e-11, rel=1e-3)


def test_relative_frobenius_by_hand():
    found = relative_frobenius(np.array([np.eye(2), 3 * np.eye(2)]), 2 * np.eye(2))
    np.testing.assert_allclose(found, [0.5, 0.5])


# --- products ------------------------------------------------------------------------------------


def test_the_limits_of_a_product_are_the_product():
    random = np.random.default_rng(0)
    whole = np.kron(spread_matrix(random, 2, 10.0), spread_matrix(random, 3, 10.0))
    for limit in (nearest_product, likeliest_product):
        np.testing.assert_allclose(np.kron(*limit(whole, (2, 3))), whole, rtol=1e-10, atol=1e-10)


def test_limits_differ_off_a_product_and_none_near_them_is_better():
    random = np.random.default_rng(0)
    whole = np.kron(spread_matrix(random, 2, 10.0), spread_matrix(random, 3, 10.0))
    covariance = off_product(random, whole, (2, 3), 0.3)
    nearest, likeliest = nearest_product(covariance, (2, 3)), likeliest_product(covariance, (2, 3))
    assert float(relative_frobenius(np.kron(*nearest), covariance)) == pytest.approx(0.3, abs=1e-6)
    assert float(relative_frobenius(np.kron(*nearest), np.kron(*likeliest))) > 0.01

    def likelihood(given: np.ndarray) -> float:
        return float(np.linalg.slogdet(given)[1] + np.trace(np.linalg.solve(given, covariance)))

    def distance(given: np.ndarray) -> float:
        return float(np.linalg.norm(given - covariance))

    for limit, badness in ((likeliest, likelihood), (nearest, distance)):
        least = badness(np.kron(*limit))
        for _ in range(20):
            factors = []
            for factor in limit:
                change = 1e-3 * random.standard_normal(factor.shape)
                factors.append(factor + change + change.T)
            assert badness(np.kron(*factors)) > least


def test_products_are_those_of_numpy():
    random = np.random.default_rng(0)
    one, other = random.standard_normal((4, 2, 2)), random.standard_normal((4, 3, 3))
    np.testing.assert_array_equal(product((one, other))[2], np.kron(one[2], other[2]))


# --- methods -------------------------------------------------------------------------------------


def gap_of(method: object, baseline: object, start: object, given: object, rate: float) -> float:
    found, other = (path(one, start, given, rate, [len(given)])[0] for one in (method, baseline))
    return float(np.linalg.norm(found - other))


def test_all_methods_take_the_default_step_to_first_order():
    random = np.random.default_rng(0)
    begun, gradients = distinct(random, 4), random.standard_normal((3, 4))
    for method in (CHOLESKY, spectral(MAPS)):
        gaps = [gap_of(method, DEFAULT, begun, gradients, rate) for rate in (1e-4, 1e-5)]
        assert gaps[0] / gaps[1] == pytest.approx(100, rel=0.02)


def test_all_structured_methods_begin_with_the_whole_and_take_one_step_to_first_order():
    random = np.random.default_rng(0)
    begun, gradients = (distinct(random, 2), distinct(random, 3)), random.standard_normal((1, 2, 3))
    assert gap_of(PROJECTION, WHOLE, begun, gradients, 1e-12) < 1e-10
    gaps = [gap_of(KRONECKER_CHOLESKY, kronecker_spectral(MAPS), begun, gradients, r) for r in (1e-4, 1e-5)]
    assert gaps[0] / gaps[1] == pytest.approx(100, rel=0.02)


def test_along_curvatures_the_spectral_step_is_the_retraction_to_first_order():
    random = np.random.default_rng(0)
    begun, q = distinct(random, 4), spread_matrix(random, 4, 10.0)
    given = [lambda s: -2 * s @ log_det_gradient(q, s, np.empty(0)) @ s] * 3
    gaps = [gap_of(spectral_of_curvature(MAPS), RETRACTION, begun, given, rate) for rate in (1e-4, 1e-5)]
    assert gaps[0] / gaps[1] == pytest.approx(100, rel=0.02)


def test_a_path_holds_the_matrices_after_its_checkpoints():
    gradients = np.ones((3, 2))
    found = path(DEFAULT, identity(np.random.default_rng(0), 2), gradients, 0.5, [1, 3])
    np.testing.assert_allclose(found[:, 0, 0], [1, 1])
    np.testing.assert_allclose(found[:, 0, 1], [0.5, 0.875])


# --- losses --------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["nearness", "log_det"])
def test_losses_are_least_at_the_inverse_and_have_their_gradients(loss: str):
    random = np.random.default_rng(0)
    q, s = spread_matrix(random, 4, 10.0), spread_matrix(random, 4, 10.0)
    inputs = np.eye(4) * 2  # four points whose second moment is I
    value, gradient = {"nearness": (nearness, nearness_gradient), "log_det": (log_det, log_det_gradient)}[loss]
    assert float(value(q, np.linalg.inv(q))) == pytest.approx(0, abs=1e-12)
    assert float(value(q, s)) > 0
    change = random.standard_normal((4, 4))
    change = change + change.T
    difference = (float(value(q, s + 1e-6 * change)) - float(value(q, s - 1e-6 * change))) / 2e-6
    assert float(np.sum(gradient(q, s, inputs) * change)) == pytest.approx(difference, rel=1e-6)


def test_what_diverged_has_an_infinite_loss():
    found = log_det(np.eye(2), np.array([np.eye(2), np.full((2, 2), np.nan)]))
    assert found.tolist() == [0.0, np.inf]


# --- the checks ----------------------------------------------------------------------------------


def no_rotation(right: Callable[..., np.ndarray], *given: object) -> np.ndarray:
    return 0 * right(*given)


def half_a_rotation(right: Callable[..., np.ndarray], *given: object) -> np.ndarray:
    return right(*given) / 2


def backwards(right: Callable[..., np.ndarray], *given: object) -> np.ndarray:
    return -right(*given)


def worst(claim: PropertyClaim) -> dict[tuple[str, str], float]:
    """The greatest value that must be small, by part and variant."""
    found: dict[tuple[str, str], float] = {}
    for row in found_rows(claim):
        key = row.part, row.variant
        found[key] = max(found.get(key, 0.0), row.measure.value)
    return found


def assert_worse(
    monkeypatch: pytest.MonkeyPatch, claim: PropertyClaim, wrong: Callable[..., np.ndarray], times: float
) -> None:
    """Each part misses with a wrong rotation, and by so much more than with the right one."""
    right = worst(claim)
    wrap(monkeypatch, spectral_steps, "rotation_generator", wrong)
    found = worst(claim)
    assert {key for key, value in found.items() if not value > times * right[key]} == set()
    assert failing(claim) == {*right}


def as_fast_as(monkeypatch: pytest.MonkeyPatch, method: object) -> None:
    """Let the scheme be a baseline."""
    monkeypatch.setattr(spectral_curvature, "spectral", lambda maps: method)
    monkeypatch.setattr(spectral_curvature, "spectral_of_curvature", lambda maps: method)
    monkeypatch.setattr(spectral_curvature, "kronecker_spectral", lambda maps: method)
