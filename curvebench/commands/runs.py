"""`curvebench run` and `show`: compute one job, look at one run."""

from __future__ import annotations

import os
import sys
from argparse import SUPPRESS, Namespace
from pathlib import Path

from curvebench.commands.command import RESULTS_FOLDER, argument, command, folder, positive, positive_number
from curvebench.paths import RESULTS
from curvebench.timing.clocks import limit_threads


@command(
    "run",
    argument("spec", type=Path, metavar="SPEC", help="a file of results/specs, written by snakemake"),
    RESULTS_FOLDER,
    argument("--threads", type=positive, default=1, help="processor threads (default: %(default)s)"),
    argument("--keep-failed", action="store_true", help="write what failed before as it is"),
    argument(
        "--checkpoint-minutes",
        type=positive_number,
        metavar="NUMBER",
        help="between two checkpoints of a run",
    ),
    argument("--attended", help=SUPPRESS),  # of curvebench.stages.supervision
)
def run(given: Namespace) -> None:
    """Compute one job from its spec file, as Snakemake does."""
    limit_threads(given.threads)
    from curvebench.spec.job import read_spec
    from curvebench.stages.devices import see_own
    from curvebench.stages.jobs import run_job
    from curvebench.stages.supervision import attended

    attendance = attended(given.attended) if given.attended else None
    if attendance is None or attendance.ended is None:  # else nothing is computed
        see_own(read_spec(given.spec).device)
    kept = {"keep_failed": given.keep_failed, "checkpoint_minutes": given.checkpoint_minutes}
    print(run_job(given.spec, given.results, given.threads, attendance, **kept))
    if (
        attendance and attendance.since is None
    ):  # nothing is left to do in this process, and libraries take up to 0.7 s to go
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


@command(
    "show",
    argument("name", metavar="RUN", help="the run's name, or a beginning that no other run has"),
    folder("--results", RESULTS, "results folder, or a published set"),
)
def show(given: Namespace) -> None:
    """Show one run: settings, metrics and curve, named as `tables export` names them."""
    import polars as pl

    from curvebench.results.exporting import flattened
    from curvebench.results.reading import find_run

    run, curves = find_run(given.results, given.name)
    known = {name: value for name, value in flattened(run).row(0, named=True).items() if value is not None}
    width = max(map(len, known))
    print("\n".join(f"{name:<{width}}  {value}" for name, value in known.items()))
    with pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_hide_dataframe_shape=True, tbl_hide_column_data_types=True):
        print(curves.pivot("metric", index="step", values="value").sort("step"))
