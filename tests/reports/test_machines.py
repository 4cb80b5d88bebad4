"""Several machines: what they measured twice is not pooled, and the report says so."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from curvebench.reports.boards.leaderboard import leaderboard
from curvebench.reports.claims.comparison import tried_in
from curvebench.reports.machines import machine_by_backend, one_machine
from curvebench.reports.pages.study_pages import cost_rows, pair_rows, results_rows, settings_rows
from curvebench.reports.tables import Tables, read_tables
from curvebench.results.merging import KEYS, combine
from curvebench.results.schema import TABLES
from curvebench.results.writing import write_table
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
    [workload] = study.workloads
    runs = tables.runs
    return [
        (
            leaderboard([(study, tables)], backend).rows,
            results_rows(study, workload, backend, runs),
            settings_rows(study, workload.name, backend, runs, tried_in(study, tables)),
            pair_rows(study, workload.name, backend, runs),
            [
                row | {"step": row["step"]["median"], "own": row["own"]["median"]}
                for row in cost_rows(study, workload, backend, tables)
            ],
        )
        for backend in study.backends
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
        [
            tables.runs.filter(pl.col("run") != first),
            tables.runs.with_columns(pl.lit("m2").alias("machine")),
        ]
    )
    assert machine_by_backend(more) == {"jax": "m2", "torch": "m1"}
    runs, _, sentences = one_machine(more, tables.timings)
    assert set(runs.filter(backend="jax")["machine"]) == {"m2"}
    assert len(sentences) == 2
    other = pl.when(pl.col("optimizer") == "sgd").then(pl.lit("m2")).otherwise("machine").alias("machine")
    spread = tables.runs.with_columns(other)
    runs, timings, sentences = one_machine(spread, tables.timings)
    assert (len(runs), len(timings), sentences) == (len(spread), len(tables.timings), [])
