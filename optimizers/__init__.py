"""Update rules (optimizers), one file per family.

Each module lists its rules in `RULES`; the function `rules` returns the rules of all modules.
"""

from __future__ import annotations

from curvebench.optimizers.rule import Hyperparameter, HyperparameterError, Rule
from curvebench.spec.definitions import Kind

if not __name__.startswith("curvebench."):
    raise ImportError(
        "optimizers is imported as curvebench.optimizers; your own code imports from curvebench itself"
    )

OF_LIBRARIES = ", or write torch:FILE.py:Class or optax:FILE.py:function for an optimizer of these libraries"
KIND = Kind("optimizer", __name__, "RULES", Rule, OF_LIBRARIES)


def rules() -> dict[str, Rule]:
    """Return all update rules by name."""
    return KIND.own()
