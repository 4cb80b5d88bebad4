"""`curvebench run`, which computes one job, and `curvebench show`, which prints one run."""

from __future__ import annotations

from argparse import SUPPRESS, Namespace
from pathlib import Path

from curvebench.commands.command import RESULTS_FOLDER, argument, command, folder, positive, positive_number
from curvebench.paths import RESULTS
from curvebench.timing.clocks import limit_threads


@command(
    "run",
    argument("spec", type=Path, metavar="SPEC"),
    RESULTS_FOLDER,
    argument("--threads", type=positive, default=1, metavar="N"),
    argument("--keep-failed", action="store_true"),
    argument("--checkpoint-minutes", type=positive_number, metavar="NUMBER"),
    argument("--supervision", help=SUPPRESS),
)
def run(args: Namespace) -> None:
    """Compute one job from its spec file, as Snakemake does.

    Args:
        spec: spec file of the job, in results/specs; snakemake -n writes it
        --threads: CPU threads (default: %(default)s)
        --keep-failed: do not try again the runs that failed before; write them as failed
        --checkpoint-minutes: minutes between two checkpoints of a run
    """
    limit_threads(args.threads)
    from curvebench.spec.job import read_spec
    from curvebench.stages.devices import restrict_devices
    from curvebench.stages.jobs import run_job
    from curvebench.stages.supervision import supervision_of

    supervision = supervision_of(args.supervision) if args.supervision else None
    # If the supervisor has ended the job, this process only records the failures, and needs no device.
    if supervision is None or supervision.ended is None:
        restrict_devices(read_spec(args.spec).device)
    options = {"keep_failed": args.keep_failed, "checkpoint_minutes": args.checkpoint_minutes}
    print(run_job(args.spec, args.results, args.threads, supervision, **options))


@command(
    "show",
    argument("name", metavar="RUN"),
    folder("--results", RESULTS, "results folder, or folder of a published set"),
)
def show(args: Namespace) -> None:
    """Show one run: its settings, metrics and curves.

    The names are the column names that `curvebench tables export` writes.

    Args:
        name: name of the run, or a beginning that is unique
    """
    import polars as pl

    from curvebench.results.exporting import flattened
    from curvebench.results.reading import find_run

    run, curves = find_run(args.results, args.name)
    values = {name: value for name, value in flattened(run).row(0, named=True).items() if value is not None}
    width = max(map(len, values))
    print("\n".join(f"{name:<{width}}  {value}" for name, value in values.items()))
    with pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_hide_dataframe_shape=True, tbl_hide_column_data_types=True):
        print(curves.pivot("metric", index="step", values="value").sort("step"))
