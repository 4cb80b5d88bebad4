"""The problems, one file a family; every module's `WORKLOADS` is found by name."""

from __future__ import annotations

from documents.definitions import Kind
from workloads.workload import DataMissing, Metric, Problem, Role, Setting, Workload

__all__ = [
    "KIND",
    "DataMissing",
    "Metric",
    "Problem",
    "Role",
    "Setting",
    "Workload",
    "module_of",
    "workloads",
]


KIND = Kind("workload", __name__, "WORKLOADS", Workload)


def workloads() -> dict[str, Workload]:
    """Every workload by name."""
    return KIND.own()


def module_of(name: str) -> str:
    """The module that defines a workload, for the hash of its sources."""
    return KIND.module_of(name)
