"""A published set as pages, and the command that verifies it."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from reports.__main__ import main
from reports.plan import read_plan
from reports.publish import alike, publish
from tests.reports.sets import write_report
from tests.reports.synthetic import Shape

SMALL = Shape(optimizers=("sgd", "adam"), backends=("jax",))


def dirty(jobs: pl.DataFrame) -> pl.DataFrame:
    return jobs.with_columns(dirty=pl.lit(value=True))


def test_a_set_renders_with_its_figures_and_what_was_waived(tmp_path: Path):
    plan = read_plan(write_report(tmp_path / "tables", [SMALL], checks=False, jobs=dirty))
    made = publish(plan, "waived.quick", tmp_path / "published", ["dirty"])
    site = tmp_path / "site"
    assert main(["site", "--plan", str(made / "plan.json"), "--out", str(site)]) == 0
    board = (site / "leaderboard.html").read_text()
    assert "Published although:" in board
    assert "digits_mlp: 6 of 6 jobs ran code that differs from its commit" in board
    assert list((site / "figures/digits_mlp").glob("*.svg"))
    assert not list(made.rglob("*.svg"))  # a set holds no figures


def test_a_set_is_verified_from_its_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    plan = read_plan(write_report(tmp_path / "tables", [SMALL], checks=False))
    made = publish(plan, "small.quick", tmp_path / "published")
    assert main(["verify", str(made)]) == 0
    assert "follow from its tables" in capsys.readouterr().out
    claims = made / "claims.parquet"
    pl.read_parquet(claims).with_columns(estimate=pl.lit(0.5)).write_parquet(claims)
    assert main(["verify", str(made)]) == 1
    assert "claims.parquet: estimate of egop.digits_mlp, jax is 0.5" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        (1.0, 1.0 + 1e-9, True),
        (1.0, 1.0 + 1e-3, False),
        (float("nan"), float("nan"), True),
        (float("inf"), float("inf"), True),
        (float("inf"), 1.0, False),
        (None, 1.0, False),
        (None, None, True),
        ("a", "a", True),
        ([1.0, {"a": 2.0}], [1.0, {"a": 2.0 + 1e-9}], True),
        ([1.0, {"a": 2.0}], [1.0, {"b": 2.0}], False),
        ([1.0], [1.0, 2.0], False),
    ],
)
def test_values_are_alike_but_for_rounding(left: object, right: object, equal: bool):
    assert alike(left, right) is equal
