"""The EGOP's spectrum on natural data: the verdicts, and that the checks notice other spectra."""

import numpy as np
import pytest

from curvebench.benchmarks.claims import egop_spectra
from curvebench.benchmarks.claims.egop_spectra import LOSSES, NATURAL_DATA, RANDOM_DENSITY, SPECTRAL_RATIO
from tests.benchmarks.claim_mutations import assert_noticed, few, wrap
from tests.curvebench.property_checks.claim_rows import rows

LEAST_SQUARES = "the EGOP of least squares"
DECAY = "the decay of the eigenvalues"
INTERLACED = "the interlacing of the eigenvalues"
RATIOS = {
    "the ratios of eigenvalues, log-sum-exp",
    "the ratios of eigenvalues, logistic",
    "the ratios of eigenvalues, quartic",
    "the ratios of eigenvalues, cosines",
    "the ratios of eigenvalues, a product",
}
ATTAINED = "the bound is attained"
MEAN = "the mean tends to 2 / pi"
ABOVE = "the density exceeds 0.6"


def test_another_second_moment_is_noticed(monkeypatch):
    wrap(
        monkeypatch,
        egop_spectra,
        "least_squares_egop",
        lambda right, matrix, targets: right(matrix, 1.1 * targets),
    )
    assert_noticed(NATURAL_DATA, 8, LEAST_SQUARES)


def test_an_update_of_rank_two_is_noticed(monkeypatch):
    def wrong(right, *given):
        egop = right(*given)
        values, vectors = np.linalg.eigh(egop)
        return egop + values[-1] * np.outer(vectors[:, 0], vectors[:, 0])

    wrap(monkeypatch, egop_spectra, "least_squares_egop", wrong)
    assert_noticed(NATURAL_DATA, 20, DECAY, INTERLACED)


def test_the_decay_is_tight():
    """So a smaller power would fail."""
    found = [row.measure.value for row in rows(few(NATURAL_DATA, 20, {DECAY}), "quick")]
    assert max(found) == pytest.approx(1, abs=1e-8)


def test_data_that_decay_less_are_noticed(monkeypatch):
    def wrong(right, random, rows, columns, values):
        return right(random, rows, columns, values**0.5)

    wrap(monkeypatch, egop_spectra, "with_singular_values", wrong)
    assert_noticed(SPECTRAL_RATIO, 4, ATTAINED)


def test_a_matrix_that_is_left_out_is_noticed(monkeypatch):
    wrap(monkeypatch, egop_spectra, "egop_matrix", lambda right, given: np.diag(np.diag(right(given))))
    assert_noticed(SPECTRAL_RATIO, 3, *RATIOS)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_inverse_of_the_condition_number_is_noticed(loss, monkeypatch):
    def wrong(right, eigenvalues, values, inner):
        return right(eigenvalues, values, inner[::-1])

    wrap(monkeypatch, egop_spectra, "_against_lemma", wrong)
    assert_noticed(SPECTRAL_RATIO, 15, f"the ratios of eigenvalues, {loss}")


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_vectors_that_are_not_uniform_are_noticed(kind, monkeypatch):
    def wrong(right, random, count, size):
        if kind == "dense":
            return np.full((count, size), size**-0.5) * random.choice([0.999, 1.0], (count, 1))
        found = right(random, count, size)
        found[:, ::2] = 0.0
        return found / np.linalg.norm(found, axis=1, keepdims=True)

    wrap(monkeypatch, egop_spectra, "unit_vectors", wrong)
    assert_noticed(RANDOM_DENSITY, 1, MEAN, ABOVE)


def test_the_gradients_of_a_loss_by_hand():
    points = np.array([[1.0, 2.0], [0.5, -1.0]])
    np.testing.assert_allclose(egop_spectra.gradients_of(LOSSES["quartic"], points), 4 * points**3)
