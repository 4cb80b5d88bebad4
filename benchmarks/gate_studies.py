"""The gate's accuracy over commits: one study's final runs, computed on each commit by its own code."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gate_timing import GateError

INHERITED_PLAN = "CURVEBENCH_WIRING"  # of a Snakemake that this one might be started from
SHOWN = 6  # how many of Snakemake's last lines a message shows


@dataclass(frozen=True)
class StudyRuns:
    """The runs that are compared.

    Args:
        study: a study's name, which is its file's stem.
        scale: one of its scales.
        backend: `jax` or `torch`.
    """

    study: str
    scale: str
    backend: str

    def __str__(self) -> str:
        return f"{self.study} at scale {self.scale} on {self.backend}"


def final_runs(checkout: Path, commit: str, runs: StudyRuns, folder: Path) -> Path:
    """Run what the final runs of a study need, without timing, figures and site.

    What the folder already holds of the same commit is not run again.

    Args:
        checkout: the commit's files.
        commit: its name, for messages.
        runs: the runs.
        folder: absolute; is given the results and what Snakemake said.

    Returns:
        The folder of the final runs' tables.

    Raises:
        GateError: when the commit has no such runs, or one of its jobs fails.
    """
    folder.mkdir(parents=True, exist_ok=True)
    said = folder / "snakemake.log"
    command = (
        *(sys.executable, "-m", "snakemake", "--cores", "all", "--until", "final", "--config"),
        *(f"studies={runs.study}", f"scale={runs.scale}", f"backends={runs.backend}"),
        *(f"results={folder / 'results'}", f"site={folder / 'site'}", "--", "reports"),
    )
    with said.open("w") as file:
        done = subprocess.run(
            command, cwd=checkout, env=_variables(checkout), stdout=file, stderr=file, check=False
        )
    lines = [line for line in said.read_text().splitlines() if line.strip()]
    if done.returncode:
        last = "\n".join(lines[-SHOWN:])
        raise GateError(f"{runs} failed at {commit[:12]}, as {said} says:\n{last}")
    finals = folder / "results/runs" / runs.study / runs.scale / "final"
    if not finals.is_dir():
        reasons = [line.strip() for line in lines if line.startswith("  skipped ")]
        raise GateError(f"{runs}: {commit[:12]} has no such runs ({'; '.join(reasons)})")
    return finals


def _variables(checkout: Path) -> dict[str, str]:
    """Those of an activated environment in which the checkout's packages come first."""
    kept = {name: value for name, value in os.environ.items() if name != INHERITED_PLAN}
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', '')}"
    return {**kept, "PATH": path, "PYTHONPATH": str(checkout)}
