"""What spectral-factorized curvature rests on: what the checks of its metric and its constraints notice."""

from __future__ import annotations

import numpy as np
import pytest

import curvebench.optimizers.spectral
from curvebench.benchmarks.claims import _spectral_scheme, spectral_theory
from curvebench.benchmarks.claims._gaussians import LocalCoordinates, assembled, draw_kronecker, draw_spectrum
from curvebench.benchmarks.claims.spectral_theory import (
    CONSTRAINTS,
    LINEAR_INVARIANCE,
    METRIC,
    LogCosh,
    OutcomeLaws,
    decomposed,
    stated_block,
)
from curvebench.optimizers.matrix_functions import CAYLEYS, EXPONENTIALS, spectral_steps
from tests.benchmarks.claim_mutations import assert_noticed, mutate, wrap

INVARIANT = {"tau = U lambda, as many coordinates", "tau = U lambda, more coordinates"}
PROOF = "the Moore-Penrose inverse in the proof"
DIAGONAL = "full: diagonal, with the entries of eq. 17"
BLOCKS = "Kronecker: block diagonal, and the inverse"
ALPHA, M, ROTATIONS, DELTA = (f"Kronecker: the block of {name}" for name in ("alpha", "m", "M", "delta"))
NATURAL = {
    *("full: a natural-gradient step is the scheme's", "Kronecker: a natural-gradient step is the scheme's"),
}
OF_RULES = {
    *(
        "natural-gradient steps are the rule spectral_full's",
        "natural-gradient steps are the rule spectral's",
    ),
}
FULL = "full: B orthogonal, d positive"
KRONECKER = "Kronecker: B orthogonal, d positive, determinants 1"
UNIQUE = "Kronecker: the decomposition is unique"
CAYLEY = "the Cayley map is defined and injective"


# --- linear invariance ---------------------------------------------------------------------------


def test_an_inverse_that_is_damped_is_noticed(monkeypatch):
    def wrong(right, metric):
        return np.linalg.inv(metric + 1e-4 * np.eye(len(metric)))

    wrap(monkeypatch, spectral_theory, "moore_penrose", wrong)
    assert_noticed(LINEAR_INVARIANCE, 3, *INVARIANT, PROOF)


def test_descent_with_another_metric_is_noticed(monkeypatch):
    wrap(monkeypatch, OutcomeLaws, "metric", lambda right, *given: np.eye(len(given[1])))
    assert_noticed(LINEAR_INVARIANCE, 3, *INVARIANT)


def test_metrics_and_gradients_are_those_of_finite_differences():
    random, step = np.random.default_rng(0), 1e-5
    tau, features = random.standard_normal(3), random.standard_normal((4, 3))
    units = step * np.eye(3)

    def slopes(function):
        return np.array([(function(tau + unit) - function(tau - unit)) / (2 * step) for unit in units])

    found = slopes(lambda point: np.log(np.cosh(features @ point - 1)).sum())
    np.testing.assert_allclose(LogCosh(features, np.ones(4)).gradient(tau), found, rtol=1e-7)
    share = slopes(lambda point: 1 / (1 + np.exp(-features @ point)))  # of mean p, variance p (1 - p)
    variance = np.exp(-features @ tau) / (1 + np.exp(-features @ tau)) ** 2
    np.testing.assert_allclose(
        OutcomeLaws(features, "bernoulli").metric(tau), share / variance @ share.T, rtol=1e-7
    )
    natural = features.T  # of the mean and of the log variance
    expected = natural / np.exp(features @ tau) @ natural.T + natural @ natural.T / 2
    np.testing.assert_allclose(OutcomeLaws(features, "normal").metric(tau), expected)


# --- the metric ----------------------------------------------------------------------------------


def test_the_metric_is_the_covariance_of_scores_of_samples():
    random = np.random.default_rng(1)
    coordinates = LocalCoordinates(draw_spectrum(random, 2))
    samples = random.standard_normal((200_000, 2)) @ assembled(coordinates.origin, -0.5)

    def log_density(eta):
        precision, rest = (
            assembled(coordinates.at(eta)),
            samples - coordinates.mean_map @ eta[coordinates.blocks["delta"]],
        )
        quadratic = np.einsum("ni,ij,nj->n", rest, precision, rest)
        return (np.linalg.slogdet(precision)[1] - quadratic) / 2

    units = 1e-4 * np.eye(5)
    scores = np.array([(log_density(unit) - log_density(-unit)) / 2e-4 for unit in units])
    np.testing.assert_allclose(coordinates.metric(), scores @ scores.T / len(samples), atol=0.1, rtol=0.05)


def test_gradients_are_those_of_appendix_l():
    """Eqs. 24 to 26, with the gamma that eq. 23 loses."""
    random = np.random.default_rng(2)
    coordinates, gamma = LocalCoordinates(draw_spectrum(random, 3)), 0.0
    slope, drawn = random.standard_normal(3), random.standard_normal((3, 3))
    curvature, (basis, values) = drawn + drawn.T, coordinates.factors[0]
    for gamma in (0.0, 1.0):
        inside = basis.T @ (curvature - gamma * assembled(coordinates.origin)) @ basis / 2
        found, blocks = coordinates.gradient(slope, curvature, gamma), coordinates.blocks
        np.testing.assert_allclose(found[blocks["delta"]], values**-0.5 * (basis.T @ slope))
        np.testing.assert_allclose(found[blocks["m1"]], -np.diag(inside) / values)
        rotations = 4 * (inside / values[None, :] - inside / values[:, None])
        np.testing.assert_allclose(found[blocks["M1"]], rotations[np.tril_indices(3, -1)])


