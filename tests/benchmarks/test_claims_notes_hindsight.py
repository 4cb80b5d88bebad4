"""Hindsight: the verdict of the claim, and that its checks notice wrong rules and formulas."""

import numpy as np
import pytest

from curvebench.benchmarks.claims import notes_hindsight
from tests.benchmarks.claim_mutations import assert_noticed, mutate, wrap

CLAIM = notes_hindsight.NOTES_HINDSIGHT


@pytest.mark.parametrize(
    ("optimizer", "part"),
    [
        ("adagrad_full", "Fact 2.1"),
        ("adagrad", "Fact 2.1 for numbers"),
        ("adagrad_norm", "1.5 times the best learning rate"),
        ("adagrad", "1.5 times the best diagonal"),
        ("adagrad_full", "1.5 times the best matrix"),
    ],
)
def test_steps_that_are_too_long_are_noticed(optimizer, part, monkeypatch):
    mutate(monkeypatch, optimizer, learning_rate=lambda rate: 2.5 * rate)
    assert_noticed(CLAIM, 15, part)


@pytest.mark.parametrize(
    "part",
    [
        "the step of Fact 2.1's proof",
        "eq. 40 is the best matrix",
        "and less unless O_T is diagonal",
        "equality for diagonal O_T",
    ],
)
def test_another_power_of_the_matrix_is_noticed(part, monkeypatch):
    wrap(monkeypatch, notes_hindsight, "power", lambda right, matrix, power: right(matrix, 1.1 * power))
    assert_noticed(CLAIM, 15, part)


def test_another_diagonal_is_noticed(monkeypatch):
    monkeypatch.setattr(notes_hindsight, "_best_diagonal", lambda squares, distances: np.sqrt(squares))
    assert_noticed(
        CLAIM, 5, "eq. 37 is the best diagonal", "eq. 38 is at most eq. 32", "and equal in proportion only"
    )


def test_one_rate_instead_of_the_diagonal_is_noticed(monkeypatch):
    def norm(squares, distances):
        return np.full(len(squares), 1 / notes_hindsight._best_rate(squares, distances))

    monkeypatch.setattr(notes_hindsight, "_best_diagonal", norm)
    assert_noticed(CLAIM, 1, "and equal in proportion only")


def test_another_norm_of_the_gradients_is_noticed(monkeypatch):
    def wrong(vectors):
        return float(np.sqrt(vectors.shape[1]) * np.linalg.norm(vectors))

    monkeypatch.setattr(notes_hindsight, "_trace_of_root", wrong)
    assert_noticed(CLAIM, 10, "eq. 41 is at most eq. 42")
