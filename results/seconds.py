"""Where the seconds of jobs went: to steps and evaluation, which a study requires, or to overhead."""

from __future__ import annotations

import polars as pl

from curvebench.results.schema import PARTS_OF_A_JOB

CAUSES = PARTS_OF_A_JOB[:-1]  # the last entry is the total


def seconds_by_cause(jobs: pl.DataFrame, *by: str) -> pl.DataFrame:
    """Sum the seconds of jobs by cause.

    Args:
        jobs: the table `jobs`.
        by: columns by which jobs are grouped, such as `study`; none for one row of all jobs.

    Returns:
        The columns of `by`, `{cause}_seconds`, total_seconds, jobs (their number), peak_memory_bytes (the
        largest of any job), and work_share: the share of total_seconds in steps and evaluation, NaN without
        jobs.
    """
    total = pl.col("total_seconds").sum()
    sums = [
        *(pl.col(f"{part}_seconds").sum() for part in PARTS_OF_A_JOB),
        pl.len().alias("jobs"),
        pl.col("peak_memory_bytes").max(),
        (pl.sum_horizontal(pl.sum("step_seconds", "evaluation_seconds")) / total).alias("work_share"),
    ]
    return jobs.group_by(by).agg(sums).sort(by) if by else jobs.select(sums)
