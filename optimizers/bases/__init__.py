"""Bases that optimizers run in, one file per family. The `BASES` of every module are found by name."""

from __future__ import annotations

from curvebench.optimizers.bases.basis import Basis, Estimator, Group, Reestimation, Sampling
from curvebench.optimizers.bases.change import CHANGES, Change
from curvebench.optimizers.options import Option, OptionError
from curvebench.spec.definitions import Kind

KIND = Kind("basis", __name__, "BASES", Basis)


def bases() -> dict[str, Basis]:
    """Return every basis by name."""
    return KIND.own()
