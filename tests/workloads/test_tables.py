"""Networks on tables: reading, standardized splits, loss of classes and of regression."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.workloads import tables
from curvebench.workloads.data import DataDamaged
from curvebench.workloads.workload import DataMissing, Problem, Workload
from tests.made_r_files import ROWS, made_table
from tests.workloads.cases import random_of
from tests.workloads.conftest import REAL_TABLES

(TABLE_MLP,) = tables.WORKLOADS
SIZES = {"train_examples": 60, "validation_examples": 20}


@pytest.fixture(params=tables.TABLES)
def table(request):
    return request.param


def instance(table: str, seed: int = 0, **settings: Any) -> tuple[Workload, Problem]:
    chosen = TABLE_MLP.complete({"table": table, "batch_size": None, **SIZES, **settings})
    return TABLE_MLP.at(chosen), TABLE_MLP.problem(chosen, random_of(seed))


def test_splits_are_rows_of_the_table_standardized_by_the_training_split(table):
    _, problem = instance(table)
    made = made_table(tables.TABLES[table])
    target = made.pop(tables.TABLES[table].target)
    columns = np.stack([*made.values()], 1)
    order = random_of(0)("split", shared=True).permutation(ROWS)
    mean, deviation = columns[order[:60]].mean(axis=0), columns[order[:60]].std(axis=0)
    for split, rows in (("train", order[:60]), ("validation", order[60:80])):
        fields = problem.splits[split]
        np.testing.assert_allclose(fields["features"], (columns[rows] - mean) / deviation, atol=1e-12)
        if table == "concrete":
            scaled = (target - target[order[:60]].mean()) / target[order[:60]].std()
            np.testing.assert_allclose(fields["targets"], scaled[rows], atol=1e-12)
        else:
            np.testing.assert_array_equal(fields["labels"], target[0][rows] - 1)


def test_a_constant_column_becomes_zero():
    columns = np.array([[1.0, 2.0], [1.0, 4.0], [3.0, 8.0]])
    found = tables._standardized(columns, np.array([0, 1]))
    np.testing.assert_array_equal(found, [[0.0, -1.0], [0.0, 1.0], [2.0, 5.0]])


def test_the_loss_is_that_of_pytorch(table):
    workload, problem = instance(table)
    split, values = problem.splits["train"], [*map(torch.tensor, problem.parameters.values())]
    x = torch.tensor(split["features"])
    for weight, bias in zip(values[:-2:2], values[1:-2:2], strict=True):
        x = torch.relu(x @ weight.T + bias)
    outputs = x @ values[-2].T + values[-1]
    if table == "concrete":
        due = torch.nn.functional.mse_loss(outputs[:, 0], torch.tensor(split["targets"])) / 2
    else:
        due = torch.nn.functional.cross_entropy(outputs, torch.tensor(split["labels"]))
    loss = workload.loss(numpy_ops(), problem.parameters, {}, split, {})[0]
    assert float(loss) == pytest.approx(float(due), rel=1e-12)
    likelihood = workload.likelihood
    assert likelihood is not None
    assert likelihood.family == ("gaussian" if table == "concrete" else "categorical")
    found = likelihood.outputs(numpy_ops(), problem.parameters, {}, split, {})
    np.testing.assert_allclose(found, outputs, rtol=1e-12)
    metrics = {"train_loss", "validation_loss"}
    accuracies = {"train_accuracy", "validation_accuracy"} if table != "concrete" else set()
    assert set(workload.metrics) == metrics | accuracies
    assert {*workload.evaluate(numpy_ops(), problem.parameters, {}, split)} == {
        name.removeprefix("train_") for name in workload.metrics if name.startswith("train_")
    }


def test_settings_give_the_sizes(table):
    _, problem = instance(table, width=5, depth=3, train_examples=30)
    inputs, outputs = tables.TABLES[table][-2:]
    shapes = [problem.parameters[f"W{layer}"].shape for layer in (1, 2, 3, 4)]
    assert shapes == [(5, inputs), (5, 5), (5, 5), (outputs, 5)]
    assert [len(fields["features"]) for fields in problem.splits.values()] == [30, 20]
    _, other = instance(table, seed=1, train_examples=30, width=5, depth=3)
    assert not np.array_equal(other.parameters["W1"], problem.parameters["W1"])


def test_too_many_rows_are_refused():
    with pytest.raises(
        ValueError, match="= 2981 and validation_examples = 20 are more than the 3000 rows of spam"
    ):
        TABLE_MLP.complete({**SIZES, "table": "spam", "train_examples": 2981, "batch_size": 10})
    with pytest.raises(ValueError, match="batch_size = 61 is larger than the 60 training examples"):
        TABLE_MLP.complete({**SIZES, "batch_size": 61})


def test_missing_files_are_named_with_the_package(table, monkeypatch, tmp_path):
    monkeypatch.setenv("CURVEBENCH_DATA", str(tmp_path))
    monkeypatch.setattr("curvebench.workloads.r_files.LIBRARY", tmp_path)
    chosen = TABLE_MLP.complete({"table": table, "batch_size": None, **SIZES})
    package = REAL_TABLES[table].files.subfolder
    missing = TABLE_MLP.missing(chosen)
    assert missing is not None
    assert f"data of the R package {package} needs {REAL_TABLES[table].files.names[0]}" in missing
    assert f"apt-get install r-cran-{package}" in missing
    assert TABLE_MLP.files(chosen) == ()
    with pytest.raises(DataMissing, match=f"r-cran-{package}"):
        TABLE_MLP.problem(chosen, random_of(0))
    installed = tmp_path / package / "data"
    installed.mkdir(parents=True)
    for name in REAL_TABLES[table].files.names:
        (installed / name).touch()
    assert TABLE_MLP.missing(chosen) is None
    assert len(TABLE_MLP.files(chosen)) == len(REAL_TABLES[table].files.names)
    with pytest.raises(DataDamaged, match=f"{installed}.*cannot be read"):
        TABLE_MLP.problem(chosen, random_of(0))


@pytest.mark.parametrize("change", [{"rows": 2999}, {"inputs": 5}, {"target": "y"}])
def test_another_table_is_refused(change, monkeypatch):
    monkeypatch.setitem(tables.TABLES, "spam", tables.TABLES["spam"]._replace(**change))
    tables._columns.cache_clear()
    with pytest.raises(DataDamaged, match="spam has no column"):
        instance("spam", train_examples=40)
    tables._columns.cache_clear()


def test_real_files_have_the_rows_columns_and_classes_that_are_stated(table, r_packages):
    missing = tables.TABLES[table].files.missing()
    if missing:
        pytest.skip(f"a fact about the real data: {missing}")
    tables._columns.cache_clear()
    features, target = tables._columns(table, *tables.TABLES[table].files.paths())
    assert np.all(np.isfinite(features))
    assert tables.TABLES[table].outputs == (1 if table == "concrete" else len(np.unique(target)))
    tables._columns.cache_clear()
