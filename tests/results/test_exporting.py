"""Tables as CSV: every value comes back."""

from __future__ import annotations

import json
import math
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from curvebench.__main__ import main
from curvebench.results.exporting import export, flattened
from curvebench.results.schema import NamedValues
from curvebench.spec.errors import InputError
from tests.results.rows import rows, target, write

BEST = [{"name": "train_loss", "value": 0.25, "step": 8}]


def test_tables_come_back_from_csv(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    values = [{"name": "train_loss", "value": math.inf}, {"name": "accuracy", "value": math.nan}]
    runs = rows(
        "runs",
        {"best_metrics": BEST, "targets": [target()]},
        {"run": "b", "final_metrics": values, "seed": None},
    )
    jobs = rows(
        "jobs", {"notes": ['no "compiler"', "slow; very"], "packages": [{"name": "numpy", "version": "2.4"}]}
    )
    write(tmp_path / "set/toy", runs=runs, jobs=jobs)
    assert main(["tables", "export", str(tmp_path / "set"), "--out", str(tmp_path / "csv")]) == 0
    assert "toy/runs.csv" in capsys.readouterr().out
    back = pl.read_csv(tmp_path / "csv/toy/runs.csv")
    assert back["run"].to_list() == ["aaaaaaaaaaaa-0000", "b"]
    assert back["seed"].to_list() == [0, None]
    assert back["final_metrics.train_loss.value"].to_list() == [0.5, math.inf]
    assert math.isnan(back["final_metrics.accuracy.value"][1])
    assert back["final_metrics.accuracy.value"][0] is None
    assert back["best_metrics.train_loss.step"].to_list() == [8, 8]
    assert back["targets.train_loss.threshold"].to_list() == [0.1, None]
    assert back["hyperparameters.beta1.value"].to_list() == [0.9, 0.9]
    again = pl.read_csv(tmp_path / "csv/toy/jobs.csv")
    assert json.loads(again["notes"][0]) == ['no "compiler"', "slow; very"]
    assert again["packages.numpy.version"].cast(pl.String).to_list() == ["2.4"]


@given(
    st.lists(
        st.one_of(st.none(), st.dictionaries(st.text(max_size=3), st.floats(allow_nan=False), max_size=3)),
        max_size=5,
    )
)
def test_named_values_become_columns_and_nothing_else(values: list[dict[str, float] | None]):
    listed = [
        None if row is None else [{"name": name, "value": value} for name, value in row.items()]
        for row in values
    ]
    flat = flattened(pl.DataFrame({"m": listed}, schema={"m": NamedValues}))
    back = [
        {name[2:-6]: value for name, value in row.items() if value is not None} for row in flat.to_dicts()
    ]
    assert back == [row or {} for row in values][: len(back)]
    assert len(flat.columns) == len({name for row in values for name in row or {}})


def test_what_is_named_twice_becomes_json():
    twice = [{"name": "a", "value": 1.0}, {"name": "a", "value": 2.0}]
    flat = flattened(pl.DataFrame({"m": [twice, None]}, schema={"m": NamedValues}))
    assert json.loads(flat["m"][0]) == twice
    assert flat["m"][1] is None


def test_what_cannot_be_exported_is_named(tmp_path: Path):
    with pytest.raises(InputError, match="holds no tables"):
        export(tmp_path, tmp_path / "out")
    (tmp_path / "runs.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match="not a whole Parquet file"):
        export(tmp_path, tmp_path / "out")
