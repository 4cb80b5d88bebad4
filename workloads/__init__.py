"""The problems, one file a family; every module's `WORKLOADS` is found by name."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from workloads.workload import DataMissing, Metric, Problem, Role, Setting, Workload

__all__ = ["DataMissing", "Metric", "Problem", "Role", "Setting", "Workload", "module_of", "workloads"]


@cache
def _found() -> dict[str, tuple[Workload, str]]:
    found: dict[str, tuple[Workload, str]] = {}
    for info in sorted(pkgutil.iter_modules(__path__, f"{__name__}."), key=lambda info: info.name):
        module = importlib.import_module(info.name)
        for workload in getattr(module, "WORKLOADS", ()):
            if workload.name in found:
                raise ValueError(
                    f"two workloads are named {workload.name!r}: in {found[workload.name][1]} and {info.name}"
                )
            found[workload.name] = (workload, info.name)
    return found


def workloads() -> dict[str, Workload]:
    """Every workload by name."""
    return {name: workload for name, (workload, _) in _found().items()}


def module_of(name: str) -> str:
    """The module that defines a workload, for the hash of its sources."""
    return _found()[name][1]
