"""The bases that optimizers run in, one file a family; every module's `BASES` is found by name."""

from __future__ import annotations

from optimizers.bases.basis import Basis, Estimator, Group, Reestimation, Sampling
from optimizers.bases.change import CHANGES, Change
from optimizers.options import Option, OptionError
from optimizers.registry import found

__all__ = [
    "CHANGES",
    "Basis",
    "Change",
    "Estimator",
    "Group",
    "Option",
    "OptionError",
    "Reestimation",
    "Sampling",
    "bases",
    "module_of",
]


def bases() -> dict[str, Basis]:
    """Every basis by name."""
    return {name: basis for name, (basis, _) in found(__name__, "BASES").items()}


def module_of(name: str) -> str:
    """The module that defines a basis, for the hash of its sources."""
    return found(__name__, "BASES")[name][1]