def test_another_coefficient_of_rotations_is_noticed(monkeypatch):
    wrap(monkeypatch, spectral_theory, "rotation_entries", lambda right, values: 0.5 * right(values))
    assert_noticed(METRIC, 3, DIAGONAL, ROTATIONS)


def test_coordinates_that_depend_on_each_other_are_noticed(monkeypatch):
    wrap(
        monkeypatch, LocalCoordinates, "moved", lambda right, own, ops, eta: right(own, ops, eta + eta[0] / 9)
    )
    assert_noticed(METRIC, 3, DIAGONAL, BLOCKS)


def test_the_constants_of_appendix_k_are_noticed(monkeypatch):
    def wrong(right, coordinates, *given):
        return right(LocalCoordinates(coordinates.origin, printed=True), *given)

    wrap(monkeypatch, spectral_theory, "stated_block", wrong)
    assert_noticed(METRIC, 2, ALPHA, M, ROTATIONS)


def test_the_move_of_the_mean_of_equation_18_is_noticed(monkeypatch):
    right = vars(LocalCoordinates)["mean_map"].fget
    printed = property(lambda own: right(LocalCoordinates(own.origin, printed=True)))
    monkeypatch.setattr(LocalCoordinates, "mean_map", printed)
    assert_noticed(METRIC, 2, DELTA)


def test_constants_as_corrected_are_those_that_were_derived():
    origin = draw_kronecker(np.random.default_rng(3), (3, 2))
    coordinates = LocalCoordinates(origin)
    assert stated_block(coordinates, "alpha", False).item() == 3
    assert stated_block(coordinates, "alpha", True).item() == pytest.approx(1 / 3)
    np.testing.assert_allclose(stated_block(coordinates, "m1", True), np.array([[2, -1], [-1, 2]]) / 3)
    np.testing.assert_allclose(stated_block(LocalCoordinates(origin, True), "m2", True), [[1.0]])


@pytest.mark.parametrize("share", [-1.0, 1.01])
def test_another_rotation_is_noticed(share, monkeypatch):
    wrap(monkeypatch, spectral_steps, "rotation_generator", lambda right, *given: share * right(*given))
    assert_noticed(METRIC, 3, *NATURAL)


def test_another_growth_is_noticed(monkeypatch):
    def wrong(right, *given):
        gained, lost = right(*given)
        return 1.01 * gained, lost

    wrap(monkeypatch, spectral_steps, "spectral_growth", wrong)
    assert_noticed(METRIC, 3, *NATURAL, *OF_RULES)


@pytest.mark.parametrize("rule", ["spectral", "spectral_full"])
def test_a_rule_with_another_root_is_noticed(rule, monkeypatch):
    mutate(monkeypatch, rule, options={"power": 2.0})
    assert_noticed(METRIC, 1, f"natural-gradient steps are the rule {rule}'s")


# --- constraints ---------------------------------------------------------------------------------


def test_a_cayley_map_to_first_order_is_noticed(monkeypatch):
    monkeypatch.setitem(CAYLEYS, "exact", lambda ops, basis, skew: basis + 2 * basis @ skew)
    with np.errstate(all="ignore"):
        assert_noticed(CONSTRAINTS, 3, FULL, KRONECKER, CAYLEY)


def test_a_cayley_map_of_the_transpose_is_noticed(monkeypatch):
    exact = CAYLEYS["exact"]
    monkeypatch.setitem(CAYLEYS, "exact", lambda ops, basis, skew: exact(ops, basis, -skew))
    assert_noticed(CONSTRAINTS, 3, CAYLEY)


def test_values_that_may_be_negative_are_noticed(monkeypatch):
    monkeypatch.setitem(EXPONENTIALS, "exact", EXPONENTIALS["first_order"])
    with np.errstate(all="ignore"):
        assert_noticed(CONSTRAINTS, 10, FULL)


def test_factors_of_another_determinant_are_noticed(monkeypatch):
    """Of the same S."""

    def wrong(right, *given):
        spectrum = right(*given)
        first, second = spectrum.factors
        first, second = (
            first._replace(values=1.01 * first.values),
            second._replace(values=second.values / 1.01),
        )
        return spectrum._replace(factors=(first, second))

    for module in (spectral_theory, _spectral_scheme):
        wrap(monkeypatch, module, "kronecker_spectral_step", wrong)
    assert_noticed(CONSTRAINTS, 2, KRONECKER, UNIQUE, "constraints of the rule spectral")


def test_a_rule_with_another_scale_is_noticed(monkeypatch):
    mutate(monkeypatch, "spectral", curvature_rate=lambda rate: 1.01 * rate)
    assert_noticed(CONSTRAINTS, 2, "constraints of the rule spectral")


def test_a_rule_that_mixes_up_its_basis_is_noticed(monkeypatch):
    wrap(
        monkeypatch,
        curvebench.optimizers.spectral._Full,
        "inside",
        lambda right, own, ops, grad, curvature: grad,
    )
    assert_noticed(CONSTRAINTS, 4, "constraints of the rule spectral_full")


def test_products_are_taken_apart():
    random = np.random.default_rng(4)
    spectrum = draw_kronecker(random, (3, 4))
    scale, first, second, rest = decomposed(assembled(spectrum), (3, 4))
    assert scale == pytest.approx(spectrum.scale[0])
    np.testing.assert_allclose(first, assembled(spectrum.factors[0]), atol=1e-12)
    np.testing.assert_allclose(second, assembled(spectrum.factors[1]), atol=1e-12)
    assert rest < 1e-12
    assert decomposed(np.diag(np.arange(1.0, 13)), (3, 4))[3] > 0.01
