"""The bases that optimizers run in, one file a family; every module's `BASES` is found by name."""

from __future__ import annotations

from documents.definitions import Kind
from optimizers.bases.basis import Basis, Estimator, Group, Reestimation, Sampling
from optimizers.bases.change import CHANGES, Change
from optimizers.options import Option, OptionError

KIND = Kind("basis", __name__, "BASES", Basis)


def bases() -> dict[str, Basis]:
    """Every basis by name."""
    return KIND.own()
