"""The EGOP's spectrum on natural data: the verdicts, and that the checks notice other spectra."""

import numpy as np
import pytest

from benchmarks.claims import egop_spectra
from benchmarks.claims._matrices import with_singular_values
from benchmarks.claims.egop_spectra import LOSSES, NATURAL_DATA, RANDOM_DENSITY, SPECTRAL_RATIO
from harness.checks import rows
from optimizers.bases import estimators
from tests.benchmarks.claim_mutations import failing, few, verdicts_of

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


def test_the_verdicts():
    claim = few(NATURAL_DATA, 10)
    assert verdicts_of(claim) == {"as corrected": "reproduced", "as printed": "not reproduced"}
    assert failing(claim) == {(INTERLACED, "as printed")}
    assert verdicts_of(few(SPECTRAL_RATIO, 3)) == {"": "reproduced"}
    assert verdicts_of(few(RANDOM_DENSITY, 1)) == {"": "reproduced"}


def test_another_second_moment_is_noticed(monkeypatch):
    right = egop_spectra.least_squares_egop

    def wrong(matrix, targets):
        return right(matrix, 1.1 * targets)

    monkeypatch.setattr(egop_spectra, "least_squares_egop", wrong)
    assert failing(few(NATURAL_DATA, 8, {LEAST_SQUARES})) == {(LEAST_SQUARES, "")}


def test_an_update_of_rank_two_is_noticed(monkeypatch):
    right = egop_spectra.least_squares_egop

    def wrong(matrix, targets):
        egop = right(matrix, targets)
        values, vectors = np.linalg.eigh(egop)
        return egop + values[-1] * np.outer(vectors[:, 0], vectors[:, 0])

    monkeypatch.setattr(egop_spectra, "least_squares_egop", wrong)
    found = failing(few(NATURAL_DATA, 20, {DECAY, INTERLACED}))
    assert found >= {(DECAY, ""), (INTERLACED, "as corrected")}


def test_the_decay_is_tight():
    """So a smaller power would fail."""
    found = [row.measure.value for row in rows(few(NATURAL_DATA, 20, {DECAY}), "quick")]
    assert max(found) == pytest.approx(1, abs=1e-8)


def test_data_that_decay_less_are_noticed(monkeypatch):
    right = with_singular_values

    def wrong(random, rows, columns, values):
        return right(random, rows, columns, values**0.5)

    monkeypatch.setattr(egop_spectra, "with_singular_values", wrong)
    assert failing(few(SPECTRAL_RATIO, 4, {ATTAINED})) == {(ATTAINED, "")}


def test_a_matrix_that_is_left_out_is_noticed(monkeypatch):
    right = estimators.egop_matrix
    monkeypatch.setattr(estimators, "egop_matrix", lambda gradients: np.diag(np.diag(right(gradients))))
    assert failing(few(SPECTRAL_RATIO, 3, RATIOS)) == {(part, "") for part in RATIOS}


@pytest.mark.parametrize("loss", LOSSES)
def test_the_inverse_of_the_condition_number_is_noticed(loss, monkeypatch):
    right = egop_spectra._against_lemma

    def wrong(eigenvalues, values, inner):
        return right(eigenvalues, values, inner[::-1])

    monkeypatch.setattr(egop_spectra, "_against_lemma", wrong)
    part = f"the ratios of eigenvalues, {loss}"
    assert failing(few(SPECTRAL_RATIO, 15, {part})) == {(part, "")}


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_vectors_that_are_not_uniform_are_noticed(kind, monkeypatch):
    right = egop_spectra.unit_vectors

    def wrong(random, count, size):
        if kind == "dense":
            return np.full((count, size), size**-0.5) * random.choice([0.999, 1.0], (count, 1))
        found = right(random, count, size)
        found[:, ::2] = 0.0
        return found / np.linalg.norm(found, axis=1, keepdims=True)

    monkeypatch.setattr(egop_spectra, "unit_vectors", wrong)
    parts = {MEAN, ABOVE}
    assert failing(few(RANDOM_DENSITY, 1, parts)) == {(part, "") for part in parts}


def test_the_gradients_of_a_loss_by_hand():
    points = np.array([[1.0, 2.0], [0.5, -1.0]])
    np.testing.assert_allclose(egop_spectra.gradients_of(LOSSES["quartic"], points), 4 * points**3)
