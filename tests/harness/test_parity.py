"""Parity of the backends, and that the comparison would notice a difference."""

from __future__ import annotations

import json

import numpy as np
import pytest

from harness.cli import main
from harness.parity import PROBLEMS, TOLERANCE, Parity, difference
from optimizers import rules


@pytest.mark.slow
def test_every_optimizer_takes_the_same_steps_on_every_backend(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["parity", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {(row["optimizer"], row["problem"]) for row in rows} == {
        (name, problem.label) for name in rules() for problem in PROBLEMS
    }
    assert all(row["difference"] <= TOLERANCE for row in rows if row["judged"])
    assert {row["comparison"] for row in rows if row["judged"]} == {"torch against jax", "numpy against jax"}
    single = [row["difference"] for row in rows if row["comparison"] == "float32 against float64"]
    assert 0 < np.median(single) < 1000


def test_a_difference_is_relative_to_the_largest_entry_of_its_array() -> None:
    other = {"a": np.array([1.0, -100.0]), "b": np.array([1e-3])}
    one = {"a": np.array([1.5, -100.0]), "b": np.array([1e-3 + 1e-6])}
    assert difference(one, other) == pytest.approx(0.005)


def test_only_what_is_judged_can_fail() -> None:
    assert not Parity("a", "b", "c", 2 * TOLERANCE, judged=True).holds
    assert Parity("a", "b", "c", 2 * TOLERANCE, judged=False).holds
    assert not Parity("a", "b", "c", float("nan"), judged=True).holds
