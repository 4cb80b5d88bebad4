"""Learning-rate schedules: a multiplier for every step, the same for all methods of a study."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

# What multiplies the rate, from 1 on, by steps since the fall began and the share of the fall that is done.
SHAPES: Mapping[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "constant": lambda since, progress: 1.0 - progress,
    "cosine": lambda since, progress: 0.5 * (1.0 + np.cos(math.pi * progress)),
    "linear": lambda since, progress: 1.0 - progress,
    "inverse_sqrt": lambda since, progress: 1.0 / np.sqrt(1.0 + since),  # 002 eq. 24
}


def multipliers(schedule: Mapping[str, Any], steps: int) -> np.ndarray:
    """The multiplier of each step, shape (steps,), float64.

    `warmup` is the share of the steps in which the multiplier rises linearly to 1. After it cosine and linear
    go from 1 towards `final`, which they would reach one step after the last (as in
    torch.optim.lr_scheduler.CosineAnnealingLR with T_max = steps), and inverse_sqrt is 1 / sqrt(t) with t = 1
    at the first step after warm-up. A constant schedule stays at 1 and falls linearly in the last share
    `cooldown` of the steps, in the same way: warm-up, stable phase, cool-down (002 Sec. 4.4).
    """
    name = schedule.get("name", "constant")
    warm = round(float(schedule.get("warmup", 0.0)) * steps)
    cool = min(round(float(schedule.get("cooldown", 0.0)) * steps), steps - warm)
    final = float(schedule.get("final", 0.0))
    step = np.arange(steps, dtype=np.float64)
    start = steps - cool if name == "constant" else warm
    since = np.maximum(step - start, 0.0)
    progress = since / max(steps - start, 1)
    level = final + (1.0 - final) * SHAPES[name](since, progress)
    return np.where(step < warm, (step + 1.0) / max(warm, 1), level)
