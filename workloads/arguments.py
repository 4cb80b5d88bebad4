"""Types of the arguments of a workload's functions: operations, arrays, settings and random generators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

Array = Any  # a numpy.ndarray, torch.Tensor or jax.Array; workloads are written for all three
Ops = Any  # the array functions of a backend (curvebench/arrays), passed to each function of a workload
Arrays = Mapping[str, Array]
Settings = Mapping[str, Any]


class Random(Protocol):
    """Source of the random generators of one problem instance.

    The generators are seeded by the workload's name, the run's seed and a purpose.
    """

    def __call__(self, purpose: str, shared: bool = False) -> np.random.Generator:
        """Return a new generator for `purpose`; with `shared`, every seed gets the same generator."""
