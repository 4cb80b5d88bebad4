"""Times to target as censored data: when runs end, what is compared up to which time, and the figure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from documents.plan import StudyPlan
from reports.figures.study_figures import cells
from reports.figures.targets import Incomparable, draw_targets, target_tables, target_times
from reports.statistics.decisions import holm
from reports.statistics.survival import log_rank_test
from reports.tables import Tables
from results.intervals import median_interval
from tests.reports.changing import replace
from tests.reports.conftest import words_of
from tests.reports.synthetic import BASIS_EVALUATIONS, STEPS

METRIC = "validation_accuracy"


@pytest.fixture(scope="module")
def times(tables: Tables) -> pl.DataFrame:
    return target_times(tables.runs.filter(stage="final", backend="jax"), METRIC)


@pytest.fixture(scope="module")
def table(study: StudyPlan, tables: Tables) -> Any:
    [found] = target_tables(study, study.workloads[0], "jax", tables.runs)
    return found


def of(times: pl.DataFrame, method: str, seed: int) -> tuple[float, bool]:
    [row] = times.filter(method=method, seed=seed).select("time", "reached").iter_rows()
    return row


def test_a_diverged_run_never_reaches_the_target_and_its_time_is_the_budget(times: pl.DataFrame):
    # the seed that diverges does so at step 40, and is not censored there
    assert of(times, "sgd", 100) == (STEPS[-1], False)
    assert of(times, "sgd @ egop", 100) == (STEPS[-1] + BASIS_EVALUATIONS, False)
    assert of(times, "sgd", 101)[1]


def test_a_run_that_misses_ends_with_its_budget_and_the_basis_is_charged(tables: Tables):
    final = tables.runs.filter(stage="final", backend="jax")
    missed = final.with_columns(
        pl.col("targets").list.eval(pl.element().struct.with_fields(pl.lit(None, pl.Int64).alias("steps"))),
        pl.when(pl.col("outcome") == "diverged")
        .then(pl.lit("diverged"))
        .otherwise(pl.lit("budget"))
        .alias("outcome"),
    )
    found = target_times(missed, METRIC)
    assert not found["reached"].any()
    ends = found.group_by("basis").agg(pl.col("time").unique())
    assert dict(ends.iter_rows()) == {"identity": [100.0], "egop": [100.0 + BASIS_EVALUATIONS]}


def test_a_run_that_starts_at_its_target_counts_as_one_evaluation(tables: Tables):
    final = tables.runs.filter(stage="final", backend="jax", method="adam")
    at_once = final.with_columns(
        pl.col("targets").list.eval(pl.element().struct.with_fields(pl.lit(0, pl.Int64).alias("steps")))
    )
    assert target_times(at_once, METRIC)["time"].unique().to_list() == [1.0]


def within(times: pl.DataFrame, horizon: float) -> pl.DataFrame:
    return times.with_columns(
        time=pl.col("time").clip(upper_bound=horizon),
        reached=pl.col("reached") & (pl.col("time") <= horizon),
    )


def test_two_methods_are_compared_up_to_the_first_run_that_missed_or_the_last_that_reached_the_target(
    table: Any, times: pl.DataFrame
):
    assert table.threshold == 0.9
    rows = {row.method: row for row in table.rows}
    missed = times.filter(method="sgd").filter(~pl.col("reached"))["time"].min()
    assert rows["adagrad"].sooner.horizon == missed == STEPS[-1]
    both = times.filter(pl.col("method").is_in(["adam", "adam @ egop"]))
    assert both["reached"].all()
    assert rows["adam @ egop"].sooner.horizon == both["time"].max()
    for row in table.rows:
        if row.sooner is None:
            continue
        for mean, method in ((row.sooner.mean, row.method), (row.sooner.control_mean, row.control)):
            own = within(times, row.sooner.horizon).filter(method=method)
            # nobody is censored before the horizon, so that the area is a plain mean
            assert mean["mean"] == pytest.approx(own["time"].mean())
            assert mean["low"] <= mean["mean"] <= mean["high"]


def test_reached_and_median_are_of_a_methods_own_budget(table: Any, times: pl.DataFrame):
    for row in table.rows:
        own = times.filter(method=row.method)
        assert (row.reached.successes, row.reached.count) == (own["reached"].sum(), len(own))
        assert row.time.median == median_interval(own["value"].to_numpy()).median


def test_each_is_tested_against_its_own_optimizer_and_corrected_in_the_table(table: Any, times: pl.DataFrame):
    rows = {row.method: row.sooner for row in table.rows}
    assert {row.method: row.control for row in table.rows} == {
        "sgd": None,
        "sgd @ egop": "sgd",
        "adagrad": "sgd",
        "adagrad @ egop": "adagrad",
        "adam": "sgd",
        "adam @ egop": "adam",
    }
    raw = [
        log_rank_test(within(times, row.sooner.horizon), row.method, row.control).p_value
        for row in table.rows
        if row.sooner and row.control
    ]
    found = [sooner.p_value for sooner in rows.values() if sooner]
    assert found == pytest.approx(holm(raw))
    assert all(p_value >= table.least for p_value in found)
    # as soon in steps, but the basis is charged
    assert rows["adam"].chance.value > 0.9
    assert rows["adam @ egop"].chance.value < 0.1


def test_a_basis_beyond_the_end_of_a_run_that_missed_is_not_compared_and_says_why(
    study: StudyPlan, tables: Tables, table: Any
):
    dear = pl.when(pl.col("method") == "sgd @ egop").then(6000).otherwise("basis_gradient_evaluations")
    runs = tables.runs.with_columns(basis_gradient_evaluations=dear)
    [found] = target_tables(study, study.workloads[0], "jax", runs)
    rows, before = ({row.method: row for row in one.rows} for one in (found, table))
    row = rows.pop("sgd @ egop")
    assert (row.sooner, row.control) == (None, "sgd")
    assert row.reason == Incomparable("sgd", 100.0, "sgd @ egop", 6000)
    assert words_of("macros.html.jinja", "incomparable", row.reason) == (
        "not compared: a run of sgd ended at 100 without the target, and the basis of sgd @ egop alone costs "
        "6,000"
    )
    # what is known of it alone stays
    assert (row.reached.successes, row.reached.count) == (9, 10)
    assert row.time.median > 6000
    for method, other in rows.items():
        assert other.reached == before[method].reached
        was = before[method].sooner
        assert (other.sooner and other.sooner.mean) == (was and was.mean)


def test_a_basis_that_costs_more_than_the_budget_is_compared_where_every_run_reached_the_target(
    study: StudyPlan, tables: Tables
):
    dear = pl.when(pl.col("method") == "adam @ egop").then(6000).otherwise("basis_gradient_evaluations")
    runs = tables.runs.with_columns(basis_gradient_evaluations=dear)
    [found] = target_tables(study, study.workloads[0], "jax", runs)
    last = found.rows[-1]
    assert (last.method, last.reason) == ("adam @ egop", None)
    assert last.sooner
    assert (last.sooner.chance.value, last.sooner.p_value) == (0.0, 1.0)
    assert last.sooner.mean["mean"] > 6000 > last.sooner.control_mean["mean"]


def test_methods_that_share_no_seed_are_not_compared(study: StudyPlan, tables: Tables):
    apart = tables.runs.filter(
        (pl.col("stage") == "final") & ((pl.col("seed") < 105) == (pl.col("method") == "adam"))
    )
    [found] = target_tables(study, study.workloads[0], "jax", apart)
    rows = {row.method: row.sooner for row in found.rows}
    assert rows["adam"] is None
    assert rows["adam @ egop"] is None
    assert rows["adagrad"] is not None
    [alone] = target_tables(study, study.workloads[0], "jax", tables.runs.filter(method="adam"))
    assert (alone.least, [row.sooner for row in alone.rows]) == (None, [None])


def test_there_is_nothing_without_a_target_and_no_figure_that_nobody_reached(
    study: StudyPlan, tables: Tables, tmp_path: Path
):
    aimless = replace(study, targets={"another": 1.0})
    assert target_tables(aimless, study.workloads[0], "jax", tables.runs) == []
    missed = tables.runs.with_columns(
        pl.col("targets").list.eval(pl.element().struct.with_fields(pl.lit(None, pl.Int64).alias("steps")))
    )
    [found] = target_tables(study, study.workloads[0], "jax", missed)
    assert {row.reached.successes for row in found.rows} == {0}
    assert {row.time.median for row in found.rows} == {float("inf")}
    found_cells = cells(study, replace(tables, runs=missed), tmp_path)
    assert [figure for cell in found_cells for figure in draw_targets(cell)] == []


def test_the_figure_tells_how_many_seeds_reached_it_and_when(study: StudyPlan):
    figures = json.loads((study.figures / "figures.json").read_text())
    [figure] = [f for f in figures if f["kind"] == "target" and f["backend"] == "jax"]
    assert "sgd 9 of 10, from 60 to 80" in figure["alt"]
    assert f"adam @ egop 10 of 10, from {20 + BASIS_EVALUATIONS}" in figure["alt"]
    assert "validation accuracy of 0.9" in figure["title"]
