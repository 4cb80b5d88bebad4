"""What failed of all that a report shows, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

import polars as pl

from curvebench.results.outcomes import WORKLOAD_FAULT, missing
from curvebench.results.reading import read
from curvebench.spec.method import IDENTITY
from curvebench.spec.plan import ChecksPlan, ClaimPlan, ReportPlan

ABOUT = ("study", "stage", "backend")
HOST = "host"  # where bases are estimated, for all backends
SEED = r", seed \d+$"  # in the name of a run with a job of its own
RUNS = r"^(?<name>.*?)(?: at learning_rate [^,]+)?, (?<failed>\d+) of (?<planned>\d+) runs$"  # of what failed


def blame_workloads(runs: pl.DataFrame) -> pl.DataFrame:
    """Give the outcome `WORKLOAD_FAULT` to the runs on a workload that fails whatever the method.

    A workload is at fault on a backend where every run diverged or raised an error, and where two optimizers
    or more failed alike in original coordinates: each seed with one outcome, at one step, for one reason. A
    basis may have failed before it came to that, when its gradients were estimated. One optimizer alone is
    not distinguished from its workload. Runs that were interrupted say nothing, and stay as they are.

    Args:
        runs: the table `runs`, of all stages.
    """
    cell, ran, outcome = ("workload", "backend"), ~missing(), pl.col("outcome").cast(pl.String)
    plain = ran & (pl.col("basis") == IDENTITY)
    alike = pl.struct(outcome, "outcome_step", "reason").filter(plain).n_unique().over(*cell, "seed") <= 1
    several = pl.col("optimizer").filter(plain).n_unique().over(cell) > 1
    lost = outcome.is_in(("diverged", "error")) | missing()
    fault = (lost & alike).all().over(cell) & several & ran
    return runs.with_columns(outcome=pl.when(fault).then(pl.lit(WORKLOAD_FAULT)).otherwise(outcome))


def faults_of(study: str, runs: pl.DataFrame) -> list[dict[str, Any]]:
    """The workloads of a study that are at fault, as failures with `workload` and the `step` of the fault.

    Args:
        runs: what `blame_workloads` returns; `step` is the first, None where they raised.
    """
    found = runs.filter(pl.col("outcome") == WORKLOAD_FAULT, pl.col("basis") == IDENTITY)
    rows = found.group_by("workload", "backend", maintain_order=True).agg(
        step=pl.col("outcome_step").min(), reason=pl.col("reason").first()
    )
    reason = pl.coalesce("reason", pl.format("not finite at step {}", "step"))
    about = {"study": study, "stage": "every run", "outcome": WORKLOAD_FAULT}
    return [{**row, **about} for row in rows.with_columns(reason, what="workload").to_dicts()]


def failures_of(jobs: pl.DataFrame, faults: Sequence[Mapping[str, Any]] = ()) -> list[dict[str, Any]]:
    """The failures of jobs: study, stage, backend, what, outcome, reason.

    What failed at several learning rates is one failure, with the number of its runs and one of the reasons.
    What failed on a workload that is at fault is one failure, of the workload.

    Args:
        jobs: the table `jobs`.
        faults: what `faults_of` returns, of all studies.
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
    at_fault = [
        (pl.col("study") == fault["study"])
        & pl.col("backend").is_in((HOST, fault["backend"]))
        & pl.col("name").str.replace(SEED, "").str.ends_with(f" on {fault['workload']}")
        for fault in faults
    ]
    kept = found.filter(~pl.any_horizontal(pl.lit(False), *at_fault))
    return [*map(dict, faults), *kept.select(*ABOUT, what.alias("what"), "outcome", "reason").to_dicts()]


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
    faults = [
        fault
        for study in plan.studies
        for fault in faults_of(study.name, blame_workloads(read(study.tables, "runs")))
    ]
    return failures_of(read_jobs(plan), faults)


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
