"""Figures of sources that checks of claims draw again."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from curvebench.reports.figures.palette import look_of
from curvebench.reports.figures.series import POINTS, _spaced, draw_series, series_rows
from curvebench.spec.errors import InputError
from curvebench.spec.plan import ChecksPlan
from tests.reports.changing import replace
from tests.reports.synthetic import CLAIMS

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


def test_a_landscape_is_drawn_in_one_unit_with_the_colour_of_its_optimizer(
    checks: ChecksPlan, tmp_path: Path
):
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
