"""How the project's rules move weights on gradients that are given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def moves(
    optimizer: str,
    gradients: np.ndarray,
    hyper: Mapping[str, float],
    options: Mapping[str, Any] | None = None,
) -> np.ndarray:
    """w_(t+1) - w_t of a rule that is given gradients (T, d) and starts at 0, (T, d); learning rate 1."""
    from harness import Online

    start = np.zeros(gradients.shape[1])
    online = Online(optimizer, {"w": start}, {"learning_rate": 1.0, **hyper}, options=options)
    weights = np.stack([start, *(online.step({"w": gradient})["w"] for gradient in gradients)])
    return np.diff(weights, axis=0)
