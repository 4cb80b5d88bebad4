"""Every figure where there is little or nothing to draw: none fails, and pages say what is missing."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import nan
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from curvebench.__main__ import main
from curvebench.results.schema import TABLES
from curvebench.results.writing import write_table
from tests.reports.conftest import changed_plan, site_of
from tests.reports.synthetic import Shape, write_plan

SHAPE = Shape(
    workloads=("small", "large"),
    optimizers=("sgd", "adam"),
    bases=("identity", "r1", "r2", "r3"),
    backends=("jax",),
    seeds=(1000, 1001),
    tuning_seeds=(0,),
)
KINDS = {"curve", "wall_clock", "target", "sensitivity", "front", "across", "claim", "series"}
STEPS_THAT_DIFFER = pl.when(optimizer="sgd").then(1).otherwise(2).cast(pl.Int64)
NOT_DRAWN = "Not drawn: there is no finite value."
Change = Callable[[pl.DataFrame], pl.DataFrame]


def values(column: str, value: float) -> pl.Expr:
    """Metrics of runs that all have one value."""
    fields = [pl.element().struct.field(name) for name in ("name", "step")[: 1 + column.startswith("best")]]
    return pl.col(column).list.eval(pl.struct(fields[0], pl.lit(value).alias("value"), *fields[1:]))


def diverged(runs: pl.DataFrame, outcome_step: pl.Expr = STEPS_THAT_DIFFER) -> pl.DataFrame:
    """Every run NaN, each optimizer from its own step on, so that the workload is not at fault."""
    return runs.with_columns(
        values("final_metrics", nan),
        values("best_metrics", nan),
        pl.lit("diverged").alias("outcome"),
        outcome_step.alias("outcome_step"),
        pl.lit(1, pl.Int64).alias("steps"),
        pl.col("targets").list.head(0),
    )


def raised(runs: pl.DataFrame) -> pl.DataFrame:
    """Every run without a step, a metric and a curve, each optimizer for its own reason."""
    nothing = [pl.col(name).list.head(0) for name in ("final_metrics", "best_metrics")]
    error = pl.lit("error").alias("outcome"), pl.col("optimizer").alias("reason")
    return diverged(runs, pl.lit(None)).with_columns(*nothing, *error, steps=0)


def at_fault(runs: pl.DataFrame) -> pl.DataFrame:
    """Every run NaN from the first step on."""
    return diverged(runs, pl.lit(1, pl.Int64))


def first_alone(runs: pl.DataFrame) -> pl.DataFrame:
    """Every run NaN from its first step on, but the first final one."""
    first = pl.col("run") == runs.filter(pl.col("stage").cast(pl.String) == "final")["run"][0]
    return pl.concat([runs.filter(first), diverged(runs.filter(~first))], how="vertical_relaxed")


def nan_but(column: str, kept: pl.Expr) -> Change:
    """Every value of a table's column NaN but those that are kept."""
    return lambda table: table.with_columns(pl.when(kept).then(column).otherwise(nan).alias(column))


NONE = pl.lit(value=False)
FIRST = {
    "runs": first_alone,
    "curves": nan_but("value", pl.col("step") == 0),
    "series": nan_but("y", pl.col("x") == 1),
}
CASES: dict[str, tuple[Shape, dict[str, Change]]] = {
    "one seed": (replace(SHAPE, seeds=(1000,)), {}),
    "one method": (replace(SHAPE, optimizers=("adam",), bases=("identity",)), {}),
    "one value": (SHAPE, FIRST),
    "no finite value": (
        SHAPE,
        {"runs": diverged, "curves": nan_but("value", NONE), "series": nan_but("y", NONE)},
    ),
    "no value": (SHAPE, {"runs": raised, "curves": pl.DataFrame.clear, "series": pl.DataFrame.clear}),
    "workload at fault": (SHAPE, {"runs": at_fault, "curves": nan_but("value", NONE)}),
}


@dataclass(frozen=True)
class Rendered:
    """The report of a case: its figures, as the site lists them, and its site."""

    case: str
    figures: list[dict[str, Any]]
    site: Path

    def page(self, name: str) -> str:
        """The text of a page."""
        return (self.site / f"{name}.html").read_text()


def differ(raw: dict[str, Any]) -> None:
    """Let workloads differ in a setting, and bases in their rank."""
    (study,) = raw["studies"]
    for number, workload in enumerate(study["workloads"], start=1):
        workload |= {"source": "000", "settings": {"size": number}}
    for number, basis in enumerate(study["bases"][1:], start=1):
        basis |= {"name": "egop", "options": {"samples": "1.0 d", "rank": number}}


@pytest.fixture(scope="module", params=CASES)
def rendered(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Rendered:
    """Each case, drawn and rendered by the command line."""
    shape, changes = CASES[request.param]
    folder = tmp_path_factory.mktemp("few")
    plan = changed_plan(write_plan(folder, [shape], checks=True), folder, differ)
    for name, change in changes.items():
        for path in folder.rglob(f"{name}.parquet"):
            write_table(path, change(pl.read_parquet(path)), TABLES[name])
    assert main(["figures", "--plan", str(plan)]) == 0
    site = site_of(plan, folder)
    listed = [figure for path in folder.rglob("figures.json") for figure in json.loads(path.read_text())]
    return Rendered(request.param, listed, site)


def test_what_is_not_drawn_is_a_sentence_on_its_page(rendered: Rendered):
    drawn = {path.stem for path in rendered.site.rglob("*.svg") if path.parent.name != "board_figures"}
    assert drawn == {figure["name"] for figure in rendered.figures if not figure["empty"]}
    for page, kinds in (("study_digits_mlp", KINDS - {"claim", "series"}), ("claims", {"series"})):
        missing = [figure for figure in rendered.figures if figure["empty"] and figure["kind"] in kinds]
        assert rendered.page(page).count(NOT_DRAWN) >= len(missing)
        assert (NOT_DRAWN in rendered.page(page)) == bool(missing)


EVERYTHING = {
    "one seed": KINDS,
    "one method": KINDS - {"front"},
    "one value": {"curve", "wall_clock", "across", "claim", "series"},
    "no finite value": {"claim"},
    "no value": {"claim"},
    "workload at fault": {"series"},
}


def test_each_kind_of_figure_is_drawn_from_little_and_none_from_nothing(rendered: Rendered):
    drawn = {figure["kind"] for figure in rendered.figures if not figure["empty"]}
    assert drawn == EVERYTHING[rendered.case]
    assert any((rendered.site / "board_figures").glob("*.svg")) == ("curve" in drawn)


def test_a_workload_at_fault_is_told_once_and_ranks_nobody(rendered: Rendered):
    fault = rendered.case == "workload at fault"
    assert rendered.page("study_digits_mlp").count("The workload is at fault") == 2 * fault
    assert rendered.page("index").count("<strong>workload fault</strong>") == 2 * fault
    assert ("<table" in rendered.page("leaderboard")) != fault
