"""Tables of real data, and a ReLU network that predicts one of the columns from the others.

The tables are in R packages: letters, Shuttle, Satellite, spam and concrete. Inputs are standardized to mean
0 and variance 1 on the training split, and so is the target of a regression.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from curvebench.spec.values import choice, whole
from curvebench.workloads.arguments import Array, Arrays, Ops, Random, Settings
from curvebench.workloads.classification import (
    classification_metrics,
    of_network,
)
from curvebench.workloads.data import DataDamaged, DataFiles
from curvebench.workloads.matrices import torch_default_bias, torch_default_weight
from curvebench.workloads.networks.perceptron import RELU_CLASSIFIER, FullyConnected
from curvebench.workloads.r_files import named, r_files, read_rda, read_rdb
from curvebench.workloads.workload import (
    Likelihood,
    Metric,
    Problem,
    Setting,
    Start,
    Workload,
    batch_size,
    loss_of,
    require_batch,
)

SPLITS = ("train", "validation")


class Table(NamedTuple):
    """A table of an R package."""

    files: DataFiles  # NAME.rda, or Rdata.rdx and Rdata.rdb
    name: str  # of the object in the files
    target: str  # name of the column that is predicted
    rows: int
    inputs: int  # number of the other columns
    outputs: int  # number of classes; 1 for a regression


TABLES = {
    "letters": Table(
        r_files("mlbench", "LetterRecognition.rda"), "LetterRecognition", "lettr", 20_000, 16, 26
    ),
    "shuttle": Table(r_files("mlbench", "Shuttle.rda"), "Shuttle", "Class", 58_000, 9, 7),
    "satellite": Table(r_files("mlbench", "Satellite.rda"), "Satellite", "classes", 6_435, 36, 6),
    "spam": Table(r_files("kernlab", "spam.rda"), "spam", "type", 4_601, 57, 2),
    "concrete": Table(
        r_files("modeldata", "Rdata.rdx", "Rdata.rdb"), "concrete", "compressive_strength", 1_030, 8, 1
    ),
}


@lru_cache(maxsize=1)  # the table is read once for all seeds of a job
def _columns(table: str, *paths: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read the inputs (rows, inputs) and the target (rows,) of a table: numbers, or classes from 0.

    Raises:
        DataDamaged: if a file cannot be read, or holds another table.
    """
    _, name, target, rows, inputs, outputs = TABLES[table]
    columns = named(read_rda(paths[0], name) if len(paths) == 1 else read_rdb(paths[0], paths[1], name))
    predicted = columns.pop(target, None)
    features = np.stack([column.values for column in columns.values()], 1).astype(np.float64)
    if predicted is None or features.shape != (rows, inputs):
        raise DataDamaged(f"{paths[0]}: {name} has no column {target} and {rows} x {inputs} others")
    if outputs == 1:
        return features, predicted.values.astype(np.float64)
    return features, predicted.values.astype(np.int64) - 1


def _network(settings: Settings) -> FullyConnected:
    """Return the network that the settings describe."""
    _, _, _, _, inputs, outputs = TABLES[settings["table"]]
    hidden = [settings["width"]] * settings["depth"]
    return FullyConnected((inputs, *hidden, outputs), torch_default_weight, torch_default_bias)


def _problem(settings: Settings, random: Random) -> Problem:
    """Return random rows of the table as splits, which are the same for all seeds."""
    files = TABLES[settings["table"]].files.required()
    features, targets = _columns(settings["table"], *files.values())
    order = random("split", shared=True).permutation(len(targets))
    edge = settings["train_examples"]
    rows = dict(
        zip(SPLITS, (order[:edge], order[edge : edge + settings["validation_examples"]]), strict=True)
    )
    features = _standardized(features, rows["train"])
    is_regression = targets.dtype == np.float64
    key, targets = (
        ("targets", _standardized(targets, rows["train"])) if is_regression else ("labels", targets)
    )
    return Problem(
        parameters=_network(settings).sample(random("parameters")),
        splits={split: {"features": features[part], key: targets[part]} for split, part in rows.items()},
    )


def _standardized(columns: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return columns with mean 0 and variance 1 on the given rows; a constant column becomes 0."""
    deviations = columns[rows].std(axis=0)
    return (columns - columns[rows].mean(axis=0)) / np.where(deviations > 0, deviations, 1.0)


def _check(settings: Settings) -> None:
    """Check that the table has as many rows as the splits, and that a minibatch is not larger than one."""
    require_batch(settings, settings["train_examples"])
    rows = TABLES[settings["table"]].rows
    if settings["train_examples"] + settings["validation_examples"] > rows:
        raise ValueError(
            f"train_examples = {settings['train_examples']} and validation_examples = "
            f"{settings['validation_examples']} are more than the {rows} rows of {settings['table']}"
        )


def _prediction(ops: Ops, params: Arrays, state: Arrays, split: Arrays, noise: Arrays) -> Array:
    """Return the output of the network for a regression, (examples, 1)."""
    return RELU_CLASSIFIER.network(ops, params, state, split, True)[0]


def _half_squared_error(ops: Ops, params: Arrays, split: Arrays) -> Array:
    """Return the mean over examples of (f(x) - y)^2 / 2: f(x) is the network's output, y the target."""
    return 0.5 * ops.mean(ops.square(_prediction(ops, params, {}, split, {})[:, 0] - split["targets"]))


def _bound(settings: Settings) -> Workload:
    """Return the workload of a table: classification or regression."""
    return REGRESSION if TABLES[settings["table"]].outputs == 1 else CLASSIFICATION


def _workload(metrics: dict[str, Metric], **fields: Any) -> Workload:
    """Return the workload with the metrics, loss, evaluation and likelihood of a kind of target."""
    return Workload(
        name="table_mlp",
        description="ReLU network on a table of real data, 16-64-64-26 units for letters (d = 6938)",
        source="UCI machine learning repository, from R packages mlbench, kernlab and modeldata",
        metrics=metrics,
        settings={
            "batch_size": batch_size(128),
            "table": Setting(
                "letters", "letters, shuttle, satellite, spam: classes; concrete: regression", choice(*TABLES)
            ),
            "width": Setting(64, "units of each hidden layer", whole()),
            "depth": Setting(2, "hidden layers", whole()),
            "train_examples": Setting(
                2_000, "rows of the training split, drawn alike for all seeds", whole()
            ),
            "validation_examples": Setting(1_000, "rows of the validation split", whole()),
        },
        **fields,
        linear_input=("W1", "features"),
        problem=_problem,
        missing=lambda settings: TABLES[settings["table"]].files.missing(),
        files=lambda settings: TABLES[settings["table"]].files.paths(),
        start=Start(3.2652569738645694, 0.1822461160129373),
        check=_check,
        bind=_bound,
    )


_FIELDS = of_network(_network, RELU_CLASSIFIER)
CLASSIFICATION = _workload(classification_metrics(SPLITS), **_FIELDS)
REGRESSION = _workload(
    {
        f"{split}_loss": Metric(
            f"half the squared error of the standardized target on the {split} split", "minimize"
        )
        for split in SPLITS
    },
    **{
        **_FIELDS,
        "loss": loss_of(_half_squared_error),
        "evaluate": lambda ops, params, state, split: {"loss": _half_squared_error(ops, params, split)},
        "likelihood": Likelihood(_prediction, "gaussian"),
    },
)

WORKLOADS = (CLASSIFICATION,)
