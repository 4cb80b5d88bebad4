"""Oracles of the property claims of 003 that no mutation covers: maps, distances, losses and searches."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import expm

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.benchmarks.claims import spectral_curvature, spectral_search
from curvebench.benchmarks.claims._curvature_paths import (
    DEFAULT,
    KRONECKER_CHOLESKY,
    PROJECTION,
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
    spread_matrix,
)
from curvebench.benchmarks.claims._gaussians import LocalCoordinates, assembled, draw_kronecker
from curvebench.benchmarks.claims._matrices import orthonormal, power
from curvebench.benchmarks.claims._trained_lanes import (
    SHAPES,
    defect,
    draw_lanes,
    loss_and_gradient,
    ops_of,
    rounded,
    train,
)
from curvebench.benchmarks.claims.spectral_curvature import (
    FULL_FIXED_POINT,
    FULL_ITERATE,
    KRONECKER,
    log_det,
    log_det_gradient,
    nearness,
    nearness_gradient,
)
from curvebench.benchmarks.claims.spectral_precision import (
    CAYLEY_TRUNCATED,
    FORMS,
    drifting,
    exact_product,
    exact_sum,
    truncated_product,
)
from curvebench.benchmarks.claims.spectral_search import (
    CHOLESKY_NES,
    GRADIENT_FREE,
    NES,
    OBJECTIVES,
    RECORDS,
    SearchMethod,
    ackley,
    best_setting,
    moments,
    rank_costs,
    rosenbrock,
    search,
)
from curvebench.benchmarks.claims.spectral_theory import LogCosh, OutcomeLaws, stated_block
from curvebench.benchmarks.claims.spectral_truncation import adaptive_damping
from curvebench.optimizers.matrix_functions import SpectralMaps, Spectrum
from curvebench.optimizers.matrix_functions.spectral_steps import CAYLEYS
from curvebench.property_checks.checks import CORRECTED, PRINTED, Check, PropertyClaim, Trace, part_results
from tests.benchmarks.claim_mutations import few, few_instances, replaced
from tests.curvebench.property_checks.claim_rows import part_rows

# --- curvature ---


MAPS = SpectralMaps()
SPECTRAL = ("spectral, exact", "spectral, first_order")


Loss = Callable[..., np.ndarray]


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


def gap_of(method: CurvatureMethod, baseline: CurvatureMethod, start: Any, given: Any, rate: float) -> float:
    found, other = (path(one, start, given, rate, [len(given)])[0] for one in (method, baseline))
    return float(np.linalg.norm(found - other))


def test_all_structured_methods_begin_with_the_whole_and_take_one_step_to_first_order():
    random = np.random.default_rng(0)
    begun, gradients = (distinct(random, 2), distinct(random, 3)), random.standard_normal((1, 2, 3))
    assert gap_of(PROJECTION, WHOLE, begun, gradients, 1e-12) < 1e-10
    gaps = [gap_of(KRONECKER_CHOLESKY, kronecker_spectral(MAPS), begun, gradients, r) for r in (1e-4, 1e-5)]
    assert gaps[0] / gaps[1] == pytest.approx(100, rel=0.02)


def test_a_path_holds_the_matrices_after_its_checkpoints():
    gradients = np.ones((3, 2))
    found = path(DEFAULT, identity(np.random.default_rng(0), 2), gradients, 0.5, [1, 3])
    np.testing.assert_allclose(found[:, 0, 0], [1, 1])
    np.testing.assert_allclose(found[:, 0, 1], [0.5, 0.875])


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


@pytest.mark.parametrize(
    ("claim", "start"),
    [(FULL_FIXED_POINT, ""), (FULL_ITERATE, "near"), (KRONECKER, "")],
    ids=["fixed points", "near", "products"],
)
def test_bases_that_turn_backwards_are_worse(claim, start):
    """Of subclaims that miss as they are, at the least rate, where noise is least too."""
    for check in claim.checks:
        if check.variant == CORRECTED and check.part.startswith(start) and check.part.endswith(" 0.2 / n"):
            right = greatest_value(claim, check)
            with replaced(
                {"curvebench.optimizers.matrix_functions.spectral_steps.rotation_generator": "-result"}
            ):
                assert greatest_value(claim, check) > 1.5 * right


def greatest_value(claim: PropertyClaim, check: Check) -> float:
    return max(row.measure.value for row in part_rows(claim.id, few_instances(check, 1), "quick"))


# --- precision ---


OPS = numpy_ops("float64")


def skew_of(size: int, norm: float) -> np.ndarray:
    drawn = np.random.default_rng(1).standard_normal((size, size))
    return norm * (drawn - drawn.T) / np.linalg.norm(drawn - drawn.T)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_numbers_are_rounded_as_bfloat16_is(number: float):
    expected = np.float32(number).astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(rounded(number), expected)


def test_the_gradient_is_that_of_the_loss():
    lanes = draw_lanes(np.random.default_rng(0), 2, 1)
    weights, inputs = lanes.start.astype(float), lanes.inputs.astype(float)
    _, gradient = loss_and_gradient(weights, inputs, lanes.labels)
    way = np.random.default_rng(1).standard_normal(weights.shape)
    up, down = (loss_and_gradient(weights + sign * way, inputs, lanes.labels)[0] for sign in (1e-6, -1e-6))
    np.testing.assert_allclose((up - down) / 2e-6, (gradient * way).sum((1, 2, 3)), rtol=1e-6)


def test_a_rule_in_bfloat16_learns_and_differs_from_float32():
    lanes = draw_lanes(np.random.default_rng(0), 2, 20)
    options = {"power": 2.0, "cayley": "truncated"}
    full, half, weights = (
        train(lanes, options, {"learning_rate": 0.03}, *given)
        for given in ((), ("bfloat16",), ("bfloat16", "bfloat16"))
    )
    assert (full.losses[-1] < 0.9 * full.losses[0]).all()
    np.testing.assert_array_equal(full.losses[0], half.losses[0])
    gaps = [np.abs(one.losses[-1] / full.losses[-1] - 1).max() for one in (half, weights)]
    assert gaps[0] != gaps[1]
    assert 1e-4 < min(gaps) < max(gaps) < 0.2
    assert full.defects.max() < 1e-5 < 1e-3 < half.defects.max()
    assert np.isfinite(full.values).all()
    assert sum(np.prod(shape) for shape in SHAPES.values()) == lanes.start[0].size


def test_forms_are_the_maps():
    basis, skew = np.linalg.qr(np.random.default_rng(2).standard_normal((5, 5)))[0], skew_of(5, 0.4)
    exact, truncated = (CAYLEYS[name](OPS, basis, skew) for name in ("exact", "truncated"))
    for form in (exact_product, exact_sum):
        np.testing.assert_allclose(form(OPS, basis, skew), exact, atol=1e-14)
    np.testing.assert_allclose(truncated_product(OPS, basis, skew), truncated, atol=1e-14)
    assert defect(exact) < 1e-14
    half = ops_of("bfloat16")
    found = exact_sum(half, half.asarray(basis), half.asarray(skew))
    np.testing.assert_allclose(half.to_numpy(half.cast(found, "float64")), exact, atol=0.02)
    assert str(found.dtype) == "torch.bfloat16"


def test_a_correction_brings_bases_back():
    form = FORMS["truncated"]["sum B + B E"]
    drifted, corrected = (
        drifting(np.random.default_rng(0), form, "bfloat16", corrects, 1, 100)[1]
        for corrects in (False, True)
    )
    assert corrected[-1] < drifted[-1]


def test_values_that_are_nan_after_a_while_are_noticed():
    late = "result * (np.nan if call > 100 else 1.0)"
    with replaced({"curvebench.optimizers.matrix_functions.EXPONENTIALS[first_order]": late}):
        *_, least = drifting(np.random.default_rng(0), exact_sum, "float64", False, 1, 200)
    assert np.isnan(least)


def test_inverses_in_the_product_are_noticed():
    check = CAYLEY_TRUNCATED.checks[0]
    assert (check.part, check.variant) == ("the product is near the Cayley map", PRINTED)
    assert not any(
        row.measure.holds for row in part_rows(CAYLEY_TRUNCATED.id, few_instances(check, 2), "quick")
    )


# --- search ---


METHODS = {"NES": NES, "Cholesky-based NES": CHOLESKY_NES, "spectral": spectral_search.spectral_search(0.0)}


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


def test_moments_are_the_gradients_of_the_mean_loss_under_the_normal_law():
    """Loss w^T Q w / 2 + b^T w with g = Q mu + b and H = Q: the quadrature is exact for its moments."""
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


def drawn(size: int = 3) -> tuple[Spectrum, np.ndarray, np.ndarray, np.ndarray]:
    """Return a spectrum of S, normal draws, their costs, and the moment matrix M of draws and costs."""
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


def begun(size: int = 3) -> tuple[np.ndarray, Spectrum]:
    random = np.random.default_rng(1)
    one = distinct(random, size)
    return random.uniform(1, 3, (1, size)), Spectrum(one.basis[None], one.values[None])


def searched(
    method: SearchMethod, loss: Callable[[np.ndarray], np.ndarray], start: tuple[np.ndarray, Spectrum]
) -> np.ndarray:
    """Return the loss of a search after each of RECORDS generations of eight samples."""
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


def test_the_best_setting_has_the_least_last_median_and_of_ties_the_least_half_way():
    losses = np.ones((RECORDS + 1, 3, 3))
    losses[-1, 1:], losses[RECORDS // 2, 2] = 0.1, 0.5
    losses[-1, 0, 0] = 0.0  # only one seed ends at 0
    assert best_setting(losses) == 2
    losses[-1, 0] = 0.05
    assert best_setting(losses) == 0


# --- figures ---


@pytest.mark.parametrize(
    ("claim", "part", "figure", "lines"),
    [
        (FULL_FIXED_POINT, " 0.2 / n", "003 Fig. 7, fixed point", {"default update", "Cholesky", *SPECTRAL}),
        (
            KRONECKER,
            " 0.2 / n",
            "003 Fig. 8, iterates",
            {"Cholesky", "Cholesky, scale twice", "projection", *SPECTRAL},
        ),
        (GRADIENT_FREE, "", "", {*METHODS}),
    ],
    ids=["full", "Kronecker", "search"],
)
def test_figures_have_a_line_for_each_method(claim, part, figure, lines):
    check = next(check for check in few(claim, 1).checks if part in check.part)
    drawn = [each.series for each in part_results(claim.id, check, "quick") if isinstance(each, Trace)]
    assert {one.label for one in drawn if figure in one.figure} == lines


# --- theory ---


def test_metrics_and_gradients_are_those_of_finite_differences():
    random, step = np.random.default_rng(0), 1e-5
    tau, features = random.standard_normal(3), random.standard_normal((4, 3))
    units = step * np.eye(3)

    def slopes(function):
        return np.array([(function(tau + unit) - function(tau - unit)) / (2 * step) for unit in units])

    found = slopes(lambda point: np.log(np.cosh(features @ point - 1)).sum())
    np.testing.assert_allclose(LogCosh(features, np.ones(4)).gradient(tau), found, rtol=1e-7)
    # Gradients of the mean p; the variance is p (1 - p).
    share = slopes(lambda point: 1 / (1 + np.exp(-features @ point)))
    variance = np.exp(-features @ tau) / (1 + np.exp(-features @ tau)) ** 2
    np.testing.assert_allclose(
        OutcomeLaws(features, "bernoulli").metric(tau), share / variance @ share.T, rtol=1e-7
    )
    natural = features.T  # gradients of the mean and of the log variance
    expected = natural / np.exp(features @ tau) @ natural.T + natural @ natural.T / 2
    np.testing.assert_allclose(OutcomeLaws(features, "normal").metric(tau), expected)


def test_constants_as_corrected_are_those_that_were_derived():
    origin = draw_kronecker(np.random.default_rng(3), (3, 2))
    coordinates = LocalCoordinates(origin)
    assert stated_block(coordinates, "alpha", False).item() == 3
    assert stated_block(coordinates, "alpha", True).item() == pytest.approx(1 / 3)
    np.testing.assert_allclose(stated_block(coordinates, "m1", True), np.array([[2, -1], [-1, 2]]) / 3)
    np.testing.assert_allclose(stated_block(LocalCoordinates(origin, True), "m2", True), [[1.0]])


# --- truncation ---


def test_damping_is_that_of_the_second_form():
    spectrum = draw_kronecker(np.random.default_rng(0), (3, 2))
    found = adaptive_damping(spectrum, 0.1, printed=False)
    (_, rows), (_, columns) = spectrum.factors
    np.testing.assert_allclose(found, [0.1 * 2 * np.mean(1 / columns), 0.1 * 3 * np.mean(1 / rows)])
    first, second = (np.trace(assembled(factor)) for factor in spectrum.factors)
    inverses = [2 * np.mean(1 / columns), 3 * np.mean(1 / rows)]
    expected = 0.1 * np.prod(inverses) * np.array([first, second])
    np.testing.assert_allclose(adaptive_damping(spectrum, 0.1, printed=True), expected)
