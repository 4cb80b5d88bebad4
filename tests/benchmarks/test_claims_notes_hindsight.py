"""Hindsight: the verdict of the claim, and that its checks notice wrong rules and formulas."""

import numpy as np
import pytest

from benchmarks.claims import notes_hindsight
from benchmarks.claims._online_games import power
from tests.benchmarks.claim_mutations import failing, few, mutate, verdicts_of

CLAIM = notes_hindsight.NOTES_HINDSIGHT


def test_reproduced_but_for_two_misprints():
    claim = few(CLAIM, 15)
    assert verdicts_of(claim) == {"as corrected": "reproduced", "as printed": "partly reproduced"}
    assert failing(claim) == {
        ("the step of Fact 2.1's proof", "as printed"),
        ("equality for diagonal O_T", "as printed"),
    }


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
    assert failing(few(CLAIM, 15, {part})) == {(part, "")}


@pytest.mark.parametrize("part", ["eq. 40 is the best matrix", "and less unless O_T is diagonal"])
def test_another_power_of_the_matrix_is_noticed(part, monkeypatch):
    monkeypatch.setattr(notes_hindsight, "power", lambda matrix, exponent: power(matrix, 1.1 * exponent))
    assert failing(few(CLAIM, 15, {part})) == {(part, "")}


def test_another_diagonal_is_noticed(monkeypatch):
    monkeypatch.setattr(notes_hindsight, "_best_diagonal", lambda squares, distances: np.sqrt(squares))
    part = "eq. 37 is the best diagonal"
    assert failing(few(CLAIM, 5, {part})) == {(part, "")}
