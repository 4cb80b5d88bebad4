"""Bases: changes of coordinates of the parameters in which optimizers run, one file per family.

Each module lists its bases in `BASES`; `bases` collects them.
"""

from __future__ import annotations

from curvebench.optimizers.bases.basis import Basis, Estimator, Group, Reestimation, Sampling
from curvebench.optimizers.bases.change import CHANGES, Change
from curvebench.optimizers.options import Option, OptionError
from curvebench.spec.definitions import Kind

KIND = Kind("basis", __name__, "BASES", Basis)


def bases() -> dict[str, Basis]:
    """Return all bases by name."""
    return KIND.own()
