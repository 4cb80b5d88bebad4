"""The update rules, one file a family; every module's `RULES` is found by name."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from optimizers.rule import Hyperparameter, HyperparameterError, Rule

__all__ = ["Hyperparameter", "HyperparameterError", "Rule", "module_of", "rules"]


@cache
def _found() -> dict[str, tuple[Rule, str]]:
    found: dict[str, tuple[Rule, str]] = {}
    for info in sorted(pkgutil.iter_modules(__path__, f"{__name__}."), key=lambda info: info.name):
        module = importlib.import_module(info.name)
        for rule in getattr(module, "RULES", ()):
            if rule.name in found:
                raise ValueError(
                    f"two rules are named {rule.name!r}: in {found[rule.name][1]} and {info.name}"
                )
            found[rule.name] = (rule, info.name)
    return found


def rules() -> dict[str, Rule]:
    """Every rule by name."""
    return {name: rule for name, (rule, _) in _found().items()}


def module_of(name: str) -> str:
    """The module that defines a rule, for the hash of its sources."""
    return _found()[name][1]
