"""Failures, each of which is reported once, and methods of a single backend, which are tuned on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from curvebench.reports.claims.comparison import outcome_lookup
from curvebench.reports.failures import blame_workloads, failures_of, faults_of
from curvebench.reports.measures import problems_of
from curvebench.reports.pages.study_pages import options_of, settings_rows
from curvebench.reports.tables import read_tables
from curvebench.results.schema import TABLES
from curvebench.results.writing import write_table
from curvebench.spec.plan import read_plan
from tests.reports.conftest import changed_plan, words_of
from tests.reports.synthetic import Shape, write_plan
from tests.results.rows import rows

SCHEMA = dict.fromkeys(("study", "stage", "backend", "spec_hash"), pl.String)


def jobs(*failed: tuple[str, str, str, str]) -> pl.DataFrame:
    """Return a table of jobs with one job per failure, each given as hash, name, outcome and reason."""
    rows = [
        ("convex", "runs", "jax", job, [{"what": what, "outcome": outcome, "reason": reason}])
        for job, what, outcome, reason in failed
    ]
    failures = pl.List(pl.Struct(dict.fromkeys(("what", "outcome", "reason"), pl.String)))
    return pl.DataFrame(rows, schema=SCHEMA | {"failures": failures}, orient="row")


def test_what_fails_at_several_learning_rates_is_one_line():
    told = failures_of(
        jobs(
            ("a", "sgd on w at learning_rate 0.1, 3 of 9 runs", "error", "no such file"),
            ("a", "sgd on w at learning_rate 1e-05, 2 of 9 runs", "error", "no such file"),
            ("b", "sgd on w at learning_rate 1, 1 of 4 runs", "error", "no such file"),
            ("b", "sgd on w, 4 of 4 runs", "out_of_memory", "too large"),
            ("b", "basis egop of w", "error", "singular"),
            ("c", "adam on w in tuning round 2 at learning_rate 1, 2 of 4 runs", "error", "full"),
            ("c", "adam on w in tuning round 2 at learning_rate 2, 1 of 4 runs", "error", "full"),
            ("c", "lion on w in tuning round 2, 4 of 4 runs", "error", "full"),
            ("c", "lion on w in the final round, 4 of 4 runs", "error", "full"),
        )
    )
    assert [(one["what"], one["outcome"], one["reason"]) for one in told] == [
        ("sgd on w, 6 of 13 runs", "error", "no such file"),
        ("sgd on w, 4 of 4 runs", "out_of_memory", "too large"),
        ("basis egop of w", "error", "singular"),
        ("adam on w in tuning round 2, 3 of 4 runs", "error", "full"),
        ("lion on w, 8 of 8 runs", "error", "full"),
    ]
    assert failures_of(jobs().clear()) == []


def table(*more: dict[str, Any], **alike: Any) -> pl.DataFrame:
    """Runs of two optimizers on two seeds that diverge at step 1, or fail as is said, and more runs."""
    every = ({"optimizer": name, "seed": seed, **alike} for name in ("sgd", "adam") for seed in (0, 1))
    diverged: dict[str, Any] = {"outcome": "diverged", "outcome_step": 1, "workload": "w"}
    return rows("runs", *(diverged | run for run in (*every, *more)))


BASIS: dict[str, Any] = {
    "optimizer": "adam",
    "basis": "egop",
    "outcome": "error",
    "outcome_step": None,
    "reason": "egop",
}
RAISED: dict[str, Any] = {"outcome": "error", "outcome_step": None, "reason": "ValueError: no such data"}
LATER: list[dict[str, Any]] = [{"optimizer": name, "seed": 2, "outcome_step": 3} for name in ("sgd", "adam")]


@pytest.mark.parametrize(
    ("runs", "fault"),
    [
        pytest.param(table(), True, id="at one step"),
        pytest.param(table(BASIS), True, id="where a basis could not be estimated"),
        pytest.param(table(*LATER), True, id="by seed"),
        pytest.param(table(**RAISED), True, id="by one error"),
        pytest.param(table({"outcome": "interrupted"}), True, id="beside an interrupted run"),
        pytest.param(table({"outcome": "budget"}), False, id="but one run"),
        pytest.param(table({"outcome": "out_of_memory"}), False, id="out of memory"),
        pytest.param(table({"optimizer": "adam", "outcome_step": 2}), False, id="at another step"),
        pytest.param(table(RAISED), False, id="another way"),
        pytest.param(table().filter(optimizer="sgd"), False, id="of one optimizer"),
        pytest.param(table().clear(), False, id="none"),
    ],
)
def test_a_workload_is_at_fault_where_every_method_fails_alike(runs: pl.DataFrame, fault: bool):
    blamed = blame_workloads(pl.concat([runs, rows("runs", {"workload": "other"})], how="vertical_relaxed"))
    assert ("workload_fault" in blamed["outcome"]) == fault
    assert blamed.filter(workload="other")["outcome"].to_list() == ["budget"]
    assert ("interrupted" in blamed["outcome"]) == ("interrupted" in runs["outcome"].cast(pl.String))
    failed = jobs(
        ("a", "sgd on w at learning_rate 0.1, 3 of 9 runs", "error", "no such file"),
        (
            "a",
            "sgd on w, seed 7 in tuning round 1 at learning_rate 0.1, 1 of 1 runs",
            "error",
            "no such file",
        ),
        ("b", "basis egop on other", "error", "singular"),
    )
    told = [one["what"] for one in failures_of(failed, faults_of("convex", blamed))]
    assert told == [
        *(["w"] if fault else []),
        *([] if fault else ["sgd on w, 3 of 9 runs", "sgd on w, seed 7 in tuning round 1, 1 of 1 runs"]),
        "basis egop on other",
    ]


# --- contestants of one backend -------------------------------------------------------------------


SHAPE = Shape(optimizers=("sgd", "adam"), seeds=tuple(range(1000, 1006)), tuning_seeds=(0,))
CHOSEN = {
    "name": "torch.optim.Adam",
    "label": "adam",
    "locator": "torch:torch.optim.Adam",
    "options": {"arguments": {"amsgrad": True, "eps": 1e-8}, "tuned": ["learning_rate"]},
}


def test_a_contestant_of_one_backend_is_tuned_there(tmp_path: Path) -> None:
    """On paper PyTorch takes JAX' rates; Adam is made a contestant of PyTorch's alone."""

    def change(raw: dict[str, Any]) -> None:
        raw["studies"][0]["optimizers"] = [{"name": "sgd"}, CHOSEN]
        raw["studies"][0]["runs_on"]["torch"]["tuned_on"] = "jax"

    path = changed_plan(write_plan(tmp_path, [SHAPE]), tmp_path, change)
    tables = tmp_path / "tables" / SHAPE.name
    runs = pl.read_parquet(tables / "runs.parquet")
    is_adam, on_torch = pl.col("optimizer") == "adam", pl.col("backend") == "torch"
    is_tuning = pl.col("stage").cast(pl.String) != "final"
    moved = runs.filter(is_adam & is_tuning & ~on_torch).with_columns(
        pl.lit("torch").alias("backend"), (pl.col("run") + "-moved").alias("run")
    )
    kept = runs.filter(~(is_adam & ~on_torch) & ~(is_tuning & on_torch))
    write_table(tables / "runs.parquet", pl.concat([kept, moved]), TABLES["runs"])
    plan = read_plan(path)
    (study,) = plan.studies
    found = read_tables(tables)

    def rows_on(backend: str) -> dict[str, dict]:
        rows = settings_rows(problems_of(study, found, backend)[0], outcome_lookup(study, found))
        return {row["method"]: row for row in rows}

    rows = rows_on("torch")
    assert rows["adam"]["tuned_on"] == "torch"
    assert rows["sgd"]["tuned_on"] == "jax"
    assert "adam" not in rows_on("jax")
    assert options_of(study, "adam @ egop") == {"rule": "torch:torch.optim.Adam", "amsgrad": True}
    said = words_of("setting.jinja", "options", rows["adam"]["others"])
    assert "rule torch:torch.optim.Adam" in said
    assert said.endswith("with amsgrad")
