"""Reading tables: one machine a backend, which the report says, and curves at most so many steps long."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from curvebench.reports.boards.leaderboard import leaderboard
from curvebench.reports.claims.comparison import tried_in
from curvebench.reports.measures import problems_of
from curvebench.reports.pages.study_pages import cost_rows, pair_rows, results_rows, settings_rows
from curvebench.reports.tables import (
    CELL,
    SHOWN_STEPS,
    Tables,
    final_curves,
    machine_by_backend,
    one_machine,
    read_tables,
    recorded_steps,
    shown_steps,
    with_step_evaluations,
)
from curvebench.results.merging import KEYS, combine
from curvebench.results.schema import CURVES, TABLES
from curvebench.results.writing import write_table
from curvebench.spec.errors import InputError
from curvebench.spec.plan import ReportPlan, StudyPlan, read_plan
from tests.reports.conftest import changed_plan, leave_figures_out, site_of
from tests.reports.synthetic import Shape, write_plan

SHAPE = Shape(optimizers=("sgd", "adam"), seeds=tuple(range(1000, 1006)), tuning_seeds=(0,))


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> tuple[ReportPlan, ReportPlan]:
    """A report of one machine, and one of the same runs on a second machine, ten times as slow."""
    folder = tmp_path_factory.mktemp("machines")
    path = write_plan(folder, [SHAPE])
    one, slow = folder / "tables" / SHAPE.name, folder / "slow"
    for name in KEYS:
        schema = TABLES[name]
        table = pl.read_parquet(one / f"{name}.parquet")
        if "machine" in schema:
            table = table.with_columns(pl.lit("m2").alias("machine"))
        if name == "timings":
            table = table.with_columns(pl.col("seconds") * 10)
        write_table(slow / f"{name}.parquet", table, schema)
    combine([one, slow], folder / "both")
    both = folder / "both"
    changed_plan(path, both, lambda raw: raw["studies"][0].update(tables=str(both)))
    return read_plan(path), read_plan(both)


def statistics(study: StudyPlan, tables: Tables) -> list:
    return [
        (
            leaderboard([(study, tables)], problem.backend).rows,
            results_rows(problem),
            settings_rows(problem, tried_in(study, tables)),
            pair_rows(problem),
            [
                row | {"step": row["step"]["median"], "own": row["own"]["median"]}
                for row in cost_rows(problem)
            ],
        )
        for backend in study.backends
        for problem in problems_of(study, tables, backend)
    ]


def test_a_second_machine_changes_no_statistic(plans: tuple[ReportPlan, ReportPlan]):
    (one,), (both,) = plans[0].studies, plans[1].studies
    alone, combined = read_tables(one.tables), read_tables(both.tables)
    assert statistics(both, combined) == statistics(one, alone)
    assert alone.warnings == ()
    runs = len(alone.runs.filter(backend="jax"))
    timings = len(alone.timings.filter(backend="jax"))
    assert combined.warnings[0] == (
        "jax: machines repeat each other, and their results are not pooled. Shown is machine "
        f"m1 ({runs} runs, {timings} timings); left out: m2 ({runs} runs, {timings} timings)."
    )


def test_every_page_that_compares_says_which_machine_it_shows(
    plans: tuple[ReportPlan, ReportPlan], tmp_path: Path
):
    plan = plans[1]
    leave_figures_out(plan.path.parents[1], SHAPE.name)
    site = site_of(plan.path, tmp_path)
    for page in ("index", "leaderboard", f"study_{SHAPE.name}", "provenance"):
        assert "Shown is machine m1" in (site / f"{page}.html").read_text()


def test_the_machine_with_most_runs_is_shown_and_jobs_spread_over_machines_all_stay(
    plans: tuple[ReportPlan, ReportPlan],
):
    tables = read_tables(plans[0].studies[0].tables)
    first = tables.runs["run"].first()
    more = pl.concat(
        [tables.runs.filter(pl.col("run") != first), tables.runs.with_columns(pl.lit("m2").alias("machine"))]
    )
    assert machine_by_backend(more) == {"jax": "m2", "torch": "m1"}
    runs, _, sentences = one_machine(more, tables.timings)
    assert set(runs.filter(backend="jax")["machine"]) == {"m2"}
    assert len(sentences) == 2
    other = pl.when(pl.col("optimizer") == "sgd").then(pl.lit("m2")).otherwise("machine").alias("machine")
    spread = tables.runs.with_columns(other)
    runs, timings, sentences = one_machine(spread, tables.timings)
    assert (len(runs), len(timings), sentences) == (len(spread), len(tables.timings), [])


def long_table(folder: Path, steps: int) -> pl.DataFrame:
    """Two runs of one cell, the second ends early; the table `runs` as far as it is read."""
    lengths = {"long": steps, "short": steps // 3 + 1}
    frame = pl.concat(
        pl.DataFrame({"step": range(length)}).with_columns(
            run=pl.lit(run), metric=pl.lit("loss"), value=1.0 / (pl.col("step") + 1),
            gradient_evaluations=pl.col("step"), examples=pl.col("step"), seconds=None,
        )
        for run, length in lengths.items()
    )  # fmt: skip
    write_table(folder / "curves.parquet", frame.cast(pl.Schema(CURVES)).select(CURVES.names()), CURVES)
    cell = dict.fromkeys(CELL, "same")
    rows = [{**cell, "run": run, "stage": "final", "steps": n - 1} for run, n in lengths.items()]
    return pl.DataFrame(rows)


@pytest.mark.parametrize("steps", [2, 119, 120, 121, 260, 4321])
def test_long_curves_are_thinned_evenly_with_both_ends_and_the_last_step_of_each_run(tmp_path, steps):
    runs = long_table(tmp_path, steps)
    recorded = recorded_steps(tmp_path, runs)
    assert len(recorded) == steps
    shown = shown_steps(recorded)["step"]
    assert len(shown) == min(steps, SHOWN_STEPS)
    assert (shown[0], shown[-1]) == (0, steps - 1)
    assert np.ptp(np.diff(shown.to_numpy())) <= 1
    none = pl.DataFrame()
    tables = Tables((tmp_path / "curves.parquet",), runs, recorded, none, none, none)
    found = final_curves(tables, runs, "loss").sort("run", "step")
    last = found.group_by("run").agg(pl.col("step").max()).sort("run")["step"].to_list()
    assert last == [steps - 1, steps // 3]
    assert (found["value"] == 1.0 / (found["step"] + 1)).all()


def ended(run: str, steps: int, evaluations: int, stage: str = "final") -> dict[str, object]:
    return {"run": run, "stage": stage, "steps": steps, "gradient_evaluations": evaluations}


def test_the_gradient_by_which_a_run_stopped_is_not_charged_to_its_steps(tmp_path):
    """A step of 101 gradients, such as one with a Hessian: the last one would be 20 more a step."""
    step = {"run": ["stopped"] * 3, "step": [0, 3, 5], "gradient_evaluations": [0, 303, 505]}
    frame = pl.DataFrame(step).with_columns(metric=pl.lit("loss"), value=1.0, examples=0, seconds=None)
    write_table(tmp_path / "curves.parquet", frame.cast(pl.Schema(CURVES)).select(CURVES.names()), CURVES)
    rows = [
        ended("stopped", 5, 606),
        ended("plain", 20, 21),
        ended("at once", 0, 101),
        ended("tuning", 5, 606, "tuning"),
    ]
    found = with_step_evaluations(tmp_path, pl.DataFrame(rows))
    assert dict(found.select("run", "step_evaluations").rows()) == {
        "stopped": 101, "plain": 1, "at once": 101, "tuning": 121,
    }  # fmt: skip
    assert found["run"].to_list() == [row["run"] for row in rows]


def test_where_steps_are_many_no_curve_is_read(tmp_path):
    runs = pl.DataFrame([ended("plain", 20, 21), ended("twice", 20, 40)])
    assert with_step_evaluations(tmp_path, runs)["step_evaluations"].to_list() == [1, 2]


def test_a_damaged_table_is_named(tmp_path):
    runs = long_table(tmp_path, 10)
    path = tmp_path / "curves.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match=r"curves\.parquet"):
        recorded_steps(tmp_path, runs)
