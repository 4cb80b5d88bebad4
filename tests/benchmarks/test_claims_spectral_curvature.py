"""Spectral-factorized curvature: distances, limits and losses by hand, and that wrong steps are noticed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from curvebench.benchmarks.claims import spectral_curvature
from curvebench.benchmarks.claims._curvature_paths import (
    CHOLESKY,
    DEFAULT,
    KRONECKER_CHOLESKY,
    PROJECTION,
    RETRACTION,
    STARTS,
    WHOLE,
    CurvatureMethod,
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
from curvebench.benchmarks.claims._matrices import power
from curvebench.benchmarks.claims.spectral_curvature import (
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
from curvebench.optimizers.matrix_functions import SpectralMaps, spectral_steps
from curvebench.property_checks.checks import PropertyClaim, Trace, part_results
from tests.benchmarks.claim_mutations import assert_noticed, failing, few, found_rows, wrap

MAPS = SpectralMaps()
Loss = Callable[..., np.ndarray]


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


def gap_of(method: CurvatureMethod, baseline: CurvatureMethod, start: Any, given: Any, rate: float) -> float:
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


@pytest.mark.parametrize(
    ("value", "gradient"),
    [(nearness, nearness_gradient), (log_det, log_det_gradient)],
    ids=["nearness", "log-det"],
)
def test_losses_are_least_at_the_inverse_and_have_their_gradients(value: Loss, gradient: Loss):
    random = np.random.default_rng(0)
    q, s = spread_matrix(random, 4, 10.0), spread_matrix(random, 4, 10.0)
    inputs = np.eye(4) * 2  # four points whose second moment is I
    assert float(value(q, np.linalg.inv(q))) == pytest.approx(0, abs=1e-12)
    assert float(value(q, s)) > 0
    change = random.standard_normal((4, 4))
    change = change + change.T
    difference = (float(value(q, s + 1e-6 * change)) - float(value(q, s - 1e-6 * change))) / 2e-6
    assert float(np.sum(gradient(q, s, inputs) * change)) == pytest.approx(difference, rel=1e-6)


def test_what_diverged_has_an_infinite_loss():
    found = log_det(np.eye(2), np.array([np.eye(2), np.full((2, 2), np.nan)]))
    assert found.tolist() == [0.0, np.inf]


def test_a_ratio_to_what_diverged_is_0_and_of_it_infinite():
    found = spectral_curvature._ratios(
        np.array([1.0, np.nan, np.inf, 1.0]), np.array([2.0, 1.0, np.nan, np.nan])
    )
    assert found.tolist() == [0.5, np.inf, np.inf, 0.0]


# --- the checks ----------------------------------------------------------------------------------


def no_rotation(right: Callable[..., np.ndarray], *given: object) -> np.ndarray:
    return 0 * right(*given)


def half_a_rotation(right: Callable[..., np.ndarray], *given: object) -> np.ndarray:
    return right(*given) / 2


def backwards(right: Callable[..., np.ndarray], *given: object) -> np.ndarray:
    return -right(*given)


def tripled(method: CurvatureMethod) -> CurvatureMethod:
    return method._replace(matrix=lambda state: 3 * method.matrix(state))


def keys(claim: PropertyClaim) -> set[tuple[str, str]]:
    return {(check.part, check.variant) for check in claim.checks}


def assert_worse(monkeypatch: pytest.MonkeyPatch, claim: PropertyClaim) -> None:
    """Bases that turn the wrong way take every part beyond its limits, and far from where it was."""
    right = found_rows(claim)
    wrap(monkeypatch, spectral_steps, "rotation_generator", backwards)
    wrong = found_rows(claim)
    for key in keys(claim):
        before, after = (
            [row.measure for row in rows if (row.part, row.variant) == key] for rows in (right, wrong)
        )
        assert not all(measure.holds for measure in after)
        assert max(measure.value for measure in after) > 1.5 * max(measure.value for measure in before)


def scheme_is(monkeypatch: pytest.MonkeyPatch, method: CurvatureMethod) -> None:
    for name in ("spectral", "spectral_of_curvature", "kronecker_spectral"):
        monkeypatch.setattr(spectral_curvature, name, lambda maps: method)


def test_a_scheme_that_is_the_default_update_is_as_fast_as_it_and_a_wrong_scale_is_noticed(monkeypatch):
    claim = few(FULL_FIXED_POINT, 1, FIXED_POINTS)
    monkeypatch.setattr(spectral_curvature, "CHOLESKY", DEFAULT)  # which is slower than Cholesky
    scheme_is(monkeypatch, DEFAULT)
    assert failing(claim) == set()
    scheme_is(monkeypatch, tripled(DEFAULT))
    assert failing(claim) == keys(claim)


def test_a_scheme_that_is_the_default_update_is_near_it_and_a_wrong_scale_is_noticed(monkeypatch):
    claim = few(FULL_ITERATE, 1, NEAR)
    scheme_is(monkeypatch, DEFAULT)
    assert failing(claim) == set()
    scheme_is(monkeypatch, tripled(DEFAULT))
    assert failing(claim) == keys(claim)


def test_a_scheme_that_is_structured_cholesky_is_as_fast_as_it_and_a_wrong_scale_is_noticed(monkeypatch):
    claim = few(KRONECKER, 1, PRODUCTS)
    monkeypatch.setattr(spectral_curvature, "STRUCTURED", {"Cholesky": KRONECKER_CHOLESKY})
    scheme_is(monkeypatch, KRONECKER_CHOLESKY)
    assert failing(claim) == set()
    scheme_is(monkeypatch, tripled(KRONECKER_CHOLESKY))
    assert failing(claim) == keys(claim)


@pytest.mark.parametrize(
    ("claim", "parts"),
    [(FULL_FIXED_POINT, FIXED_POINTS), (FULL_ITERATE, NEAR), (KRONECKER, PRODUCTS)],
    ids=["fixed points", "near", "products"],
)
def test_bases_that_turn_backwards_are_noticed(monkeypatch, claim: PropertyClaim, parts: set[str]):
    """At the least rate, where noise is least too."""
    assert_worse(monkeypatch, few(claim, 1, {part for part in parts if "0.2 / n" in part}))


@pytest.mark.parametrize("wrong", [no_rotation, half_a_rotation, backwards])
def test_a_rotation_that_is_wrong_to_first_order_is_noticed(monkeypatch, wrong):
    claim = few(FULL_ITERATE, 1, ORDERS_OF_STEPS)
    assert failing(claim) == set()
    wrap(monkeypatch, spectral_steps, "rotation_generator", wrong)
    assert failing(claim) == keys(few(claim, 1, ORDERS_OF_STEPS_DISTINCT))


def test_a_scheme_that_needs_no_distinct_values_is_noticed(monkeypatch):
    scheme_is(monkeypatch, CHOLESKY)
    assert_noticed(FULL_ITERATE, 1, *ORDERS_OF_STEPS_IDENTITY)


@pytest.mark.parametrize("wrong", [no_rotation, backwards])
def test_an_order_of_0_after_a_time_is_noticed(monkeypatch, wrong):
    wrap(monkeypatch, spectral_steps, "rotation_generator", wrong)
    assert_noticed(FULL_ITERATE, 1, *ORDERS_OF_TIME)


def test_an_order_of_1_after_a_time_is_seen(monkeypatch):
    scheme_is(monkeypatch, CHOLESKY)
    assert failing(few(FULL_ITERATE, 1, ORDERS_OF_TIME)) == set()


def test_bases_that_are_not_turned_are_noticed_on_matrix_losses(monkeypatch):
    wrap(monkeypatch, spectral_steps, "rotation_generator", no_rotation)
    assert_noticed(METRIC_NEARNESS, 1, *NEARNESSES)
    assert_noticed(LOG_DET, 1, *LOG_DETERMINANTS)


@pytest.mark.parametrize(
    ("claim", "part"),
    [
        (METRIC_NEARNESS, "S_0 distinct, condition 10, beta_2 = 0.001"),
        (LOG_DET, "S_0 distinct, condition 10, beta_2 = 0.01"),
    ],
    ids=["metric nearness", "log-det"],
)
def test_a_scheme_that_is_a_baseline_matches_it_and_a_slower_one_is_noticed(monkeypatch, claim, part):
    scheme_is(monkeypatch, RETRACTION)
    assert failing(few(claim, 1, {part})) == set()
    scheme_is(monkeypatch, RETRACTION._replace(step=lambda state, given, rate: state))
    assert_noticed(claim, 1, part)


def test_a_baseline_that_learns_nothing_is_noticed(monkeypatch):
    """Else anything could match it."""
    frozen = RETRACTION._replace(step=lambda state, given, rate: state)
    scheme_is(monkeypatch, frozen)
    for name in ("RETRACTION", "CHOLESKY_OF_CURVATURE"):
        monkeypatch.setattr(spectral_curvature, name, frozen)
    assert_noticed(LOG_DET, 1, "S_0 distinct, condition 10, beta_2 = 0.01")


def test_figures_have_a_line_for_each_method():
    spectral_lines = {"spectral, exact", "spectral, first_order"}
    for claim, figure, baselines in (
        (FULL_FIXED_POINT, "003 Fig. 7, fixed point", {"default update", "Cholesky"}),
        (KRONECKER, "003 Fig. 8, iterates", {"Cholesky", "Cholesky, scale twice", "projection"}),
    ):
        check = next(check for check in few(claim, 1).checks if "0.2 / n" in check.part)
        drawn = [each.series for each in part_results(claim.id, check, "quick") if isinstance(each, Trace)]
        assert {one.label for one in drawn if one.figure == figure} == baselines | spectral_lines
