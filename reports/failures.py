"""What failed of all that a report shows, and why."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

import polars as pl

from curvebench.results.reading import read
from curvebench.spec.plan import ChecksPlan, ClaimPlan, ReportPlan

ABOUT = ("study", "stage", "backend")
RUNS = r"^(?<name>.*?)(?: at learning_rate [^,]+)?, (?<failed>\d+) of (?<planned>\d+) runs$"  # of what failed


def failures_of(jobs: pl.DataFrame) -> list[dict[str, Any]]:
    """The failures of jobs: study, stage, backend, what, outcome, reason.

    What failed at several learning rates is one failure, with the number of its runs and one of the reasons.

    Args:
        jobs: the table `jobs`.
    """
    listed = jobs.select(*ABOUT, "spec_hash", "failures").explode("failures").drop_nulls("failures")
    listed = listed.unnest("failures").sort("study", maintain_order=True)
    runs = pl.col("what").str.extract_groups(RUNS).struct
    named = listed.with_columns(
        name=pl.coalesce(runs.field("name"), "what"),
        failed=runs.field("failed").cast(pl.Int64),
        planned=pl.struct("spec_hash", runs.field("planned").cast(pl.Int64)),
    )
    found = named.group_by(*ABOUT, "name", "outcome", maintain_order=True).agg(
        pl.col("failed").sum(),
        pl.col("planned").unique().struct.field("planned").sum(),
        pl.col("reason").first(),
    )
    counted = pl.format("{}, {} of {} runs", "name", "failed", "planned")
    what = pl.when(pl.col("failed") > 0).then(counted).otherwise("name")
    return found.select(*ABOUT, what.alias("what"), "outcome", "reason").to_dicts()


def read_jobs(plan: ReportPlan) -> pl.DataFrame:
    """All jobs of a report; those of studies that join its own are not.

    Raises:
        InputError: when a table is missing or damaged.
    """
    folders = [study.tables for study in plan.studies]
    folders += [folder for other in (plan.parity, plan.checks) if other for folder in other.tables]
    return read([folder / "jobs.parquet" for folder in folders], "jobs")


def read_failures(plan: ReportPlan) -> list[dict[str, Any]]:
    """The failures of all jobs of a report.

    Raises:
        InputError: when a table is missing or damaged.
    """
    return failures_of(read_jobs(plan))


def in_words(failure: dict[str, Any]) -> str:
    """A failure on a line."""
    return (
        f"{failure['study']}, {failure['stage']} on {failure['backend']}: {failure['what']}: "
        f"{failure['outcome'].replace('_', ' ')}: {failure['reason']}"
    )


def reasons_of(plan: ChecksPlan) -> dict[str, str]:
    """Why claims, or modules of claims, were not checked, by their names.

    Raises:
        InputError: when a table is missing or damaged.
    """
    jobs = read([folder / "jobs.parquet" for folder in plan.tables], "jobs")
    return {one["what"]: f"{one['outcome']}: {one['reason']}" for one in failures_of(jobs)}


def failed_check(claim: ClaimPlan, reasons: Mapping[str, str]) -> str | None:
    """Why a claim was not checked, by what `reasons_of` gives; None where that is not known."""
    return reasons.get(claim.id) or reasons.get(PurePath(claim.file).stem)
