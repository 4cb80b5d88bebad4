"""Wall-clock times: the phases of a job add up to its total, step times are measured, and pages show both."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from curvebench.__main__ import main
from curvebench.reports.claims.quantities import TrainedSeconds
from curvebench.reports.measures import problems_of
from curvebench.reports.tables import Tables, read_tables
from curvebench.reports.wall_clock import PHASES, clock_of, final_jobs, paces, step_seconds
from curvebench.results.schema import TABLES, WITHIN
from curvebench.spec.conditions.costs import RunSeconds
from curvebench.spec.plan import StudyPlan, read_plan
from tests.reports.changing import replace
from tests.reports.conftest import site_of
from tests.reports.pages.reading import Page
from tests.reports.synthetic import STEPS, Shape, write_plan
from tests.results.rows import BASE

LONG = Shape(name="long", workloads=("long",), backends=("jax",), seeds=(1000, 1001, 1002, 1003))
BATCH = 30
TAKEN = {"import": 2.0, "data": 5.0, "compile": 8.0, "step": 100.0, "evaluation": 20.0, "other": 3.0}
INSIDE = {"waiting": 4.0, "basis": 0.0, "checkpoint": 1.0}


def write_long(folder: Path) -> Path:
    """Return the plan of a study without timed steps, whose final runs are jobs, the longer the higher the
    seed.
    """
    path = write_plan(folder, [LONG])
    place = folder / "tables" / LONG.name
    tables = {name: pl.read_parquet(place / f"{name}.parquet") for name in ("runs", "jobs", "timings")}
    final = pl.col("stage").cast(pl.String) == "final"
    runs = tables["runs"].with_columns(
        spec_hash=pl.when(final).then("run").otherwise("spec_hash"), bundle_lanes=pl.lit(1, pl.Int64)
    )
    jobs = [job(run["run"], 1 + run["seed"] - LONG.seeds[0]) for run in runs.filter(final).to_dicts()]
    own = pl.DataFrame(jobs, schema=TABLES["jobs"])
    runs.write_parquet(place / "runs.parquet")
    pl.concat([tables["jobs"], own]).write_parquet(place / "jobs.parquet")
    tables["timings"].clear().write_parquet(place / "timings.parquet")
    return path


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_long(tmp_path_factory.mktemp("long"))


def job(name: str, times: float) -> dict[str, Any]:
    taken = {f"{phase}_seconds": times * seconds for phase, seconds in (TAKEN | INSIDE).items()}
    about = {"spec_hash": name, "study": LONG.name, "gpu": "H100", "peak_memory_bytes": 2**30}
    taken["gpu_joules"] = 1.8e6 * times
    return BASE["jobs"] | about | taken | {"total_seconds": times * sum(TAKEN.values())}


@pytest.fixture(scope="module")
def long(plan_file: Path) -> tuple[StudyPlan, Tables]:
    (study,) = read_plan(plan_file).studies
    return study, read_tables(study.tables)


def rows_of(study: StudyPlan, tables: Tables) -> dict[str, dict[str, Any]]:
    return {row["method"]: row for row in clock_of(*problems_of(study, tables))["rows"]}


def assert_adds_up(row: dict[str, Any]) -> None:
    parts = [row[f"{phase}_seconds"] or 0.0 for phase in PHASES]
    assert math.fsum(parts) == pytest.approx(row["total_seconds"])


def test_the_parts_of_every_job_add_up_and_the_basis_is_charged(long: tuple[StudyPlan, Tables]):
    study, tables = long
    jobs = final_jobs(study, tables)
    assert len(jobs) == len(LONG.seeds) * len(study.methods)
    charged = dict(tables.runs.filter(stage="final").select("run", "basis_seconds").iter_rows())
    for row in jobs.to_dicts():
        assert_adds_up(row)
        assert row["basis_seconds"] == pytest.approx(charged[row["spec_hash"]])
        assert (row["basis_seconds"] > 0) == (row["method"].endswith("@ egop"))


def test_a_job_that_tunes_too_is_charged_the_basis_of_each_seed_once(long: tuple[StudyPlan, Tables]):
    """Its seeds have different numbers of runs: all rates on tuning seeds, one on final seeds."""
    study, tables = long
    runs = tables.runs.filter(method="adam @ egop").with_columns(
        spec_hash=pl.lit("whole"), basis_seconds=(pl.col("seed") % 7 + 1).cast(pl.Float64)
    )
    assert runs["seed"].value_counts()["count"].n_unique() > 1
    jobs = pl.DataFrame([job("whole", 1)], schema=TABLES["jobs"])
    (row,) = final_jobs(study, replace(tables, runs=runs, jobs=jobs)).to_dicts()
    assert row["runs"] == len(runs)
    assert row["basis_seconds"] == pytest.approx(sum(seed % 7 + 1 for seed in set(runs["seed"])))
    assert_adds_up(row)


def test_a_method_has_the_job_with_the_median_total(long: tuple[StudyPlan, Tables]):
    rows = rows_of(*long)
    assert list(rows) == list(long[0].methods)
    adam, whole = rows["adam"], sum(TAKEN.values())
    assert (adam["jobs"], adam["runs"], adam["unbatched"]) == (4, 1, True)
    assert [adam[name] for name in ("least", "total_seconds", "most")] == [whole, 2 * whole, 4 * whole]
    assert adam["waiting_seconds"] == 2 * INSIDE["waiting"]
    assert adam["data_seconds"] == 2 * (TAKEN["data"] - INSIDE["waiting"])
    assert adam["other_seconds"] == 2 * (TAKEN["other"] - INSIDE["checkpoint"])
    assert adam["examples_a_second"] == pytest.approx(BATCH * STEPS[-1] / (2 * TAKEN["step"]))


def test_a_run_that_diverged_has_no_examples_a_second(long: tuple[StudyPlan, Tables]):
    jobs = final_jobs(*long).filter(method="sgd").sort("total_seconds")
    assert jobs["examples"].is_null().to_list() == [True, False, False, False]


def test_what_earlier_tables_do_not_tell_apart_is_in_the_phase_around_it(long: tuple[StudyPlan, Tables]):
    study, tables = long
    unknown = [pl.lit(None, pl.Float64).alias(f"{part}_seconds") for part in WITHIN]
    earlier = replace(tables, jobs=tables.jobs.with_columns(unknown))
    for row in rows_of(study, earlier).values():
        assert_adds_up(row)
        assert row["waiting_seconds"] is None
        assert row["data_seconds"] == 2 * TAKEN["data"]
        assert (row["basis_seconds"] > 0) == (row["method"].endswith("@ egop")), "none was estimated anew"


def test_a_basis_estimated_anew_is_no_step(long: tuple[StudyPlan, Tables]):
    study, tables = long
    bases = tuple(
        replace(basis, options={**basis.options, "every": "2 epochs"}) if basis.name == "egop" else basis
        for basis in study.bases
    )
    within = pl.col("spec_hash").is_in(tables.runs.filter(pl.col("basis") == "egop")["run"].to_list())
    anew = pl.when(within).then(0.2).otherwise(0.0)  # seconds of estimation during the runs
    jobs = tables.jobs.with_columns(basis_seconds=anew)
    rows = rows_of(replace(study, bases=bases), replace(tables, jobs=jobs))
    for row in rows.values():
        assert_adds_up(row)
    row = rows["adam @ egop"]
    assert row["step_seconds"] == pytest.approx(2 * TAKEN["step"] - 0.2)
    charged = tables.runs.filter(run=row["spec_hash"])["basis_seconds"].item()
    assert row["basis_seconds"] == pytest.approx(charged), "once, before the run and anew"
    assert rows["adam"]["basis_seconds"] == 0


def test_a_job_of_several_methods_tells_nothing_of_one(study: StudyPlan, tables: Tables):
    assert rows_of(study, tables) == {}


def test_steps_have_the_timed_pace(study: StudyPlan, tables: Tables, long: tuple[StudyPlan, Tables]):
    timed = paces(*problems_of(study, tables))
    assert timed["timed"].all()
    wanted = step_seconds(tables.timings.filter(backend="jax")).select("method", "median")
    assert dict(timed.select("method", "each").iter_rows()) == dict(wanted.iter_rows())
    own = paces(*problems_of(*long)).filter(method="adam")
    assert not own["timed"].any()
    assert own["each"].item() == pytest.approx(2.5 * (TAKEN["step"] + INSIDE["waiting"]) / STEPS[-1])
    assert own["compile"].item() == 2.5 * TAKEN["compile"]
    together = replace(long[1], runs=long[1].runs.with_columns(bundle_lanes=pl.lit(4, pl.Int64)))
    assert paces(*problems_of(long[0], together)).is_empty()


def test_the_page_shows_curves_against_seconds_and_the_phases_of_each_method(
    plan_file: Path, tmp_path: Path, frozen: Callable[[Path, str], None]
):
    assert main(["figures", "--plan", str(plan_file)]) == 0
    page = site_of(plan_file, tmp_path) / "study_long.html"
    bars = re.findall(r'<span class="phases".*?</td>', page.read_text())
    shares = [sum(map(float, re.findall(r"width: ([\d.]+)%", bar))) for bar in bars]
    assert len(shares) == 6
    assert max(shares) == pytest.approx(100, abs=0.1)
    outline = Page(page).outline
    (section,) = re.findall(r"Wall clock\n.*?Cost of one run", outline, re.DOTALL)
    assert section.count("\ntd: 1.00\n") == len(bars), "kWh: 3.6 megajoules"
    frozen(Path(__file__).with_name("wall_clock.txt"), section)


def test_seconds_of_training_are_those_of_each_runs_own_job(long: tuple[StudyPlan, Tables]):
    study, tables = long
    final = tables.runs.filter(stage="final", backend="jax").sort("method", "seed")
    taken = TAKEN["step"] + INSIDE["waiting"]
    expected = [
        math.inf
        if row["outcome"] == "diverged"
        else (1 + row["seed"] - LONG.seeds[0]) * taken + (row["basis_seconds"] or 0.0)
        for row in final.to_dicts()
    ]
    seconds = TrainedSeconds(RunSeconds.model_construct(), study, tables)
    assert seconds.of_runs(final)["value"].to_list() == pytest.approx(expected)
    lost = final.with_columns(outcome=pl.lit("error"))
    assert set(seconds.of_runs(lost)["value"]) == {float("inf")}
    shared = final.filter(pl.col("outcome") != "diverged").with_columns(spec_hash=pl.lit("of several"))
    assert seconds.of_runs(shared)["value"].null_count() == len(shared)
