"""Properties of every workload: each test runs for all workloads that the registry finds."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.engine.first_evaluation import check_start, start_of
from curvebench.seeding import WorkloadRandom
from curvebench.spec.errors import InputError
from curvebench.workloads import photographs, workloads
from curvebench.workloads.workload import GRADIENT_NORM, MINIBATCH_LOSS, Likelihood
from tests.workloads.cases import (
    NAMES,
    agreed_gradient,
    loss_in_numpy,
    mapper,
    minibatch,
    noise_of,
    problem_of,
    random_of,
    small,
)

STEP = 1e-7  # step of central differences in float64, at which few units of relu change sides


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


def _same(left, right):
    return left.keys() == right.keys() and all(np.array_equal(left[key], right[key]) for key in left)


def test_every_parameter_has_a_role_and_a_fresh_sample_the_same_shapes(name):
    workload, settings = small(name)
    problem = workload.problem(settings, random_of(0))
    sample = workload.sample_parameters(settings, np.random.default_rng(0))
    shapes = {key: value.shape for key, value in problem.parameters.items()}
    assert list(workload.roles(settings)) == list(shapes)
    assert {key: value.shape for key, value in sample.items()} == shapes


@pytest.mark.parametrize("name", [name for name in NAMES if "train_accuracy" in workloads()[name].metrics])
def test_the_output_layer_of_what_tells_classes_apart_is_a_head(name):
    workload, settings = small(name)
    roles, problem = workload.roles(settings), workload.problem(settings, random_of(0))
    (head,) = (key for key, role in roles.items() if role.kind == "head")
    assert roles[head].layer == max(role.layer for role in roles.values())
    assert len(problem.parameters[head]) == 1 + max(problem.splits["train"]["labels"])


def test_each_workload_whose_data_are_at_hand_states_its_start():
    assert {name for name, workload in workloads().items() if workload.start is None} == {
        workload.name for workload in photographs.WORKLOADS
    }


def test_a_problem_starts_where_its_workload_says(name, request):
    workload = workloads()[name]
    if name.startswith("fashion"):
        request.getfixturevalue("fashion_mnist")
    if name in ("table_mlp", "austen_transformer"):
        request.getfixturevalue("r_packages")
    if missing := workload.missing(workload.complete({})):
        pytest.skip(f"a fact about the real data: {missing}")
    check_start(workload)


@pytest.mark.parametrize("number", ["loss", "gradient_norm"])
def test_another_start_is_refused_with_both_values(number):
    workload = workloads()["least_squares"]
    assert workload.start is not None
    stated = getattr(workload.start, number)
    other = replace(workload, start=replace(workload.start, **{number: stated * (1 + 1e-8)}))
    with pytest.raises(
        InputError, match=f"start: {number} is {stated} on this machine, and the workload states"
    ):
        check_start(other)
    check_start(replace(other, start=None))


def test_a_start_is_computed_from_all_examples_or_from_the_first_evaluation_batch_with_noise():
    def loss(ops, params, state, batch, noise):
        values = ops.matmul(batch["features"], params["theta"]) + noise["offset"]
        return ops.sum(values), state, {}

    workload = replace(
        workloads()["least_squares"],
        metrics={},
        loss=loss,
        noise=lambda settings, generator, count: {"offset": np.arange(float(count))},
    )
    for cut in (None, 3):
        start = start_of(replace(workload, evaluation_batch=cut), "jax")
        problem = workload.problem(workload.complete({}), WorkloadRandom("least_squares", 0))
        rows = problem.splits["train"]["features"][:cut]
        value = np.sum(rows @ problem.parameters["theta"]) + sum(range(len(rows)))
        assert start.loss == pytest.approx(value, rel=1e-12)
        assert start.gradient_norm == pytest.approx(np.linalg.norm(rows.sum(axis=0)), rel=1e-12)


def test_arrays_are_finite_and_in_host_precision(name):
    _, problem = problem_of(name)
    arrays = [*problem.parameters.values(), *(a for split in problem.splits.values() for a in split.values())]
    assert {array.dtype for array in arrays} <= {np.dtype(np.float64), np.dtype(np.int64)}
    assert all(np.all(np.isfinite(array)) for array in arrays)


def test_each_field_of_a_split_has_one_row_an_example(name):
    _, problem = problem_of(name)
    for fields in problem.splits.values():
        assert len({len(array) for array in fields.values()}) == 1


def test_a_seed_gives_the_same_problem_again_and_another_seed_another(name):
    _, first = problem_of(name, seed=3)
    _, again = problem_of(name, seed=3)
    _, other = problem_of(name, seed=4)
    assert _same(first.parameters, again.parameters)
    assert all(_same(first.splits[split], again.splits[split]) for split in first.splits)
    drawn = [key for key, value in first.parameters.items() if np.ptp(value)]  # 0 and 1 are not
    assert not any(np.array_equal(first.parameters[key], other.parameters[key]) for key in drawn)


def test_splits_are_equal_for_all_seeds_where_the_data_is_shared_and_only_there(name):
    workload, first = problem_of(name, seed=3)
    _, other = problem_of(name, seed=4)
    for split, fields in first.splits.items():
        assert _same(fields, other.splits[split]) is workload.shared_data


def test_settings_survive_json(name):
    workload, settings = small(name)
    read = json.loads(json.dumps(settings))
    assert read == settings
    assert workload.complete(read) == settings


def test_evaluation_gives_the_declared_metrics_and_no_others(name):
    workload, problem = problem_of(name)
    given = {
        f"{split}_{key}"
        for split, fields in problem.splits.items()
        for key in workload.evaluate(numpy_ops(), problem.parameters, problem.state, fields)
    }
    assert given == set(workload.metrics) - {GRADIENT_NORM, MINIBATCH_LOSS}


def test_evaluation_gives_the_loss_of_the_whole_training_split(name):
    workload, problem = problem_of(name)
    value = loss_in_numpy(numpy_ops(), workload, problem, problem.splits["train"])(problem.parameters)
    found = workload.evaluate(numpy_ops(), problem.parameters, problem.state, problem.splits["train"])
    if workload.noise is None and not problem.state:  # evaluation has no noise, and statistics of its own
        assert float(found["loss"]) == value
    assert np.isfinite(float(found["loss"]))


def test_gradients_of_both_backends_equal_central_differences(name):
    workload, problem = problem_of(name)
    batch, params = minibatch(problem), problem.parameters
    by_torch, scale = agreed_gradient(workload, problem, batch, 1e-13)
    value = loss_in_numpy(numpy_ops(), workload, problem, batch)
    generator = np.random.default_rng(5)
    for key in params:
        direction = generator.normal(size=params[key].shape)
        direction /= np.linalg.norm(direction)
        ahead = value({**params, key: params[key] + STEP * direction})
        behind = value({**params, key: params[key] - STEP * direction})
        expected = np.sum(by_torch[key] * direction)
        assert (ahead - behind) / (2 * STEP) == pytest.approx(expected, rel=1e-5, abs=1e-6 * scale)


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_mapping_over_runs_equals_run_after_run(name, backend):
    workload, settings = small(name)
    problems = [workload.problem(settings, random_of(seed)) for seed in range(3)]
    with mapper(backend) as mapped:
        ops = mapped.ops

        def stacked(pick):
            return {
                key: ops.asarray(np.stack([pick(problem)[key] for problem in problems]))
                for key in pick(problems[0])
            }

        state = {key: ops.asarray(value) for key, value in problems[0].state.items()}
        drawn = noise_of(workload, minibatch(problems[0]))
        noise = {key: ops.asarray(value) for key, value in drawn.items()}

        def run(params, batch):
            loss = workload.loss(ops, params, state, batch, noise)[0]
            return loss, workload.evaluate(ops, params, state, batch)

        params, batches = stacked(lambda problem: problem.parameters), stacked(minibatch)
        together = mapped.compiled(mapped.vmap(run))(params, batches)
        single = mapped.compiled(run)
        for index in range(len(problems)):
            alone = single(
                {key: value[index] for key, value in params.items()},
                {key: value[index] for key, value in batches.items()},
            )
            assert float(together[0][index]) == pytest.approx(float(alone[0]), rel=1e-12)
            for key, value in alone[1].items():
                assert float(together[1][key][index]) == pytest.approx(float(value), rel=1e-11, abs=1e-14)


@pytest.mark.parametrize("backend", ["torch", "jax"])
@pytest.mark.parametrize(("word", "tolerance"), [("float32", 1e-5), ("mixed", 0.05), ("bfloat16", 0.05)])
def test_losses_and_metrics_are_in_single_precision(name, word, tolerance, backend):
    """In half precision too, where products alone are rounded, and in bfloat16 parameters."""
    from curvebench.backends.engine import engine

    workload, problem = problem_of(name)
    made = engine(backend, word)
    table, ops = made.model_ops, made.ops
    params = {key: table.asarray(value) for key, value in problem.parameters.items()}
    batch = {key: ops.asarray(value) for key, value in minibatch(problem).items()}
    state = {key: ops.asarray(value) for key, value in problem.state.items()}
    noise = {key: ops.asarray(value) for key, value in noise_of(workload, minibatch(problem)).items()}

    def losses(params, state, batch, noise):
        loss = workload.loss(table, params, state, batch, noise)[0]
        return [loss, *workload.evaluate(table, params, state, batch).values()]

    values = made.compiled(losses, params, state, batch, noise)(params, state, batch, noise)
    assert {str(value.dtype).removeprefix("torch.") for value in values} == {"float32"}
    exact = loss_in_numpy(numpy_ops(), workload, problem, minibatch(problem))(problem.parameters)
    assert float(values[0]) == pytest.approx(exact, rel=tolerance)


@pytest.mark.parametrize(
    ("given", "said"),
    [({"family": "softmax"}, "'softmax' is not categorical or gaussian"), ({"scale": 0.0}, "is not above 0")],
)
def test_a_likelihood_that_there_is_not_is_refused(given: dict[str, Any], said: str):
    with pytest.raises(ValueError, match=said):
        Likelihood(lambda *arguments: None, **{"family": "gaussian", **given})
