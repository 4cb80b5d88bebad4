"""Every figure of a report where there is little or nothing to draw: none fails, and pages say what is missing."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from math import nan
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from curvebench.__main__ import main
from results.schema import TABLES
from results.writing import write_table
from tests.reports.synthetic import Shape, write_plan

SHAPE = Shape(
    workloads=("small", "large"),
    optimizers=("sgd", "adam"),
    bases=("identity", "egop", "r1", "r2", "r3"),
    backends=("jax",),
    seeds=(1000, 1001, 1002, 1003),
    tuning_seeds=(0,),
)
KINDS = {"curve", "wall_clock", "target", "sensitivity", "front", "across", "claim", "series", "anytime"}
NOT_DRAWN = "Not drawn: there is no finite value."
Change = Callable[[pl.DataFrame], pl.DataFrame]


def changed(folder: Path, **changes: Change) -> None:
    """Change tables of a report, by their names."""
    for name, change in changes.items():
        for path in folder.rglob(f"{name}.parquet"):
            write_table(path, change(pl.read_parquet(path)), TABLES[name])


def values(column: str, value: float) -> pl.Expr:
    """Metrics of runs that all have one value."""
    fields = [pl.element().struct.field(name) for name in ("name", "step")[: 1 + column.startswith("best")]]
    return pl.col(column).list.eval(pl.struct(fields[0], pl.lit(value).alias("value"), *fields[1:]))


def diverged(runs: pl.DataFrame) -> pl.DataFrame:
    """Every run NaN from its first step on."""
    return runs.with_columns(
        values("final_metrics", nan),
        values("best_metrics", nan),
        pl.lit("diverged").alias("outcome"),
        pl.lit(1, pl.Int64).alias("outcome_step"),
        pl.lit(1, pl.Int64).alias("steps"),
        pl.col("targets").list.head(0),
    )


def raised(runs: pl.DataFrame) -> pl.DataFrame:
    """Every run without a step, a metric and a curve."""
    nothing = [pl.col(name).list.head(0) for name in ("final_metrics", "best_metrics")]
    return diverged(runs).with_columns(*nothing, outcome=pl.lit("error"), steps=0, reason=pl.lit("ValueError"))


def nans(name: str) -> Change:
    """Every value of a table's column NaN."""
    return lambda table: table.with_columns(pl.lit(nan).alias(name))


def but_one(name: str, among: Change = lambda table: table) -> Change:
    """Every value NaN but the first."""

    def change(table: pl.DataFrame) -> pl.DataFrame:
        first = pl.int_range(pl.len()) == 0
        return table.with_columns(pl.when(first).then(name).otherwise(nan).alias(name))

    return change


CASES: dict[str, tuple[Shape, dict[str, Change]]] = {
    "as it should be": (SHAPE, {}),
    "one seed": (replace(SHAPE, seeds=(1000,)), {}),
    "one method": (replace(SHAPE, optimizers=("adam",), bases=("identity",)), {}),
    "one method and seed": (replace(SHAPE, optimizers=("adam",), bases=("identity",), seeds=(1000,)), {}),
    "no finite value": (SHAPE, {"runs": diverged, "curves": nans("value"), "series": nans("y")}),
    "all runs raise": (SHAPE, {"runs": raised, "curves": pl.DataFrame.clear, "series": pl.DataFrame.clear}),
    "one finite value": (SHAPE, {"runs": diverged, "curves": but_one("value"), "series": but_one("y")}),
}


@pytest.fixture(scope="module", params=CASES)
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The name of a case, and the folder of its figures and its site."""
    shape, changes = CASES[request.param]
    folder = tmp_path_factory.mktemp("few")
    plan = write_plan(folder, [shape], checks=True)
    raw: dict[str, Any] = json.loads(plan.read_text())
    (study,) = raw["studies"]
    for number, workload in enumerate(study["workloads"]):
        workload |= {"source": "000", "settings": {"size": number + 1}}
    for number, basis in enumerate(study["bases"][2:]):
        basis |= {"name": "egop", "options": {"samples": "1.0 d", "rank": number + 1}}
    plan.write_text(json.dumps(raw))
    changed(folder, **changes)
    assert main(["figures", "--plan", str(plan)]) == 0
    assert main(["site", "--plan", str(plan), "--out", str(folder / "site")]) == 0
    return request.param, folder


def test_no_figure_fails(report: tuple[str, Path]):
    name, folder = report
    listed = [figure for path in folder.rglob("figures.json") for figure in json.loads(path.read_text())]
    print(name, [(f["name"], f["empty"]) for f in listed])
