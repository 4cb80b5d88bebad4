"""Reading of tables: curves with a limited number of steps, and the cost of a step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from curvebench.reports.tables import (
    CELL,
    SHOWN_STEPS,
    Tables,
    final_curves,
    recorded_steps,
    shown_steps,
    with_step_evaluations,
)
from curvebench.results.schema import CURVES
from curvebench.results.writing import write_table
from curvebench.spec.errors import InputError


def long_table(folder: Path, steps: int) -> pl.DataFrame:
    """Two runs of one cell, the second ends early; the table `runs` as far as it is read."""
    lengths = {"long": steps, "short": steps // 3 + 1}
    frame = pl.concat(
        pl.DataFrame({"step": range(length)}).with_columns(
            run=pl.lit(run), metric=pl.lit("loss"), value=1.0 / (pl.col("step") + 1),
            gradient_evaluations=pl.col("step"), examples=pl.col("step"), seconds=None,
        )
        for run, length in lengths.items()
    )  # fmt: skip
    write_table(folder / "curves.parquet", frame.cast(pl.Schema(CURVES)).select(CURVES.names()), CURVES)
    cell = dict.fromkeys(CELL, "same")
    rows = [{**cell, "run": run, "stage": "final", "steps": n - 1} for run, n in lengths.items()]
    return pl.DataFrame(rows)


@pytest.mark.parametrize("steps", [2, 119, 120, 121, 260, 4321])
def test_long_curves_are_thinned_evenly_with_both_ends_and_the_last_step_of_each_run(tmp_path, steps):
    runs = long_table(tmp_path, steps)
    recorded = recorded_steps(tmp_path, runs)
    assert len(recorded) == steps
    shown = shown_steps(recorded)["step"]
    assert len(shown) == min(steps, SHOWN_STEPS)
    assert (shown[0], shown[-1]) == (0, steps - 1)
    assert np.ptp(np.diff(shown.to_numpy())) <= 1
    none = pl.DataFrame()
    tables = Tables((tmp_path / "curves.parquet",), runs, recorded, none, none, none)
    found = final_curves(tables, runs, "loss").sort("run", "step")
    last = found.group_by("run").agg(pl.col("step").max()).sort("run")["step"].to_list()
    assert last == [steps - 1, steps // 3]
    assert (found["value"] == 1.0 / (found["step"] + 1)).all()


def ended(run: str, steps: int, evaluations: int, stage: str = "final") -> dict[str, object]:
    return {"run": run, "stage": stage, "steps": steps, "gradient_evaluations": evaluations}


def test_the_gradient_by_which_a_run_stopped_is_not_charged_to_its_steps(tmp_path):
    """A step of 101 gradients, such as one with a Hessian: the last one would be 20 more a step."""
    step = {"run": ["stopped"] * 3, "step": [0, 3, 5], "gradient_evaluations": [0, 303, 505]}
    frame = pl.DataFrame(step).with_columns(metric=pl.lit("loss"), value=1.0, examples=0, seconds=None)
    write_table(tmp_path / "curves.parquet", frame.cast(pl.Schema(CURVES)).select(CURVES.names()), CURVES)
    rows = [
        ended("stopped", 5, 606),
        ended("plain", 20, 21),
        ended("at once", 0, 101),
        ended("tuning", 5, 606, "tuning"),
    ]
    found = with_step_evaluations(tmp_path, pl.DataFrame(rows))
    assert dict(found.select("run", "step_evaluations").rows()) == {
        "stopped": 101, "plain": 1, "at once": 101, "tuning": 121,
    }  # fmt: skip
    assert found["run"].to_list() == [row["run"] for row in rows]


def test_where_steps_are_many_no_curve_is_read(tmp_path):
    runs = pl.DataFrame([ended("plain", 20, 21), ended("twice", 20, 40)])
    assert with_step_evaluations(tmp_path, runs)["step_evaluations"].to_list() == [1, 2]


def test_a_damaged_table_is_named(tmp_path):
    runs = long_table(tmp_path, 10)
    path = tmp_path / "curves.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match=r"curves\.parquet"):
        recorded_steps(tmp_path, runs)
