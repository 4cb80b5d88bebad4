"""Learning-rate schedules: a multiplier for every step, the same for all methods of a study."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

SHAPES: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "constant": np.ones_like,
    "cosine": lambda progress: 0.5 * (1.0 + np.cos(math.pi * progress)),
    "linear": lambda progress: 1.0 - progress,
}


def multipliers(schedule: Mapping[str, Any], steps: int) -> np.ndarray:
    """The multiplier of each step, shape (steps,), float64.

    `warmup` is the share of the steps in which the multiplier rises linearly to 1; after it the named
    shape goes from 1 towards `final`, which it would reach one step after the last (as in
    torch.optim.lr_scheduler.CosineAnnealingLR with T_max = steps).
    """
    warm = round(float(schedule.get("warmup", 0.0)) * steps)
    final = float(schedule.get("final", 0.0))
    step = np.arange(steps, dtype=np.float64)
    progress = np.clip((step - warm) / max(steps - warm, 1), 0.0, 1.0)
    shape = SHAPES[schedule.get("name", "constant")](progress)
    level = shape if schedule.get("name", "constant") == "constant" else final + (1.0 - final) * shape
    return np.where(step < warm, (step + 1.0) / max(warm, 1), level)
