"""Times to target as censored data: when runs end, and the figure."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from curvebench.reports.figures.study_figures import cells
from curvebench.reports.figures.targets import draw_targets, target_times
from curvebench.reports.tables import Tables
from curvebench.spec.plan import StudyPlan
from tests.reports.changing import replace
from tests.reports.synthetic import BASIS_EVALUATIONS, STEPS

METRIC = "validation_accuracy"


@pytest.fixture(scope="module")
def times(tables: Tables) -> pl.DataFrame:
    return target_times(tables.runs.filter(stage="final", backend="jax"), METRIC)


def reached_after(steps: int | None) -> pl.Expr:
    """Targets that runs reach after so many steps, or miss."""
    return pl.col("targets").list.eval(
        pl.element().struct.with_fields(pl.lit(steps, pl.Int64).alias("steps"))
    )


def of(times: pl.DataFrame, method: str, seed: int) -> tuple[float, bool]:
    [row] = times.filter(method=method, seed=seed).select("time", "reached").iter_rows()
    return row


def test_a_diverged_run_never_reaches_the_target_and_its_time_is_the_budget(times: pl.DataFrame):
    # the seed that diverges does so at step 40, and is not censored there
    assert of(times, "sgd", 1000) == (STEPS[-1], False)
    assert of(times, "sgd @ egop", 1000) == (STEPS[-1] + BASIS_EVALUATIONS, False)
    assert of(times, "sgd", 1001)[1]


def test_a_run_that_misses_ends_with_its_budget_and_the_basis_is_charged(tables: Tables):
    final = tables.runs.filter(stage="final", backend="jax")
    missed = final.with_columns(
        reached_after(None),
        outcome=pl.when(outcome="diverged").then("outcome").otherwise(pl.lit("budget")),
    )
    found = target_times(missed, METRIC)
    assert not found["reached"].any()
    ends = found.group_by("basis").agg(pl.col("time").unique())
    assert dict(ends.iter_rows()) == {"identity": [100.0], "egop": [100.0 + BASIS_EVALUATIONS]}


def test_a_run_that_starts_at_its_target_counts_as_one_evaluation(tables: Tables):
    final = tables.runs.filter(stage="final", backend="jax", method="adam")
    at_once = final.with_columns(reached_after(0))
    assert target_times(at_once, METRIC)["time"].unique().to_list() == [1.0]


def test_there_is_no_figure_without_a_target_and_none_that_nobody_reached(
    study: StudyPlan, tables: Tables, tmp_path: Path
):
    missed = tables.runs.with_columns(reached_after(None))
    aimless = replace(study, targets={"another": 1.0})
    for one, runs in ((study, missed), (aimless, tables.runs)):
        found = cells(one, replace(tables, runs=runs), tmp_path)
        assert [figure for cell in found for figure in draw_targets(cell)] == []
