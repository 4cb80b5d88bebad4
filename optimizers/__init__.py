"""The update rules, one file a family; every module's `RULES` is found by name."""

from __future__ import annotations

from optimizers.registry import found
from optimizers.rule import Hyperparameter, HyperparameterError, Rule

__all__ = ["Hyperparameter", "HyperparameterError", "Rule", "module_of", "rules"]


def rules() -> dict[str, Rule]:
    """Every rule by name."""
    return {name: rule for name, (rule, _) in found(__name__, "RULES").items()}


def module_of(name: str) -> str:
    """The module that defines a rule, for the hash of its sources."""
    return found(__name__, "RULES")[name][1]
