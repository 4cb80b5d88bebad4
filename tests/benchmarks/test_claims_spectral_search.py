"""Gradient-free search: functions, estimates and updates against oracles; wrong steps are noticed."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import expm

from curvebench.benchmarks.claims import spectral_search
from curvebench.benchmarks.claims._curvature_paths import distinct, matrix_of
from curvebench.benchmarks.claims._matrices import orthonormal
from curvebench.benchmarks.claims.spectral_search import (
    CHOLESKY_NES,
    FLOOR,
    GRADIENT_FREE,
    NES,
    OBJECTIVES,
    RECORDS,
    SearchMethod,
    ackley,
    best_setting,
    floored,
    moments,
    rank_costs,
    rosenbrock,
    search,
)
from curvebench.optimizers.matrix_functions import Spectrum
from curvebench.property_checks.checks import CORRECTED, Row, Trace, part_results
from tests.benchmarks.claim_mutations import assert_noticed, few, wrap
from tests.curvebench.property_checks.claim_rows import part_rows

PARTS = {check.part for check in GRADIENT_FREE.checks}
METHODS = {"NES": NES, "Cholesky-based NES": CHOLESKY_NES, "spectral": spectral_search.spectral_search(0.0)}


# --- functions -----------------------------------------------------------------------------------


def by_hand(name: str, w: list[float]) -> float:
    """003 App. C, term by term."""
    count, pairs = len(w), list(pairwise(w))
    if name == "Ackley":
        mean_square, mean_wave = (
            sum(x * x for x in w) / count,
            sum(math.cos(2 * math.pi * x) for x in w) / count,
        )
        return 20 - 20 * math.exp(-0.2 * math.sqrt(mean_square)) + math.e - math.exp(mean_wave)
    if name == "Rosenbrock":
        return sum(100 * (y - x**2) ** 2 + (x - 1) ** 2 for x, y in pairs)
    if name == "Bohachevsky":
        return sum(
            x**2 + 2 * y**2 - 0.3 * math.cos(3 * math.pi * x) - 0.4 * math.cos(4 * math.pi * y) + 0.7
            for x, y in pairs
        )
    if name == "Schaffer":
        return sum((x**2 + y**2) ** 0.25 * (math.sin(50 * (x**2 + y**2) ** 0.1) ** 2 + 1) for x, y in pairs)
    waves = math.prod(math.cos(x / math.sqrt(i)) for i, x in enumerate(w, start=1))
    return sum(x * x for x in w) / 4000 - waves + 1


@pytest.mark.parametrize("name", OBJECTIVES)
@given(w=st.lists(st.floats(-30, 30), min_size=2, max_size=5))
def test_functions_are_those_of_the_source_and_nowhere_below_0(name: str, w: list[float]):
    found = float(OBJECTIVES[name].loss(np.array(w)))
    assert found == pytest.approx(by_hand(name, w), rel=1e-9, abs=1e-11)
    assert found >= -1e-14


@pytest.mark.parametrize("name", OBJECTIVES)
def test_functions_are_least_at_0_and_rosenbrocks_at_1(name: str):
    least = np.full((2, 3), 1.0 if name == "Rosenbrock" else 0.0)
    np.testing.assert_allclose(OBJECTIVES[name].loss(least), [0, 0], atol=1e-14)


# --- estimates -----------------------------------------------------------------------------------


def test_moments_are_the_gradients_of_the_mean_loss_under_the_normal_law():
    """Of w^T Q w / 2 + b^T w: g = Q mu + b and H = Q, by a quadrature that is exact for its moments."""
    random = np.random.default_rng(0)
    root, half, mean, slope = (random.standard_normal(shape) for shape in ((2, 2), (2, 2), 2, 2))
    q = half + half.T
    points, weights = np.polynomial.hermite_e.hermegauss(4)
    draws = np.array([(x, y) for x in points for y in points])
    shares = np.outer(weights, weights).ravel() / (2 * np.pi)
    samples = mean + draws @ root.T
    losses = np.einsum("ni,ij,nj->n", samples, q, samples) / 2 + samples @ slope
    first, second = moments(draws, shares * (losses - shares @ losses))
    np.testing.assert_allclose(first, root.T @ (q @ mean + slope), atol=1e-12)
    np.testing.assert_allclose(second, root.T @ q @ root, atol=1e-12)


def test_costs_of_ranks_by_hand():
    total = math.log(3) + math.log(1.5)
    np.testing.assert_allclose(
        rank_costs(4), [0.25 - math.log(3) / total, 0.25 - math.log(1.5) / total, 0.25, 0.25]
    )
    assert abs(rank_costs(20).sum()) < 1e-15
    assert (np.diff(rank_costs(20)) >= 0).all()


# --- updates -------------------------------------------------------------------------------------


def drawn(size: int = 3) -> tuple[Spectrum, np.ndarray, np.ndarray, np.ndarray]:
    """A spectrum of S, normal numbers, their costs, and M of both."""
    random = np.random.default_rng(0)
    spectrum, draws, costs = distinct(random, size), random.standard_normal((6, size)), rank_costs(6)
    return spectrum, draws, costs, moments(draws, costs)[1]


def covariance_after(method: SearchMethod, spectrum: Spectrum, inside: np.ndarray, rate: float) -> np.ndarray:
    root = method.root(method.step(method.begin(spectrum), inside, np.array([rate])))
    return root @ root.T


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_a_search_begins_with_the_covariance_of_its_spectrum(method: SearchMethod):
    spectrum, *_ = drawn()
    root = method.root(method.begin(spectrum))
    np.testing.assert_allclose(root @ root.T @ matrix_of(spectrum), np.eye(3), atol=1e-14)


def test_nes_adds_the_natural_gradient_to_the_covariance():
    spectrum, draws, costs, inside = drawn()
    covariance, expected = np.linalg.inv(matrix_of(spectrum)), np.linalg.inv(matrix_of(spectrum))
    for z, cost in zip(draws, costs, strict=True):
        moved = spectral_search.inverse_root(spectrum) @ z
        expected = expected - 0.3 * cost * (np.outer(moved, moved) - covariance)
    np.testing.assert_allclose(covariance_after(NES, spectrum, inside, 0.3), expected, rtol=1e-13)


def test_nes_ends_without_a_number_where_the_covariance_is_not_definite():
    spectrum, *_ = drawn()
    with np.errstate(invalid="ignore"):
        assert np.isnan(covariance_after(NES, spectrum, np.diag([2.0, 0.0, 0.0]), 0.6)).all()


def test_cholesky_based_nes_multiplies_with_the_exponential():
    spectrum, _, _, inside = drawn()
    root = spectral_search.inverse_root(spectrum)
    expected = root @ expm(-0.3 * inside) @ root.T
    np.testing.assert_allclose(covariance_after(CHOLESKY_NES, spectrum, inside, 0.3), expected, rtol=1e-13)


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_all_methods_take_the_natural_gradient_to_first_order(method: SearchMethod):
    """S <- S + beta_2 H (003 eq. 6)."""
    spectrum, _, _, inside = drawn()
    matrix, turned = matrix_of(spectrum), np.linalg.inv(spectral_search.inverse_root(spectrum))
    curvature = turned.T @ inside @ turned
    gaps = [
        np.linalg.norm(
            np.linalg.inv(covariance_after(method, spectrum, inside, rate)) - matrix - rate * curvature
        )
        for rate in (1e-4, 1e-5)
    ]
    assert gaps[0] / gaps[1] == pytest.approx(100, rel=0.02)


# --- searches ------------------------------------------------------------------------------------


def begun(size: int = 3) -> tuple[np.ndarray, Spectrum]:
    random = np.random.default_rng(1)
    one = distinct(random, size)
    return random.uniform(1, 3, (1, size)), Spectrum(one.basis[None], one.values[None])


def searched(
    method: SearchMethod, loss: Callable[[np.ndarray], np.ndarray], start: tuple[np.ndarray, Spectrum]
) -> np.ndarray:
    """The loss after each of RECORDS generations of eight samples."""
    rates = np.array([[0.7, 0.2]])
    return search(method, loss, start, rates, np.random.default_rng(2), 8, RECORDS)[:, 0, 0]


def test_a_search_is_that_of_a_loop():
    mean, covariance = begun()[0][0], np.linalg.inv(matrix_of(begun()[1])[0])
    root = spectral_search.inverse_root(begun()[1])[0]
    random, expected = np.random.default_rng(2), [float(ackley(mean))]
    for _ in range(RECORDS):
        half = random.standard_normal((4, 3))
        samples = [mean + sign * root @ z for sign in (1, -1) for z in half]
        moved, change = np.zeros(3), np.zeros((3, 3))
        for cost, sample in zip(rank_costs(8), sorted(samples, key=lambda w: float(ackley(w))), strict=True):
            moved = moved + cost * (sample - mean)
            change = change + cost * (np.outer(sample - mean, sample - mean) - covariance)
        # the root that the search keeps, of which NES in the covariance knows nothing
        inner = np.linalg.inv(root)
        root = root @ expm(-0.1 * inner @ change @ inner.T)
        mean, covariance = mean - 0.7 * moved, root @ root.T
        expected.append(float(ackley(mean)))
    np.testing.assert_allclose(searched(CHOLESKY_NES, ackley, begun()), expected, rtol=1e-9)


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_searches_turn_with_the_coordinates_and_see_ranks_alone(method: SearchMethod):
    (means, spectrum), turn = begun(), orthonormal(np.random.default_rng(3), 3, 3)
    expected = searched(method, rosenbrock, (means, spectrum))
    turned = (means @ turn, Spectrum(turn.T @ spectrum.basis, spectrum.values))
    np.testing.assert_allclose(
        searched(method, lambda w: rosenbrock(w @ turn.T), turned), expected, rtol=1e-6
    )
    rescaled = searched(method, lambda w: np.log1p(rosenbrock(w)), (means, spectrum))
    np.testing.assert_allclose(np.expm1(rescaled), expected, rtol=1e-9)
    assert expected[-1] < expected[0] / 2


def test_settings_and_seeds_do_not_see_each_other():
    (means, spectrum), rates = begun(), np.array([[0.7, 0.2], [1.4, 0.4]])
    two = (np.concatenate([means, means + 1]), Spectrum(*(np.concatenate([one] * 2) for one in spectrum)))
    run = partial(search, METHODS["spectral"], ackley, samples=8, generations=RECORDS)
    together = run(two, rates, draws=np.random.default_rng(2))
    assert together.shape == (RECORDS + 1, 2, 2)
    apart = run(two, rates[1:], draws=np.random.default_rng(2))
    np.testing.assert_allclose(together[:, 1:], apart, rtol=1e-9)


def test_losses_count_from_the_floor_to_the_first():
    found = floored(np.array([[2.0, 2.0, 2.0], [3.0, np.nan, 1e-20]]))
    assert found.tolist() == [[2, 2, 2], [2, 2, FLOOR]]


def test_the_best_setting_has_the_least_last_median_and_of_ties_the_least_half_way():
    losses = np.ones((RECORDS + 1, 3, 3))
    losses[-1, 1:], losses[RECORDS // 2, 2] = 0.1, 0.5
    losses[-1, 0, 0] = 0.0  # of one seed alone
    assert best_setting(losses) == 2
    losses[-1, 0] = 0.05
    assert best_setting(losses) == 0


# --- the checks ----------------------------------------------------------------------------------


def corrected_rows() -> dict[str, list[Row]]:
    """What every part measures as corrected, at scale quick."""
    checks = [check for check in GRADIENT_FREE.checks if check.variant == CORRECTED]
    return {check.part: list(part_rows(GRADIENT_FREE.id, check, "quick")) for check in checks}


def test_a_scheme_that_is_a_baseline_competes_with_it(monkeypatch):
    monkeypatch.setattr(spectral_search, "BASELINES", {"Cholesky-based NES": CHOLESKY_NES})
    monkeypatch.setattr(spectral_search, "spectral_search", lambda tie_tolerance: CHOLESKY_NES)
    found = corrected_rows()
    assert {*found} == PARTS
    assert all(row.measure.holds for rows in found.values() for row in rows)


def test_a_long_step_of_the_wrong_sign_is_noticed(monkeypatch):
    """Of the usual length Griewank's wide slope forgives it."""

    def backwards(right, ops, spectrum, curvature, *others):
        return right(ops, spectrum, -4 * curvature, *others)

    wrap(monkeypatch, spectral_search, "spectral_step", backwards)
    refuted = {
        part for part, rows in corrected_rows().items() if any(one.measure.holds is False for one in rows)
    }
    assert refuted == PARTS


def test_a_baseline_that_learns_nothing_is_noticed(monkeypatch):
    """Else anything could compete with it."""
    still = CHOLESKY_NES._replace(root=np.zeros_like)
    monkeypatch.setattr(spectral_search, "BASELINES", {"NES": still})
    assert_noticed(GRADIENT_FREE, 1, "Griewank, S_0 distinct")


def test_figures_have_a_line_for_each_method():
    check = few(GRADIENT_FREE, 1).checks[0]
    lines = [each.series for each in part_results("", check, "quick") if isinstance(each, Trace)]
    assert {one.label for one in lines} == {*METHODS}
