"""The Kronecker product: the verdicts of the claim, and that its checks notice wrong algebra."""

import numpy as np
import pytest

from curvebench.benchmarks.claims import _matrices, notes_kronecker
from curvebench.benchmarks.claims.notes_kronecker import KRONECKER, MEANS, TWICE
from tests.benchmarks.claim_mutations import assert_noticed, few, wrap
from tests.curvebench.property_checks.claim_rows import rows

REARRANGED = "the rearranged product is an outer product"
NEAREST = "the nearest Kronecker product"
OUTER = "bounds on an outer product"


def test_factors_in_the_other_order_are_noticed(monkeypatch):
    wrap(monkeypatch, np, "kron", lambda right, a, b: right(b, a))
    assert_noticed(KRONECKER, 8, "entries, vec(A X B) and transposes", REARRANGED, NEAREST, OUTER)


def test_a_factor_of_another_size_is_noticed(monkeypatch):
    wrap(monkeypatch, np, "kron", lambda right, a, b: 0.99 * right(a, b))
    assert_noticed(
        KRONECKER, 8, "the mixed-product property", "trace and eigenvalues", "powers and order", OUTER
    )


def test_a_rearrangement_with_other_axes_is_noticed(monkeypatch):
    def wrong(matrix, m, n, d, l):  # noqa: E741
        return matrix.reshape(m * d, n * l)

    monkeypatch.setattr(notes_kronecker, "rearrange", wrong)
    assert_noticed(KRONECKER, 8, REARRANGED, NEAREST)


def test_a_rearrangement_that_does_not_turn_back_is_noticed(monkeypatch):
    def wrong(matrix, m, n, d, l):  # noqa: E741
        return np.roll(matrix.reshape(m, n, d, l).swapaxes(1, 2).reshape(m * d, n * l), 1, axis=0)

    monkeypatch.setattr(notes_kronecker, "rearrange", wrong)
    assert_noticed(KRONECKER, 8, TWICE)


def test_the_bounds_are_tight():
    """So a factor of less than r would fail."""
    ratios = [row.measure.value for row in rows(few(KRONECKER, 12, {OUTER}), "quick")]
    assert max(ratios) == pytest.approx(1, abs=1e-8)


def test_products_of_pairs_that_are_too_small_are_noticed(monkeypatch):
    def wrong(right, *given):
        return [(x, 0.9 * y) for x, y in right(*given)]

    wrap(monkeypatch, notes_kronecker, "_commuting_pairs", wrong)
    assert_noticed(KRONECKER, 30, MEANS)


def test_the_least_factor_of_an_order():
    small = np.diag([1.0, 2.0])
    assert _matrices.loewner_ratio(small, np.eye(2)) == pytest.approx(2)
    assert _matrices.loewner_ratio(small, np.diag([1.0, 0.0])) == np.inf
    assert _matrices.loewner_ratio(small, np.zeros((2, 2))) == np.inf
    assert _matrices.loewner_ratio(np.zeros((2, 2)), np.zeros((2, 2))) == 0


def test_the_geometric_mean_of_commuting_matrices_is_their_product():
    first, second = np.diag([1.0, 4.0]), np.diag([9.0, 16.0])
    np.testing.assert_allclose(notes_kronecker.geometric_mean(first, second, 0.5), np.diag([3.0, 8.0]))
    np.testing.assert_allclose(notes_kronecker.geometric_mean(first, second, 1.0), first)
