"""Workloads: problems to optimize, one file per family. Each module lists its workloads in `WORKLOADS`."""

from __future__ import annotations

from curvebench.spec.definitions import Kind
from curvebench.workloads.workload import DataMissing, Metric, Problem, Role, Setting, Start, Workload

if not __name__.startswith("curvebench."):
    raise ImportError(
        "workloads is imported as curvebench.workloads; your own code imports from curvebench itself"
    )

KIND = Kind("workload", __name__, "WORKLOADS", Workload)


def workloads() -> dict[str, Workload]:
    """Return all workloads of this package by their names."""
    return KIND.own()
