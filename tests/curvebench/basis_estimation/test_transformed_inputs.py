"""The first layer changed by its data: equal to the basis of its rows, and only where data enter linearly."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.backends.engine import engine
from curvebench.basis_estimation.transformed_inputs import check_inputs, with_changed_inputs
from curvebench.engine.execution import execute
from curvebench.optimizers import rules
from curvebench.optimizers.bases import CHANGES, Group, OptionError, bases
from curvebench.planning.studies.validation import read_study
from curvebench.registry import find_workload
from curvebench.spec.errors import InputError
from curvebench.spec.method import BasisSpec, OptimizerSpec
from curvebench.stages.job import Cell, Job, LoadedBasis, bundle_of, instance
from curvebench.workloads import workloads
from curvebench.workloads.workload import Problem, Workload
from tests.curvebench.engine.test_execution import make_bundle, orthogonal
from tests.curvebench.stages.test_jobs import SWEEP
from tests.curvebench.stages.test_training_keys import NETWORK
from tests.curvebench.tiny import write_study
from tests.curvebench.toys import TANH, TANH_SHARED

FIRST: tuple[str, ...] = ("first",)
DECLARED = sorted(name for name, workload in workloads().items() if workload.linear_input)


@pytest.mark.parametrize("backend", ["jax", "torch"])
@pytest.mark.parametrize("workload", [TANH, TANH_SHARED], ids=lambda workload: workload.name)
def test_it_is_the_basis_of_the_rows(workload: Workload, backend: str) -> None:
    """x -> Q^T x is V = I (x) Q on the weight: the same losses on both splits, step by step."""
    workload = dataclasses.replace(workload, linear_input=("first", "features"))
    matrices = {FIRST: np.stack([orthogonal(3, seed) for seed in range(2)])}
    on_weights = make_bundle(
        workload,
        rules()["adam"],
        seeds=(0, 1),
        matrices=matrices,
        changes={FIRST: CHANGES["shared"]},
        evaluations=12,
    )
    changed, problems, kept = with_changed_inputs(
        workload, on_weights.problems, matrices, {FIRST: CHANGES["data"]}
    )
    assert kept == {}
    on_data = dataclasses.replace(on_weights, workload=changed, problems=problems, matrices=kept, changes={})
    made = engine(backend, "float64")
    one, other = execute(on_weights, made), execute(on_data, made)
    for name, values in one.metrics.items():
        np.testing.assert_allclose(other.metrics[name], values, rtol=1e-10, atol=1e-13, err_msg=name)
    plain = execute(dataclasses.replace(on_weights, matrices={}, changes={}), made)
    assert np.abs(plain.metrics["train_loss"][-1] / one.metrics["train_loss"][-1] - 1).max() > 1e-3
    for problem, before, q in zip(problems, on_weights.problems, matrices[FIRST], strict=True):
        np.testing.assert_allclose(problem.parameters["first"] @ q.T, before.parameters["first"], atol=1e-14)
        for split, arrays in before.splits.items():
            np.testing.assert_allclose(
                problem.splits[split]["features"] @ q.T, arrays["features"], atol=1e-14
            )
            np.testing.assert_array_equal(problem.splits[split]["targets"], arrays["targets"])


def test_other_blocks_stay_with_their_parameters() -> None:
    workload = dataclasses.replace(TANH, linear_input=("first", "features"))
    bundle = make_bundle(workload, seeds=(0,))
    matrices = {FIRST: orthogonal(3, 0)[None], ("second",): orthogonal(8, 1)[None]}
    changes = {FIRST: CHANGES["data"], ("second",): CHANGES["rotation"]}
    changed, _, kept = with_changed_inputs(workload, bundle.problems, matrices, changes)
    assert list(kept) == [("second",)]
    assert not changed.shared_data
    same, problems, all_of_them = with_changed_inputs(workload, bundle.problems, matrices, {})
    assert same is workload
    assert problems == list(bundle.problems)
    assert list(all_of_them) == [FIRST, ("second",)]


def test_a_group_is_that_of_the_rows() -> None:
    egop = bases()["egop"]
    options = egop.complete({"blocks": ["W1"], "rows": "shared", "applied_to": "data"})
    (group,) = egop.groups(options, {"W1": (5, 3), "b1": (5,)}, {"W1": "weight", "b1": "bias"})
    assert group == Group(("W1",), 3, CHANGES["data"])
    shared = egop.complete({"blocks": ["W1"], "rows": "shared"})
    (on_weights,) = egop.groups(shared, {"W1": (5, 3)}, {"W1": "weight"})
    assert on_weights == Group(("W1",), 3, CHANGES["shared"])


@pytest.mark.parametrize("name", DECLARED)
def test_data_enter_where_workloads_say(name: str) -> None:
    """f(W, x) = f(W Q, Q^T x) of every workload that says so, at any data."""
    workload, rng = workloads()[name], np.random.default_rng(0)
    assert workload.linear_input is not None
    weight, field = workload.linear_input
    parameters = workload.sample_parameters(workload.complete({}), rng)
    last = [value for value in parameters.values() if value.ndim == 2][-1]
    data = {
        field: rng.normal(size=(20, parameters[weight].shape[1])),
        "targets": rng.normal(size=(20, len(last))),
        "labels": rng.integers(len(last), size=20),
    }
    q = orthogonal(parameters[weight].shape[1], 0)
    problem = Problem(parameters, {"train": data})
    _, (changed,), _ = with_changed_inputs(
        workload, [problem], {(weight,): q[None]}, {(weight,): CHANGES["data"]}
    )
    assert np.abs(changed.splits["train"][field] - data[field]).max() > 0.1
    ops = numpy_ops("float64")
    wanted, found = (
        workload.loss(ops, one.parameters, {}, one.splits["train"], {})[0] for one in (problem, changed)
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-10)


STREAMED = dataclasses.replace(
    TANH, linear_input=("first", "features"), metrics={}, streamed=True, evaluation_batch=5
)


@pytest.mark.parametrize(
    ("workload", "names", "said"),
    [
        (
            find_workload("least_squares"),
            ("theta",),
            "least_squares: applied_to .* no weight multiplies its data",
        ),
        (find_workload("digits_mlp"), ("W2",), r"its data enter W1, not W2; set blocks: \[W1\]"),
        (STREAMED, FIRST, "its data are streamed"),
    ],
)
def test_where_data_do_not_enter_so(workload: Workload, names: tuple[str, ...], said: str) -> None:
    with pytest.raises(InputError, match=said):
        check_inputs(workload, [(names, CHANGES["data"])])
    check_inputs(workload, [(names, CHANGES["rotation"])])


SHAPES = {"W1": (5, 3), "b1": (5,), "W2": (2, 5)}
KINDS = {"W1": "weight", "b1": "bias", "W2": "weight"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"blocks": ["W1"]}, "set rows: shared, and blocks to the name"),
        ({"blocks": "weights", "rows": "shared"}, "set rows: shared, and blocks to the name"),
        ({"blocks": ["W1", "W2"], "rows": "shared"}, "name one in blocks"),
        ({"blocks": ["W1"], "rows": "shared", "every": "1 epoch"}, "leave every out"),
        ({"blocks": ["b1"], "rows": "shared"}, "changes the inputs of a weight matrix, and b1 is a bias"),
        (
            {"blocks": ["W1"], "rows": "shared", "rank": 2, "complement": "none"},
            "the rows of W1 share a basis",
        ),
    ],
)
def test_options_that_exclude_each_other(given: dict[str, Any], said: str) -> None:
    egop = bases()["egop"]
    with pytest.raises(OptionError, match=said):
        egop.groups(egop.complete({"applied_to": "data", **given}), SHAPES, KINDS)


def test_a_study_says_it_before_anything_is_computed(tmp_path: Any) -> None:
    basis = "egop: {blocks: [theta], rows: shared, applied_to: data}"
    old = "egop: {blocks: all, samples: 2.0 d, sampling: {normal: 1.0}}"
    with pytest.raises(InputError, match="theta is a vector; set applied_to: parameters"):
        read_study(write_study(tmp_path, (old, basis)))


def test_a_job_runs_on_the_changed_data(tmp_path: Path) -> None:
    workload = find_workload("linear_network")
    options = bases()["egop"].complete({"blocks": ["W1"], "rows": "shared", "applied_to": "data"})
    basis = BasisSpec("egop", "egop", options)
    cell = Cell(workload, NETWORK, OptimizerSpec("adam", {}), basis, [{"learning_rate": 0.1}])
    ones = [instance(workload, NETWORK.settings, seed) for seed in (0, 1)]
    q = np.stack([orthogonal(4, seed) for seed in (0, 1)])
    loaded = LoadedBasis({("W1",): q}, 4, [0.0, 0.0], {("W1",): CHANGES["data"]})
    job = Job(SWEEP.changed(budget={"epochs": 3}), tmp_path)
    bundle = bundle_of(job, cell, ones, loaded)
    assert (len(bundle.schedule), bundle.matrices, bundle.reestimation) == (9, {}, None)
    for problem, one, matrix in zip(bundle.problems, ones, q, strict=True):
        train, before = (each.splits["train"]["features"] for each in (problem, one.problem))
        np.testing.assert_allclose(train, before @ matrix, rtol=1e-12)
