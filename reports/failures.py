"""Failures of the runs and checks that a report shows, with their reasons.

A job executes several runs, or the checks of several claims, and records each failure. A method is an
optimizer in a basis. Rounds are the tuning rounds and the final round. A workload is at fault if it fails
with every method.
"""

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
# Entry of the column `backend` for basis-estimation jobs.
# Basis-estimation jobs belong to no backend, because all backends use their results.
HOST = "host"
SEED = r", seed \d+$"  # Pattern of the seed at the end of a run's name, if the run has a job of its own.
# Pattern of the text with which a job describes failed runs: "adam on mlp in tuning round 1, 2 of 6 runs".
# In older published sets, the description of failed runs lacks the round.
RUNS = (
    r"^(?<name>.*?)(?<round> in (?:the final round|tuning round \d+))?(?: at learning_rate [^,]+)?"
    r", (?<failed>\d+) of (?<planned>\d+) runs$"
)


def blame_workloads(runs: pl.DataFrame) -> pl.DataFrame:
    """Set the outcome `WORKLOAD_FAULT` for runs on a workload that is at fault on a backend.

    A workload is at fault if every run on it diverged or raised an error, and if in original coordinates at
    least two optimizers failed in the same way: for each seed, with the same outcome at the same step for the
    same reason. Methods in another basis may have failed earlier, when the gradients for the basis were
    sampled. If there is a single optimizer, a fault of the workload cannot be distinguished from a fault of
    the optimizer, so that the workload is not at fault. Interrupted runs are no evidence and keep their
    outcome.

    Args:
        runs: the table `runs` with tuning runs and final runs.
    """
    cell, ran, outcome = ("workload", "backend"), ~missing(), pl.col("outcome").cast(pl.String)
    plain = ran & (pl.col("basis") == IDENTITY)
    alike = pl.struct(outcome, "outcome_step", "reason").filter(plain).n_unique().over(*cell, "seed") <= 1
    several_optimizers = pl.col("optimizer").filter(plain).n_unique().over(cell) > 1
    lost = outcome.is_in(("diverged", "error")) | missing()
    fault = (lost & alike).all().over(cell) & several_optimizers & ran
    return runs.with_columns(outcome=pl.when(fault).then(pl.lit(WORKLOAD_FAULT)).otherwise(outcome))


def faults_of(study: str, runs: pl.DataFrame) -> list[dict[str, Any]]:
    """Return a failure for each workload of a study that is at fault on a backend.

    Args:
        study: name of the study.
        runs: the table `runs`, in which `blame_workloads` has set the outcome `WORKLOAD_FAULT`.

    Returns:
        Failures with the keys that `failures_of` describes, and with the keys workload and step: the first
        step at which a run failed. The step is None if the runs raised an error instead of diverging.
    """
    faulty = runs.filter(pl.col("outcome") == WORKLOAD_FAULT, pl.col("basis") == IDENTITY)
    rows = faulty.group_by("workload", "backend", maintain_order=True).agg(
        step=pl.col("outcome_step").min(), reason=pl.col("reason").first()
    )
    reason = pl.coalesce("reason", pl.format("not finite at step {}", "step"))
    common = {"study": study, "stage": "every run", "outcome": WORKLOAD_FAULT}
    return [{**row, **common} for row in rows.with_columns(reason, what="workload").to_dicts()]


def failures_of(jobs: pl.DataFrame, faults: Sequence[Mapping[str, Any]] = ()) -> list[dict[str, Any]]:
    """Return the failures that jobs recorded, merged so that a page lists each cause once.

    The failures of a method on a workload and backend, at several learning rates and in several rounds, are
    merged to one failure. The merged failure has the number of failed runs and one of the reasons. It names
    the round if all its failures are in the same round. All failures on a workload at fault are replaced by
    the one failure of the workload in `faults`.

    Args:
        jobs: the table `jobs`.
        faults: failures of the workloads that are at fault in any study, as `faults_of` returns them.

    Returns:
        The failures, those of `faults` first. Keys of each: study, stage, backend, what (a description of the
        runs or the check that failed), outcome and reason.
    """
    listed = jobs.select(*ABOUT, "spec_hash", "failures").explode("failures").drop_nulls("failures")
    listed = listed.unnest("failures").sort("study", maintain_order=True)
    runs = pl.col("what").str.extract_groups(RUNS).struct
    named = listed.with_columns(
        name=pl.coalesce(runs.field("name"), "what"),
        failed=runs.field("failed").cast(pl.Int64),
        round=runs.field("round").fill_null(""),
        planned=pl.struct("spec_hash", runs.field("round"), runs.field("planned").cast(pl.Int64)),
    )
    merged = named.group_by(*ABOUT, "name", "outcome", maintain_order=True).agg(
        pl.col("failed").sum(),
        pl.col("planned").unique().struct.field("planned").sum(),
        pl.col("reason").first(),
        pl.when(pl.col("round").n_unique() == 1).then(pl.col("round").first()).otherwise(pl.lit("")),
    )
    counted = pl.format("{}{}, {} of {} runs", "name", "round", "failed", "planned")
    label = pl.when(pl.col("failed") > 0).then(counted).otherwise("name")
    at_fault = [
        (pl.col("study") == fault["study"])
        & pl.col("backend").is_in((HOST, fault["backend"]))
        & pl.col("name").str.replace(SEED, "").str.ends_with(f" on {fault['workload']}")
        for fault in faults
    ]
    frame = merged.filter(~pl.any_horizontal(pl.lit(False), *at_fault))
    return [*map(dict, faults), *frame.select(*ABOUT, label.alias("what"), "outcome", "reason").to_dicts()]


def read_jobs(plan: ReportPlan) -> pl.DataFrame:
    """Read the jobs of all studies, parity checks and property checks of a report.

    The jobs of studies that only join (add methods to) a study of the report are left out.

    Raises:
        InputError: when a table `jobs` is missing or damaged.
    """
    folders = [study.tables for study in plan.studies]
    folders += [folder for checks in (plan.parity, plan.checks) if checks for folder in checks.tables]
    return read([folder / "jobs.parquet" for folder in folders], "jobs")


def read_failures(plan: ReportPlan) -> list[dict[str, Any]]:
    """Read the failures of all jobs of a report, as `failures_of` returns them.

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
    """Describe a failure (an item of `failures_of`) in one line of text."""
    return (
        f"{failure['study']}, {failure['stage']} on {failure['backend']}: {failure['what']}: "
        f"{failure['outcome'].replace('_', ' ')}: {failure['reason']}"
    )


def reasons_of(plan: ChecksPlan) -> dict[str, str]:
    """Return the reasons why property checks failed.

    Returns:
        Text with outcome and reason, by the name of the claim whose checks failed, or by the name of the
        module of checks if the whole module failed.

    Raises:
        InputError: when a table `jobs` is missing or damaged.
    """
    jobs = read([folder / "jobs.parquet" for folder in plan.tables], "jobs")
    return {failure["what"]: f"{failure['outcome']}: {failure['reason']}" for failure in failures_of(jobs)}


def failed_check(claim: ClaimPlan, reasons: Mapping[str, str]) -> str | None:
    """Return why the property checks of a claim failed; None if no job recorded a failure of these checks.

    Args:
        reasons: reasons why checks failed, by the name of a claim or of a module, as `reasons_of` returns
            them.
    """
    return reasons.get(claim.id) or reasons.get(PurePath(claim.file).stem)
