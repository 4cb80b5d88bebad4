"""Studies for a cluster: one that succeeds, one whose first job exceeds its time limit, and one that
fails.
"""

from __future__ import annotations

from pathlib import Path

from tests.curvebench.tiny import write_study

TORCH = "      torch: {tuned_on: jax, seeds: {final: 2}}\n"
BASES = "bases: [identity, {egop: {blocks: all, samples: 2.0 d, sampling: {normal: 1.0}}}]"
BETTER = "better: [adam @ egop], compared_to: [adam]"

FAILING = '''\
"""Least squares, the first time asleep, or never there."""

import time
from dataclasses import replace
from pathlib import Path

from curvebench.workloads.convex import LEAST_SQUARES

SLEPT = Path(__file__).with_name("slept")


def _asleep(settings, random):
    if not SLEPT.exists():
        SLEPT.touch()
        time.sleep(3600)
    return LEAST_SQUARES.problem(settings, random)


def _broken(settings, random):
    raise ArithmeticError("this workload is broken")


WORKLOADS = (
    replace(LEAST_SQUARES, name="asleep", problem=_asleep),
    replace(LEAST_SQUARES, name="broken", problem=_broken),
)
'''


def write_studies(project: Path) -> None:
    """Replace the studies in a copy of the project by these three, on JAX alone."""
    folder = project / "benchmarks/studies"
    for path in folder.glob("*.yaml"):
        path.unlink()
    (project / "workloads/failing.py").write_text(FAILING)
    write_study(folder, (TORCH, ""))
    for name in ("asleep", "broken"):
        write_study(
            folder,
            (TORCH, ""),
            (BASES, "bases: [identity]"),
            ("least_squares:", f"{name}:"),
            ("tiny.claim", f"{name}.claim"),
            (BETTER, "better: [adam], compared_to: [sgd]"),
            name=name,
        )
