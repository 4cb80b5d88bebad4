"""What pages show of the steps that claims compare: which, their medians, and how many runs met them."""

from __future__ import annotations

import polars as pl
import pytest

from documents.plan import StudyPlan
from reports.measures import steps_to_stop
from reports.pages.study_pages import compared_steps, results_rows
from reports.statistics.shares import share_interval
from reports.tables import Tables
from results.outcomes import missing
from tests.reports.changing import replace

INFINITE = float("inf")


def asking(study: StudyPlan, *asked: tuple[str, str], workload: str | None = None) -> StudyPlan:
    """The study with a claim whose conditions are on these quantities and metrics."""
    (claim,) = study.claims
    conditions = tuple(
        replace(claim.conditions[0], quantity=quantity, metric=metric, workload=workload)
        for quantity, metric in asked
    )
    return replace(study, claims=(replace(claim, conditions=conditions),))


def test_steps_are_shown_where_claims_compare_them(study: StudyPlan):
    (workload,) = study.workloads
    assert compared_steps(study, workload) == []
    stop, target = ("steps_to_stop", "train_loss"), ("steps_to_target", "validation_accuracy")
    assert compared_steps(asking(study, stop, target, stop), workload) == [stop, target]
    assert compared_steps(asking(study, stop, workload="another"), workload) == []
    again = asking(study, target)
    assert compared_steps(replace(again, claims=(), repeated=again.claims), workload) == [target]


def test_steps_to_the_stop_are_infinite_where_half_of_the_runs_miss_it(study: StudyPlan, tables: Tables):
    final = tables.runs.filter(pl.col("stage") == "final", pl.col("backend") == "jax")
    (workload,) = study.workloads
    for stop in (INFINITE, 0.0):  # all are below the one, none is below the other
        asked = replace(asking(study, ("steps_to_stop", "train_loss")), stop={"train_loss": stop})
        rows = {row["method"]: row for row in results_rows(asked, workload, "jax", tables.runs)}
        assert rows
        for method, row in rows.items():
            own = final.filter(pl.col("method") == method, ~missing())
            (steps,) = row["steps"]
            known = steps_to_stop(asked, own, "train_loss")["most"]
            assert (steps["quantity"], steps["name"]) == ("steps_to_stop", "train_loss")
            assert steps["value"].median == pytest.approx(known.median())
            assert steps["reached"] == share_interval(int(known.is_finite().sum()), len(own))
    assert all(row["steps"][0]["value"].median == INFINITE for row in rows.values())


def test_steps_to_a_target_leave_out_the_basis(study: StudyPlan, tables: Tables):
    asked = asking(study, ("steps_to_target", "validation_accuracy"))
    rows = {row["method"]: row for row in results_rows(asked, study.workloads[0], "jax", tables.runs)}
    (steps,), (target,) = rows["adam @ egop"]["steps"], rows["adam @ egop"]["targets"]
    assert steps["reached"] == target["reached"]
    assert steps["value"].median < target["value"].median


def test_runs_that_are_missing_have_no_steps(study: StudyPlan, tables: Tables):
    missing_runs = tables.runs.with_columns(outcome=pl.lit("interrupted"))
    asked = asking(study, ("steps_to_target", "validation_accuracy"))
    (row, *_) = results_rows(asked, study.workloads[0], "jax", missing_runs)
    assert row["steps"] == [
        {"quantity": "steps_to_target", "name": "validation_accuracy", "value": None, "reached": None}
    ]
