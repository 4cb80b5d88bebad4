"""The gate's accuracy over commits: a study's final runs on each commit's code, compared seed by seed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import polars as pl

from benchmarks.gate_statistics import Verdict, decide
from documents.errors import InputError
from results.reading import read

INHERITED_PLAN = "CURVEBENCH_WIRING"  # of a Snakemake that this one might be started from
SHOWN = 6  # how many of Snakemake's last lines a message shows
CELL = ["study", "scale", "workload", "optimizer", "basis", "backend", "dtype"]


def final_runs(checkout: Path, study: str, scale: str, backend: str, folder: Path) -> Path:
    """Run what the final runs of a study need, without timing, figures and site.

    Args:
        checkout: a commit's files.
        study: a study's name, which is its file's stem.
        scale: one of its scales.
        backend: `jax` or `torch`.
        folder: absolute; is given the results.

    Returns:
        The folder of the final runs' tables.

    Raises:
        InputError: when the commit has no such runs, or one of its jobs fails.
    """
    command = (
        *(sys.executable, "-m", "snakemake", "--cores", "all", "--until", "final", "--config"),
        *(f"studies={study}", f"scale={scale}", f"backends={backend}"),
        *(f"results={folder / 'results'}", f"site={folder / 'site'}", "--", "reports"),
    )
    done = subprocess.run(
        command,
        cwd=checkout,
        env=_variables(checkout),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    runs = f"{study} at scale {scale} on {backend}, {checkout.name}"
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    if done.returncode:
        last = "\n".join(lines[-SHOWN:])
        raise InputError(f"{runs}: a job failed; what was said last:\n{last}")
    finals = folder / "results/runs" / study / scale / "final"
    if not finals.is_dir():
        reasons = [line.strip() for line in lines if line.startswith("  skipped ")]
        raise InputError(f"{runs}: there are no such runs ({'; '.join(reasons)})")
    return finals


def _variables(checkout: Path) -> dict[str, str]:
    """Those of an activated environment in which the checkout's packages come first."""
    kept = {name: value for name, value in os.environ.items() if name != INHERITED_PLAN}
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', '')}"
    return {**kept, "PATH": path, "PYTHONPATH": str(checkout)}


def _final_values(folder: Path, metric: str) -> pl.DataFrame:
    """Columns of CELL, `seed` and `value`: the final metric of the runs of stage `final`."""
    finals = (
        read(folder, "runs")
        .filter(pl.col("stage") == "final")
        .explode("final_metrics")
        .unnest("final_metrics")
        .filter(pl.col("name") == metric)
        .select(*CELL, "seed", "value")
    )
    if finals.is_empty():
        raise InputError(f"{folder}: no run of stage final has the metric {metric!r}; name one by --metric")
    if (finals["value"] < 0).any():
        raise InputError(f"{folder}: {metric} is negative in places; ratios need a metric from 0 on")
    return finals


def compare_tables(base: Path, head: Path, metric: str, effect: float, level: float) -> dict[str, Verdict]:
    """A verdict for each cell, by its names, over the seeds that both folders of tables have.

    Equal code gives equal losses, and a noise of 0; rounding that trajectories amplify makes it larger. A
    cell of which nothing is paired is an error: it would pass unseen.

    Args:
        base, head: folders of tables.
        metric: a metric of which less is better and none is negative, such as train_loss.
        effect, level: as in `decide`.

    Raises:
        InputError: for a cell that only one side has, an unknown metric or a negative one.
    """
    left, right = _final_values(base, metric), _final_values(head, metric)
    pairs = left.join(right, on=[*CELL, "seed"], how="inner", suffix="_head", validate="1:1")
    alone = pl.concat([left, right]).join(pairs, on=CELL, how="anti")
    if not alone.is_empty():
        cell = ", ".join(str(value) for value in alone.select(CELL).row(0))
        raise InputError(f"{cell}: {base} or {head} has runs that the other cannot pair")
    return {
        " ".join(str(name) for name in names): decide(each["value"], each["value_head"], effect, level)
        for names, each in pairs.sort([*CELL, "seed"]).group_by(CELL, maintain_order=True)
    }
