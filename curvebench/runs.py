"""`curvebench run` and `show`: compute one job, look at one run."""

from __future__ import annotations

import os
from argparse import SUPPRESS, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from curvebench.command import RESULTS_FOLDER, argument, command, folder, positive
from harness.paths import RESULTS

BARS = " .:-=+*#%@"  # from the lowest to the highest value of a curve
CURVE_WIDTH = 60
NESTED = ("hyperparameters", "final_metrics", "best_metrics", "targets")


def announce_threads(threads: int) -> None:
    """Say how many threads libraries may use, in what they read when they are loaded."""
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = str(threads)


@command(
    "run",
    argument("spec", type=Path, metavar="SPEC", help="a file of results/specs, written by snakemake"),
    RESULTS_FOLDER,
    argument("--threads", type=positive, default=1, help="processor threads (default: %(default)s)"),
    argument("--keep-failed", action="store_true", help="write what failed before as it is"),
    argument("--attended", help=SUPPRESS),  # of harness.stages.supervision
)
def run(given: Namespace) -> None:
    """Compute one job from its spec file, as Snakemake does."""
    announce_threads(given.threads)
    from harness.stages.jobs import run_job
    from harness.stages.supervision import attended

    attendance = attended(given.attended) if given.attended else None
    print(run_job(given.spec, given.results, given.threads, attendance, given.keep_failed))


@command(
    "show",
    argument("name", metavar="RUN", help="the run's name, or a beginning that no other run has"),
    folder("--results", RESULTS, "results folder, or a published set"),
)
def show(given: Namespace) -> None:
    """Show one run: settings, metrics and curve."""
    from results.reading import find_run

    row, curves = find_run(given.results, given.name)
    curve_of: dict[str, list[float]] = {}
    for metric, value in curves.select("metric", "value").iter_rows():
        curve_of.setdefault(metric, []).append(value)
    print("\n".join([*_run_lines(row), "", "CURVES", *_curve_lines(curve_of)]))


def _run_lines(row: Mapping[str, Any]) -> list[str]:
    plain = {key: value for key, value in row.items() if key not in NESTED and value is not None}
    plain |= {item["name"]: item["value"] for item in row["hyperparameters"] or []}
    width = max(map(len, plain))
    lines = [f"{key:<{width}}  {value}" for key, value in plain.items()]
    best = {item["name"]: item for item in row["best_metrics"] or []}
    lines += ["", "METRICS"]
    for item in row["final_metrics"] or []:
        at_best = best.get(item["name"])
        also = f", best {at_best['value']:.6g} at step {at_best['step']}" if at_best else ""
        lines.append(f"{item['name']}: final {item['value']:.6g}{also}")
    for target in row["targets"] or []:
        reached = "not reached" if target["steps"] is None else f"reached after {target['steps']} steps"
        lines.append(f"target {target['metric']} {target['threshold']:g}: {reached}")
    return lines


def _curve_lines(curves: Mapping[str, Sequence[float]]) -> list[str]:
    width = max(map(len, curves), default=0)
    return [
        f"{metric:<{width}}  {bars(values)}  {values[0]:.4g} to {values[-1]:.4g}"
        for metric, values in curves.items()
    ]


def bars(values: Sequence[float], width: int = CURVE_WIDTH) -> str:
    """A curve as one line of text: a character for each of `width` checkpoints, `!` where not finite.

    The scale is logarithmic where all finite values are positive.
    """
    import numpy as np

    array = np.asarray(values, np.float64)
    if len(array) > width:
        array = array[np.linspace(0, len(array) - 1, width).round().astype(int)]
    finite = np.isfinite(array)
    if not finite.any():
        return "!" * len(array)
    if (array[finite] > 0).all():
        array = np.log(array, out=np.full_like(array, np.nan), where=finite)
    low, high = array[finite].min(), array[finite].max()
    levels = (array - low) / (high - low) * (len(BARS) - 1) if high > low else np.zeros_like(array)
    return "".join(BARS[round(level)] if ok else "!" for level, ok in zip(levels, finite, strict=True))
