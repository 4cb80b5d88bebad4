"""The truncated exponential map and the diagonal case: what their checks notice."""

from __future__ import annotations

import numpy as np
import pytest

import curvebench.optimizers.spectral
from curvebench.benchmarks.claims import spectral_truncation
from curvebench.benchmarks.claims._gaussians import assembled, draw_kronecker
from curvebench.benchmarks.claims.spectral_truncation import DIAGONAL, TRUNCATED_EXPONENTIAL, adaptive_damping
from curvebench.optimizers.matrix_functions import EXPONENTIALS, spectral_steps
from curvebench.optimizers.matrix_functions.spectral_steps import LOGARITHMS_OF_EXPONENTIALS
from tests.benchmarks.claim_mutations import assert_noticed, few, found_rows, mutate, wrap

GROWTH, DETERMINANT = "both factors ask for the same growth", "log det S of the rule spectral"
FIGURE_5, FIGURE_6 = "the full step is Fig. 5's", "the Kronecker step is Fig. 6's"
RULE_6 = "the rule spectral is Fig. 6's"
MERGED = "the merged step and its truncation"
FULL_ORDERS = {
    *("the maps differ by the second order, full", "the rule spectral_full differs by the second order"),
}
KRONECKER_ORDERS = {
    *("the maps differ by the second order, Kronecker", "the rule spectral differs by the second order"),
}
APART = {"how far the maps are apart, full", "how far the maps are apart, Kronecker"}
POSITIVE = {"d stays positive", "the rule spectral_full stays positive", "the rule spectral stays positive"}
ADAGRAD, RMSPROP = "gamma 0, p = 2: Adagrad", "gamma 1, p = 2: RMSprop"
ROOTS = {"p = 1: eq. 2", "p = 2: eq. 2", "p = 4: eq. 2"}
KEPT = "the full step keeps B, and is the diagonal one"
ORDER = "the exact exponential differs by the second order"


# --- the truncated exponential map ---------------------------------------------------------------


def test_the_lengths_of_the_axes_mixed_up_are_noticed(monkeypatch):
    def wrong(right, spectrum, gradient):
        rows, columns = right(spectrum, gradient)
        share = gradient.shape[1] / gradient.shape[0]
        return rows * share, columns / share

    wrap(monkeypatch, spectral_truncation, "axes_curvatures", wrong)
    assert_noticed(TRUNCATED_EXPONENTIAL, 4, GROWTH, FIGURE_6, MERGED)


def test_another_curvature_of_the_rule_is_noticed(monkeypatch):
    wrap(
        monkeypatch,
        curvebench.optimizers.spectral,
        "second_moment",
        lambda right, *given: 1.01 * right(*given),
    )
    assert_noticed(TRUNCATED_EXPONENTIAL, 2, DETERMINANT, RULE_6)


def test_another_growth_is_noticed(monkeypatch):
    def wrong(right, *given):
        gained, lost = right(*given)
        return 1.01 * gained, lost

    wrap(monkeypatch, spectral_steps, "spectral_growth", wrong)
    assert_noticed(TRUNCATED_EXPONENTIAL, 2, GROWTH, DETERMINANT, FIGURE_5, FIGURE_6, MERGED)


def test_another_rotation_is_noticed(monkeypatch):
    wrap(monkeypatch, spectral_steps, "rotation_generator", lambda right, *given: 1.01 * right(*given))
    assert_noticed(TRUNCATED_EXPONENTIAL, 2, FIGURE_5)


@pytest.mark.parametrize(("rule", "part"), [("spectral_full", FIGURE_5), ("spectral", RULE_6)])
def test_another_damping_is_noticed(rule, part, monkeypatch):
    mutate(monkeypatch, rule, damping=lambda damping: 1.01 * damping)
    assert_noticed(TRUNCATED_EXPONENTIAL, 2, part)


def test_damping_by_the_own_trace_is_noticed(monkeypatch):
    wrap(monkeypatch, spectral_truncation, "adaptive_damping", lambda right, *given: right(*given)[::-1])
    assert_noticed(TRUNCATED_EXPONENTIAL, 2, FIGURE_6)


