"""Contestants that run on one backend alone: where they were tuned, and what was chosen for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from curvebench.reports.claims.comparison import tried_in
from curvebench.reports.measures import problems_of
from curvebench.reports.pages.study_pages import options_of, settings_rows
from curvebench.reports.tables import read_tables
from curvebench.results.schema import TABLES
from curvebench.results.writing import write_table
from curvebench.spec.plan import read_plan
from tests.reports.conftest import changed_plan, words_of
from tests.reports.synthetic import Shape, write_plan

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
        rows = settings_rows(problems_of(study, found, backend)[0], tried_in(study, found))
        return {row["method"]: row for row in rows}

    rows = rows_on("torch")
    assert rows["adam"]["tuned_on"] == "torch"
    assert rows["sgd"]["tuned_on"] == "jax"
    assert "adam" not in rows_on("jax")
    assert options_of(study, "adam @ egop") == {"rule": "torch:torch.optim.Adam", "amsgrad": True}
    said = words_of("setting.jinja", "options", rows["adam"]["others"])
    assert "rule torch:torch.optim.Adam" in said
    assert said.endswith("with amsgrad")
