"""Seconds of jobs by cause: steps and evaluation, which a study requires, and causes of overhead."""

from __future__ import annotations

import polars as pl

from curvebench.results.schema import PARTS_OF_A_JOB

CAUSES = PARTS_OF_A_JOB[:-1]  # The last entry of PARTS_OF_A_JOB is the total.


def seconds_by_cause(jobs: pl.DataFrame, *by: str) -> pl.DataFrame:
    """Sum the seconds of jobs by cause.

    Args:
        jobs: the table `jobs`.
        by: columns by which jobs are grouped, such as `study`. If there are none, the result is a single row.

    Returns:
        Frame with a row per group. Its columns are the columns in `by`; a sum of seconds for each cause, such
        as compile_seconds; total_seconds; jobs, the number of jobs; peak_memory_bytes, the maximum over the
        jobs; and work_share, the seconds of steps and evaluation divided by total_seconds (NaN if there are
        no jobs).
    """
    total = pl.col("total_seconds").sum()
    sums = [
        *(pl.col(f"{part}_seconds").sum() for part in PARTS_OF_A_JOB),
        pl.len().alias("jobs"),
        pl.col("peak_memory_bytes").max(),
        (pl.sum_horizontal(pl.sum("step_seconds", "evaluation_seconds")) / total).alias("work_share"),
    ]
    return jobs.group_by(by).agg(sums).sort(by) if by else jobs.select(sums)