def test_the_truncation_with_another_coefficient_is_noticed(monkeypatch):
    monkeypatch.setitem(EXPONENTIALS, "first_order", lambda ops, gained, lost: 1 - lost + 1.05 * gained)
    wrong = LOGARITHMS_OF_EXPONENTIALS["first_order"]
    monkeypatch.setitem(
        LOGARITHMS_OF_EXPONENTIALS, "first_order", lambda ops, gained, lost: wrong(ops, 1.05 * gained, lost)
    )
    assert_noticed(TRUNCATED_EXPONENTIAL, 4, *FULL_ORDERS, *KRONECKER_ORDERS, *APART)


@pytest.mark.parametrize("part", sorted(APART))
def test_the_bound_is_tight(part):
    """So half of it would fail."""
    found = [row.measure.value for row in found_rows(few(TRUNCATED_EXPONENTIAL, 20, {part}))]
    assert max(found) > 0.9


def test_a_sum_that_rounds_a_small_gain_away_is_noticed(monkeypatch):
    monkeypatch.setitem(EXPONENTIALS, "first_order", lambda ops, gained, lost: 1 + (gained - lost))
    monkeypatch.setitem(
        LOGARITHMS_OF_EXPONENTIALS, "first_order", lambda ops, gained, lost: ops.log(1 + (gained - lost))
    )
    with np.errstate(all="ignore"):
        assert_noticed(TRUNCATED_EXPONENTIAL, 10, *POSITIVE)


def test_a_step_without_damping_is_noticed(monkeypatch):
    wrap(
        monkeypatch,
        spectral_steps,
        "spectral_growth",
        lambda right, *given: (right(*given)[0] / 2, given[-1]),
    )
    with np.errstate(all="ignore"):
        assert_noticed(TRUNCATED_EXPONENTIAL, 4, "d stays positive")


def test_damping_is_that_of_the_second_form():
    spectrum = draw_kronecker(np.random.default_rng(0), (3, 2))
    found = adaptive_damping(spectrum, 0.1, printed=False)
    (_, rows), (_, columns) = spectrum.factors
    np.testing.assert_allclose(found, [0.1 * 2 * np.mean(1 / columns), 0.1 * 3 * np.mean(1 / rows)])
    first, second = (np.trace(assembled(factor)) for factor in spectrum.factors)
    inverses = [2 * np.mean(1 / columns), 3 * np.mean(1 / rows)]
    expected = 0.1 * np.prod(inverses) * np.array([first, second])
    np.testing.assert_allclose(adaptive_damping(spectrum, 0.1, printed=True), expected)


# --- the diagonal case ---------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"power": 2.5}, {"exponential": "exact"}])
def test_another_diagonal_rule_is_noticed(options, monkeypatch):
    mutate(monkeypatch, "spectral_diagonal", options=options)
    assert_noticed(DIAGONAL, 2, ADAGRAD, RMSPROP, *ROOTS, KEPT)


def test_another_share_is_noticed(monkeypatch):
    mutate(monkeypatch, "spectral_diagonal", curvature_rate=lambda rate: 1.01 * rate)
    assert_noticed(DIAGONAL, 2, ADAGRAD, RMSPROP, *ROOTS, KEPT, ORDER)


def test_another_adagrad_is_noticed(monkeypatch):
    mutate(monkeypatch, "adagrad", initial_accumulator=lambda start: 0.99 * start)
    assert_noticed(DIAGONAL, 2, ADAGRAD)


def test_another_rmsprop_is_noticed(monkeypatch):
    mutate(monkeypatch, "rmsprop", beta2=lambda share: 0.99 * share)
    assert_noticed(DIAGONAL, 2, RMSPROP)


def test_a_basis_that_turns_is_noticed(monkeypatch):
    def wrong(right, ops, values, *given):
        upper = np.triu(np.full((len(values), len(values)), 1e-3), 1)
        return right(ops, values, *given) + upper - upper.T

    wrap(monkeypatch, spectral_steps, "rotation_generator", wrong)
    assert_noticed(DIAGONAL, 4, KEPT)
