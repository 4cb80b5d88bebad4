"""What failed of all that a report shows, and why."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

import polars as pl

from documents.plan import ChecksPlan, ClaimPlan, ReportPlan
from results.reading import read

ABOUT = ("study", "stage", "backend")


def failures_of(jobs: pl.DataFrame) -> list[dict[str, Any]]:
    """The failures of jobs: study, stage, backend, what, outcome, reason.

    Args:
        jobs: the table `jobs`.
    """
    listed = jobs.select(*ABOUT, "failures").explode("failures").drop_nulls("failures").unnest("failures")
    return listed.sort("study", maintain_order=True).to_dicts()


def read_failures(plan: ReportPlan) -> list[dict[str, Any]]:
    """The failures of all jobs of a report.

    Raises:
        InputError: when a table is missing or damaged.
    """
    folders = [study.tables for study in plan.studies]
    folders += [folder for other in (plan.parity, plan.checks) if other for folder in other.tables]
    return failures_of(read([folder / "jobs.parquet" for folder in folders], "jobs"))


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
