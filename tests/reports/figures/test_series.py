"""Figures of claims: forests of comparisons, and series drawn as their sources have them."""

from __future__ import annotations

import re
from math import inf
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from curvebench.reports.figures.forest import draw_forests
from curvebench.reports.figures.palette import look_of
from curvebench.reports.figures.series import POINTS, _spaced, draw_series, series_rows
from curvebench.reports.measures import study_values
from curvebench.reports.statistics.decisions import ClaimRelation
from curvebench.reports.tables import read_tables
from curvebench.spec.errors import InputError
from curvebench.spec.plan import ChecksPlan
from tests.reports.changing import replace
from tests.reports.conftest import Report
from tests.reports.synthetic import CLAIMS, compared

DECAYING, _, LANDSCAPE = CLAIMS


def test_a_set_without_series_has_none_and_a_damaged_one_is_named(checks: ChecksPlan, tmp_path: Path):
    bare = replace(checks, tables=(tmp_path,))
    assert len(series_rows(bare)) == 0
    (tmp_path / "series.parquet").write_bytes(b"no table")
    with pytest.raises(InputError, match=r"series\.parquet"):
        series_rows(bare)


def test_lines_of_several_instances_are_told_by_median_and_band(checks: ChecksPlan, tmp_path: Path):
    (drawn,) = [one for one in draw_series(checks, tmp_path) if one.workload == DECAYING]
    assert (drawn.kind, drawn.workload, drawn.backend) == ("series", DECAYING, "host")
    assert "EGOP: 0.896 at 1; " in drawn.alt  # 10^(-1 / 21), of the instance in the middle
    svg = (tmp_path / f"{drawn.name}.svg").read_text()
    for text in ("EGOP", "law", "1 / d", "index k", "ratio &lt;b&gt;r&lt;/b&gt;"):
        assert f">{text}</text>" in svg


def test_a_landscape_has_one_unit_and_its_optimizers_colour(checks: ChecksPlan, tmp_path: Path):
    (drawn,) = [one for one in draw_series(checks, tmp_path) if one.workload == LANDSCAPE]
    svg = (tmp_path / f"{drawn.name}.svg").read_text()
    assert len(re.findall(look_of("adagrad").ink.light, svg)) > 6, "Adagrad's, in both coordinates"
    assert svg.count("<use ") < 150, "points that cannot be told apart are drawn once"
    assert {"original", "EGOP"} <= set(re.findall(">([^<>]+)</text>", svg))


def test_a_drawn_path_keeps_its_ends_and_what_can_be_told_spaced():
    turns = np.linspace(0, 20 * np.pi, 20_001)
    spiral = np.column_stack([turns * np.cos(turns), turns * np.sin(turns)])
    kept = spiral[_spaced(spiral)]
    assert np.array_equal(kept[[0, -1]], spiral[[0, -1]])
    gaps = np.abs(np.diff(kept, axis=0)).max(1)
    hair = np.ptp(spiral, axis=0).max() / POINTS
    assert gaps[:-1].min() > hair
    assert gaps.max() < hair + np.abs(np.diff(spiral, axis=0)).max()


# --- forests --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("relation", "sign", "allowed"),
    [
        ("better", -1.0, (0.0, 0.95)),
        ("better", 1.0, (1 / 0.95, inf)),
        ("no_worse", -1.0, (0.0, 1 / 0.95)),
        ("same", -1.0, (0.95, 1 / 0.95)),
    ],
)
def test_what_a_claim_allows_as_a_ratio(relation: ClaimRelation, sign: float, allowed: tuple[float, float]):
    assert compared([1.0], relation, sign=sign).accepted_range == pytest.approx(allowed)


def test_what_runs_that_stopped_leave_open_has_no_circle_and_is_told(report: Report, tmp_path: Path):
    study = replace(report.plan.study("digits_mlp"), stop={"train_loss": 1.0}, backends=("jax",))
    (jax,) = draw_forests(study, read_tables(study.tables), tmp_path)
    assert "adam @ egop / adam both stopped at 1." in jax.alt
    assert "Without a circle: runs stopped" in jax.caption
    tables = read_tables(study.tables)
    exact = replace(study, stop={})
    adam = study_values(exact, tables.runs).filter(method="adam", stage="final", backend="jax")
    seventh = sorted(adam["value"])[6]  # of ten: three pairs have a bound, and the median has none
    (some,) = draw_forests(replace(study, stop={"train_loss": seventh}), tables, tmp_path)
    assert "adam @ egop / adam open, from 0 to ∞." in some.alt
    (whole,) = draw_forests(exact, read_tables(study.tables), tmp_path)
    assert "circle" not in whole.caption


def test_what_diverged_is_drawn_at_the_edge_and_told(report: Report, tmp_path: Path):
    study = report.plan.study("digits_mlp")
    tables = read_tables(study.tables)
    lost = (pl.col("method") == "adam") & (pl.col("stage") == "final")
    outcome = pl.when(lost).then(pl.lit("diverged")).otherwise("outcome").alias("outcome")
    worse = replace(tables, runs=tables.runs.with_columns(outcome))
    (jax,) = draw_forests(study, worse, tmp_path)
    assert "An arrow: the interval goes on beyond the axis, and without a circle the median" in jax.caption
    drawing = (tmp_path / f"{jax.name}.svg").read_text()
    exact = (study.figures / f"{jax.name}.svg").read_text()
    assert drawing.count("<use") == exact.count("<use"), "an arrow in the circle's place"
    assert "adam @ egop / adam 0, from 0 to 0" in jax.alt


def test_differences_have_an_axis_of_their_own(report: Report, tmp_path: Path):
    study = report.plan.study("digits_mlp")
    (claim,) = study.claims
    accuracy = replace(
        claim.conditions[0], metric="validation_accuracy", relation="no_worse", smallest_effect=0.01
    )
    both = replace(study, claims=(replace(claim, conditions=(*claim.conditions, accuracy)),))
    (jax,) = draw_forests(both, read_tables(study.tables), tmp_path)
    text = (tmp_path / f"{jax.name}.svg").read_text()
    assert "difference of the final validation accuracy" in text
    assert "ratio of the two" in text
    assert "claimed at least −0.0100: adam @ egop − adam" in jax.alt
