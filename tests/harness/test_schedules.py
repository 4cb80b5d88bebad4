"""Learning-rate schedules against torch's and against closed forms."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from harness.schedules import multipliers


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


@pytest.mark.parametrize("name", ["constant", "cosine", "linear"])
def test_warm_up_rises_to_one(name: str) -> None:
    values = multipliers({"name": name, "warmup": 0.2, "final": 0.1}, 100)
    np.testing.assert_allclose(values[:20], np.arange(1, 21) / 20)
    assert values[20] == 1
    assert (np.diff(values[20:]) <= 0).all()
    assert values.min() >= 0.05


def test_final_level() -> None:
    values = multipliers({"name": "linear", "final": 0.25}, 4)
    np.testing.assert_allclose(values, [1, 0.8125, 0.625, 0.4375])
