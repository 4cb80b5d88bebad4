"""The figures of studies: self-contained, in both themes, and drawn from little, or said not to be."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf, nan
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest

from curvebench.__main__ import main
from curvebench.reports.figures.all_figures import draw_figures
from curvebench.reports.figures.drawing import Grid, draw_line, log_axes, on_axis, plain_ticks
from curvebench.reports.figures.palette import look_of
from curvebench.reports.tables import read_tables
from curvebench.results.schema import TABLES
from curvebench.results.writing import write_table
from tests.reports.conftest import Report, changed_plan, site_of
from tests.reports.synthetic import HOSTILE, Shape, write_plan


@pytest.fixture(scope="module")
def drawn(report: Report) -> list[dict]:
    return [
        figure | {"folder": study.figures}
        for study in report.plan.studies
        for figure in json.loads((study.figures / "figures.json").read_text())
    ]


def test_figures_are_self_contained_svg_with_real_text_and_every_colour_in_both_themes(drawn: list[dict]):
    for figure in drawn:
        text = (figure["folder"] / f"{figure['name']}.svg").read_text()
        root = ElementTree.fromstring(text)
        assert root.tag.endswith("svg")
        assert [node for node in root.iter() if node.tag.endswith("}text")]
        links = [value for node in root.iter() for key, value in node.attrib.items() if key.endswith("href")]
        assert all(link.startswith("#") for link in links)
        assert not re.search(r"url\((?!#)|@import|<script|<!DOCTYPE", text)
        assert "sans-serif" in text
        colours = {
            colour
            for node in root.iter()
            for colour in re.findall(r"(?:fill|stroke): #[0-9a-f]+", node.attrib.get("style", ""))
        }
        assert colours == set(re.findall(r'\[style\*="([^"]*)"\]', text))


def test_a_hostile_name_is_text_and_not_markup(drawn: list[dict]):
    [figure] = [f for f in drawn if f["name"] == "log_sum_exp.jax.front"]
    text = (figure["folder"] / f"{figure['name']}.svg").read_text()
    assert "<script" not in text
    words = "".join("".join(node.itertext()) for node in ElementTree.fromstring(text).iter())
    assert HOSTILE in words


def test_the_same_tables_give_the_same_bytes(report: Report, tmp_path: Path):
    study = report.plan.study("convex")
    draw_figures(study, read_tables(study.tables), tmp_path)
    again = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert again == {path.name: path.read_bytes() for path in study.figures.iterdir()}


def test_a_band_is_open_above_and_ends_where_all_runs_diverged():
    from matplotlib.figure import Figure

    levels = {"lower_quartile": [1.0, 2.0, inf], "median": [2.0, 3.0, inf], "upper_quartile": [3.0, inf, inf]}
    panel = Figure().subplots()
    draw_line(panel, look_of("adam"), pl.DataFrame({"step": [1, 2, 3]} | levels), "step")
    ((band,),) = (collection.get_paths() for collection in panel.collections)
    assert {tuple(point) for point in np.asarray(band.vertices)} == {(1, 1), (2, 2), (2, 1e30), (1, 3)}
    assert panel.dataLim.intervalx.tolist() == [1, 2]
    assert panel.dataLim.intervaly.tolist() == [1, 3]  # infinite ends of bands do not change the axis


def test_the_rates_that_were_chosen_are_inside_the_axes():
    """Final seeds may end far below the tuning seeds, whose medians the axis would else hold to."""
    from matplotlib.figure import Figure

    bands = pl.DataFrame(
        {"learning_rate": [0.1, 1.0], "median": [1.0, 2.0], "lower_quartile": [0.9, 1.8]}
    ).with_columns(upper_quartile=pl.col("median") * 1.1)
    for marks in (None, pl.Series([1e-3, float("inf")])):
        figure = Figure()
        panel = figure.subplots()
        panel.set_yscale("log")
        Grid(figure, {"adam": panel}).limit_heights(bands, "learning_rate", "minimize", marks)
        assert (panel.get_ylim()[0] < 1e-3) == (marks is not None)
        assert panel.get_ylim()[1] < 10


@pytest.mark.parametrize(
    ("values", "log"),
    [
        ([0.3, 1e-9, -8.9e-16], "y"),
        ([1e-8, -8.9e-16], "y"),
        ([1e6, -1e-7], "y"),
        ([inf, 0.0, 2.0], "y"),
        ([0.3, -1e-9], ""),
        ([1e6, -1e-3], ""),
        ([0.0, -1e-16], ""),
        ([inf], ""),
    ],
)
def test_an_axis_is_logarithmic_where_values_are_below_zero_by_rounding_alone(values: list[float], log: str):
    assert log_axes("minimize", pl.Series(values)) == log
    assert log_axes("maximize", pl.Series(values), x=True) == "x"


def test_points_that_rounding_took_below_zero_are_drawn_on_the_floor():
    from matplotlib.figure import Figure

    panel = Figure().subplots()
    assert on_axis(panel, [2.0, -8.9e-16]).tolist() == [2.0, -8.9e-16]
    panel.set_yscale("log")
    panel.set_ylim(1e-5, 1)
    assert on_axis(panel, [2.0, -8.9e-16, 1e-9, 0.0, inf]).tolist() == [2.0, 1e-9, 1e-9, 1e-9, inf]
    assert on_axis(panel, [-8.9e-16]).tolist() == [1e-5]


def test_figures_are_drawn_as_pdf_on_demand_with_what_they_say(report: Report, tmp_path: Path):
    plan = changed_plan(report.plan_file, tmp_path, lambda raw: raw["studies"].pop(0))
    assert main(["figures", "--plan", str(plan), "--pdf", str(tmp_path)]) == 0
    shown = json.loads((tmp_path / "convex/pdf/figures.json").read_text())
    assert shown == json.loads((report.plan.study("convex").figures / "figures.json").read_text())
    drawn = {path.stem: path.read_bytes() for path in (tmp_path / "convex/pdf").glob("*.pdf")}
    assert set(drawn) == {figure["name"] for figure in shown}
    assert all(content.startswith(b"%PDF-") for content in drawn.values())
    assert not list(tmp_path.rglob("*.svg"))


@pytest.mark.parametrize("ends", [(1.585, 1.625), (3.3e-3, 8.3e-3), (9e-3, 0.04), (0.4, 1.1)])
def test_a_narrow_logarithmic_axis_has_few_marks_of_which_no_two_read_the_same(ends: tuple[float, float]):
    from matplotlib.figure import Figure

    panel = Figure().add_subplot()
    panel.set_xscale("log")
    panel.set_xlim(*ends)
    plain_ticks(panel, 1.2)
    places = [place for place in panel.xaxis.get_majorticklocs() if ends[0] <= place <= ends[1]]
    assert 2 <= len(places) <= 4
    assert len({*panel.xaxis.get_major_formatter().format_ticks(places)}) == len(places)


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
    """Replace all values by NaN, for each optimizer from another step on, so that the workload is not at
    fault.
    """
    return runs.with_columns(
        values("final_metrics", nan),
        values("best_metrics", nan),
        pl.lit("diverged").alias("outcome"),
        outcome_step.alias("outcome_step"),
        pl.lit(1, pl.Int64).alias("steps"),
        pl.col("targets").list.head(0),
    )


def raised(runs: pl.DataFrame) -> pl.DataFrame:
    """Let every run fail before its first step, for each optimizer with another reason."""
    nothing = [pl.col(name).list.head(0) for name in ("final_metrics", "best_metrics")]
    error = pl.lit("error").alias("outcome"), pl.col("optimizer").alias("reason")
    return diverged(runs, pl.lit(None)).with_columns(*nothing, *error, steps=0)


def at_fault(runs: pl.DataFrame) -> pl.DataFrame:
    """Replace all values by NaN from the first step on, so that the workload is at fault."""
    return diverged(runs, pl.lit(1, pl.Int64))


def first_alone(runs: pl.DataFrame) -> pl.DataFrame:
    """Replace the values of all runs by NaN from the first step on, except those of the first final run."""
    first = pl.col("run") == runs.filter(pl.col("stage").cast(pl.String) == "final")["run"][0]
    return pl.concat([runs.filter(first), diverged(runs.filter(~first))], how="vertical_relaxed")


def nan_but(column: str, kept: pl.Expr) -> Change:
    """Return a function that replaces the values of a column by NaN, except in the rows of `kept`."""
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
        """Return the text of a page."""
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
    """Draw and render each case by the command line."""
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
