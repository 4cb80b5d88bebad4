"""Times to target as censored data, and loss against cost: which methods are on the front."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from curvebench.reports.figures.costs import CostResult, cost_results, draw_front, draw_targets, target_times
from curvebench.reports.figures.study_figures import FigureCell, cells
from curvebench.reports.measures import problems_of
from curvebench.reports.tables import Tables
from curvebench.reports.wall_clock import step_seconds
from curvebench.spec.plan import StudyPlan
from tests.reports.changing import replace
from tests.reports.example_sets import with_metric
from tests.reports.synthetic import BASIS_EVALUATIONS, STEPS

METRIC = "validation_accuracy"


@pytest.fixture(scope="module")
def times(tables: Tables) -> pl.DataFrame:
    return target_times(tables.runs.filter(stage="final", backend="jax"), METRIC)


def reached_after(steps: int | None) -> pl.Expr:
    """Return the column `targets`, all reached after `steps` steps, or all missed if it is None."""
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
        reached_after(None), outcome=pl.when(outcome="diverged").then("outcome").otherwise(pl.lit("budget"))
    )
    found = target_times(missed, METRIC)
    assert not found["reached"].any()
    ends = found.group_by("basis").agg(pl.col("time").unique())
    assert dict(ends.iter_rows()) == {"identity": [100.0], "egop": [100.0 + BASIS_EVALUATIONS]}


def test_a_run_that_starts_at_its_target_counts_as_one_evaluation(tables: Tables):
    final = tables.runs.filter(stage="final", backend="jax", method="adam")
    at_once = final.with_columns(reached_after(0))
    assert target_times(at_once, METRIC)["time"].unique().to_list() == [1.0]


def test_there_is_no_figure_without_a_reached_target(study: StudyPlan, tables: Tables, tmp_path: Path):
    missed = tables.runs.with_columns(reached_after(None))
    aimless = replace(study, targets={"another": 1.0})
    for one, runs in ((study, missed), (aimless, tables.runs)):
        found = cells(one, replace(tables, runs=runs), tmp_path)
        assert [figure for cell in found for figure in draw_targets(cell)] == []


Places = dict[str, dict[str, CostResult]]  # results by cost, then by method


def on_jax(study: StudyPlan, tables: Tables) -> Places:
    found = cost_results(*problems_of(study, tables))
    return {cost: {each.method: each for each in own} for cost, own in found.items()}


def fronts(found: Places, cost: str) -> set[str]:
    return {method for method, each in found[cost].items() if each.on_front}


def test_a_run_costs_its_steps_and_the_basis(study: StudyPlan, tables: Tables):
    found = on_jax(study, tables)
    assert found["evaluations"]["adam"].cost.median == STEPS[-1]
    assert found["evaluations"]["adam @ egop"].cost.median == STEPS[-1] + BASIS_EVALUATIONS
    [step] = step_seconds(tables.timings).filter(method="adam @ egop", backend="jax")["median"]
    basis = tables.runs.filter(method="adam @ egop", backend="jax", stage="final")["basis_seconds"]
    wanted = STEPS[-1] * step + basis.median()
    assert found["seconds"]["adam @ egop"].cost.median == pytest.approx(wanted)


def test_the_front_is_that_of_pareto(study: StudyPlan, tables: Tables):
    found = on_jax(study, tables)
    assert fronts(found, "evaluations") == {"adam", "adam @ egop"}
    assert {"sgd", "adagrad", "adam", "adam @ egop"} <= fronts(found, "seconds")  # each step dearer


def test_rounding_puts_no_dearer_method_on_the_front(study: StudyPlan, tables: Tables):
    few = replace(study, methods=("sgd", "sgd @ egop"))
    adam = tables.runs.filter(method="adam", stage="final", backend="jax")
    lower = with_metric(adam, "train_loss", pl.element().struct.field("value") * (1 - 1e-6))
    rotated = adam.with_columns(
        lower, method=pl.lit("sgd @ egop"), basis_gradient_evaluations=pl.lit(BASIS_EVALUATIONS, pl.Int64)
    )
    runs = pl.concat([adam.with_columns(method=pl.lit("sgd")), rotated])
    found = on_jax(few, replace(tables, runs=runs))
    assert found["evaluations"]["sgd @ egop"].value.median < found["evaluations"]["sgd"].value.median
    assert fronts(found, "evaluations") == {"sgd"}


def test_more_can_be_better(study: StudyPlan, tables: Tables):
    accuracy = replace(study, metric="validation_accuracy")
    found = on_jax(accuracy, tables)
    assert found["evaluations"]["adam"].value.median > found["evaluations"]["sgd"].value.median
    assert "adam" in fronts(found, "evaluations")
    assert "sgd" not in fronts(found, "evaluations")


def test_a_method_of_which_half_diverged_is_on_no_front(study: StudyPlan, tables: Tables):
    died = tables.runs.with_columns(
        outcome=pl.when(pl.col("method") == "adam").then(pl.lit("diverged")).otherwise("outcome")
    )
    found = on_jax(study, replace(tables, runs=died))
    assert found["evaluations"]["adam"].value.median == float("inf")
    assert not any(own["adam"].on_front for own in found.values())


def test_untimed_methods_and_incomplete_seeds_are_left_out(study: StudyPlan, tables: Tables):
    untimed = replace(tables, timings=tables.timings.filter(pl.col("method") != "adam"))
    assert set(on_jax(study, untimed)) == {"evaluations"}
    one_less = tables.runs.filter((pl.col("method") != "adam") | (pl.col("seed") != 1003))
    found = on_jax(study, replace(tables, runs=one_less))
    assert {each.value.count for own in found.values() for each in own.values()} == {9}
    apart = tables.runs.filter((pl.col("seed") < 1005) == (pl.col("method") == "adam"))
    assert on_jax(study, replace(tables, runs=apart)) == {}


def test_costs_by_which_no_method_differs_are_not_drawn(study: StudyPlan, tables: Tables, tmp_path: Path):
    alone = replace(tables, runs=tables.runs.filter(basis="identity"))
    [seconds] = draw_front(FigureCell(study, study.workloads[0], "jax", alone, tmp_path))
    assert "gradient evaluations" not in seconds.alt
    untimed = replace(alone, timings=tables.timings.clear())
    assert not list(draw_front(FigureCell(study, study.workloads[0], "jax", untimed, tmp_path)))
