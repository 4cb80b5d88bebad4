"""The update rules, one file a family; every module's `RULES` is found by name."""

from __future__ import annotations

from curvebench.optimizers.rule import Hyperparameter, HyperparameterError, Rule
from curvebench.spec.definitions import Kind

if not __name__.startswith("curvebench."):
    raise ImportError(
        "optimizers is imported as curvebench.optimizers; your own code imports from curvebench itself"
    )

KIND = Kind("optimizer", __name__, "RULES", Rule)


def rules() -> dict[str, Rule]:
    """Every rule by name."""
    return KIND.own()
