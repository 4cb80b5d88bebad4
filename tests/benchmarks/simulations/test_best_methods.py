"""The simulated losses are those of methods that no other beats."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.simulations.best_methods import LOGARITHMS


@pytest.mark.parametrize("name", LOGARITHMS)
def test_no_method_beats_the_first_on_more_than_half_of_the_seeds(name: str):
    values = LOGARITHMS[name](np.random.default_rng(0), 200_000, 3)
    beaten = (values[:, 1:] < values[:, :1]).mean(axis=0)
    expected = 0.45 if "diverges" in name else 0.5
    assert beaten == pytest.approx([expected, expected], abs=0.01)


def test_skewed_losses_differ_more_where_the_first_is_worse():
    values = LOGARITHMS["skewed"](np.random.default_rng(0), 200_000, 3)
    differences = values[:, 0] - values[:, 1]
    assert np.quantile(differences, 0.95) > 1.5 * -np.quantile(differences, 0.05)
