"""Learning-rate schedules against torch's and against closed forms."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.engine.schedules import multipliers


def test_cosine_equals_torch() -> None:
    """torch.optim.lr_scheduler.CosineAnnealingLR with T_max = steps, which 000 C.6 names."""
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=50)
    rates = []
    for _ in range(50):
        rates.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    np.testing.assert_allclose(multipliers({"name": "cosine"}, 50), rates, rtol=1e-12)


def test_constant_is_one() -> None:
    assert (multipliers({"name": "constant"}, 7) == 1).all()


@pytest.mark.parametrize("name", ["constant", "cosine", "linear", "inverse_sqrt"])
def test_warm_up_rises_to_one(name: str) -> None:
    values = multipliers({"name": name, "warmup": 0.2, "final": 0.1}, 100)
    np.testing.assert_allclose(values[:20], np.arange(1, 21) / 20)
    assert values[20] == 1
    assert (np.diff(values[20:]) <= 0).all()
    assert values.min() >= 0.05


def test_final_level() -> None:
    values = multipliers({"name": "linear", "final": 0.25}, 4)
    np.testing.assert_allclose(values, [1, 0.8125, 0.625, 0.4375])


def test_inverse_root_counts_from_the_end_of_warm_up() -> None:
    """eta_t = 1 / sqrt(t) (002 eq. 24), with t = 1 where warm-up has reached 1."""
    steps = np.arange(1, 101)
    np.testing.assert_allclose(multipliers({"name": "inverse_sqrt"}, 100), 1 / np.sqrt(steps), rtol=1e-15)
    values = multipliers({"name": "inverse_sqrt", "warmup": 0.2}, 100)
    np.testing.assert_allclose(values[:20], np.arange(1, 21) / 20)
    np.testing.assert_allclose(values[20:], 1 / np.sqrt(steps[:80]), rtol=1e-15)


def test_constant_cools_down_at_the_end() -> None:
    values = multipliers({"name": "constant", "warmup": 0.2, "cooldown": 0.4, "final": 0.2}, 10)
    np.testing.assert_allclose(values, [0.5, 1, 1, 1, 1, 1, 1, 0.8, 0.6, 0.4])


@given(
    steps=st.integers(1, 60),
    warmup=st.floats(0, 0.9),
    share=st.floats(0, 1),
    final=st.floats(0, 1),
)
def test_a_cool_down_lies_between_a_constant_and_a_linear_schedule(
    steps: int, warmup: float, share: float, final: float
) -> None:
    """Without a stable phase it is the linear schedule, and it never rises after warm-up."""
    whole = 1 - warmup
    values = multipliers({"warmup": warmup, "cooldown": share * whole, "final": final}, steps)
    linear = multipliers({"name": "linear", "warmup": warmup, "final": final}, steps)
    warm = round(warmup * steps)
    assert (values >= linear - 1e-12).all()
    assert (values <= 1).all()
    assert (np.diff(values[warm:]) <= 1e-12).all()
    if steps > warm:
        assert values[warm] == 1
    full = multipliers({"warmup": warmup, "cooldown": 1.0, "final": final}, steps)
    np.testing.assert_array_equal(full, linear)
