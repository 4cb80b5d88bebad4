"""Matrix iterations: the verdicts of the claim, and that its checks notice wrong ones."""

import numpy as np
import pytest

from curvebench.benchmarks.claims.notes_iterations import COLUMNS, ITERATIONS, logarithmic_rate
from curvebench.optimizers import matrix_functions
from curvebench.optimizers.matrix_functions import basis_tracking
from tests.benchmarks.claim_mutations import assert_noticed, wrap

NO_GAP = "power iteration without a gap"
POWER = "power iteration"
SUBSPACE = "the subspace's error is bounded"
RATES = "rates of the subspace and of the whole basis"
ROTATES = "online iteration follows a basis that rotates"
CROSS = "it follows eigenvalues that cross"


def test_a_slower_iteration_is_noticed(monkeypatch):
    true = basis_tracking.orthogonal_iteration

    def shifted(ops, matrix, basis):
        return true(ops, matrix + 0.2 * np.linalg.norm(matrix, 2) * np.eye(len(matrix)), basis)

    monkeypatch.setattr(matrix_functions, "orthogonal_iteration", shifted)
    monkeypatch.setattr(basis_tracking, "orthogonal_iteration", shifted)
    assert_noticed(ITERATIONS, 4, SUBSPACE, RATES, ROTATES)


def test_a_power_iteration_with_a_step_less_is_noticed(monkeypatch):
    def wrong(right, ops, matrix, vector, steps):
        return right(ops, matrix, vector, steps - 1)

    wrap(monkeypatch, matrix_functions, "power_iteration", wrong)
    assert_noticed(ITERATIONS, 4, POWER)


def test_columns_at_other_rates_are_noticed(monkeypatch):
    def wrong(right, ops, matrix, basis):
        return right(ops, matrix + 0.05 * np.eye(len(matrix)), basis)

    wrap(monkeypatch, matrix_functions, "orthogonal_iteration", wrong)
    assert_noticed(ITERATIONS, 4, COLUMNS)


def test_too_few_steps_are_noticed(monkeypatch):
    wrap(monkeypatch, matrix_functions, "power_iteration", lambda right, *given: right(*given[:3], 8))
    assert_noticed(ITERATIONS, 6, NO_GAP)


@pytest.mark.parametrize(
    ("name", "instead", "part"),
    [
        ("align_signs", lambda ops, basis, previous: basis, ROTATES),
        ("descending_order", lambda ops, values: np.arange(values.shape[-1]), CROSS),
    ],
    ids=["signs", "order"],
)
def test_a_missing_correction_is_noticed(name, instead, part, monkeypatch):
    monkeypatch.setattr(basis_tracking, name, instead)
    assert_noticed(ITERATIONS, 3, part)


def test_the_rate_is_read_between_rounding_and_the_start():
    errors = np.maximum(0.5 ** np.arange(100.0), 1e-15)
    errors[:20] = 1.0
    assert logarithmic_rate(errors) == pytest.approx(np.log(0.5))
