"""K-FAC in runs: backends and lanes agree, work and costs are counted, and what it refuses."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.backends.engine import engine
from curvebench.engine.bundle import Bundle
from curvebench.engine.inputs import segment_inputs
from curvebench.engine.loading import load
from curvebench.engine.memory import lanes_per_bundle, state_entries
from curvebench.interop import chosen
from curvebench.interop.replaying import Online
from curvebench.optimizers import rules
from curvebench.optimizers.kfac import LayerFactors, damped_inverses
from curvebench.optimizers.layer_statistics import FISHERS, fisher_of
from curvebench.optimizers.options import OptionError
from curvebench.optimizers.rule import HyperparameterError
from curvebench.seeding import WorkloadRandom
from curvebench.spec.errors import InputError
from curvebench.steps.derivatives import model_of
from curvebench.steps.layout import layout
from curvebench.steps.program import minibatch_of, step_of
from curvebench.steps.update import Update, Work
from curvebench.workloads import workloads
from tests.curvebench.toys import advanced, begun

STEPS, BATCH = 4, 24
NUMBERS = {"learning_rate": 0.01, "damping": 1e-2, "factor_decay": 0.8, "momentum": 0.9, "weight_decay": 0.1}


def bundle_of(name: str, options: dict[str, Any], numbers: dict[str, float], seeds: int = 1) -> Bundle:
    """Return a bundle of runs of a rule on the digits in float64, with `seeds` seeds and two rates."""
    workload = dataclasses.replace(workloads()["digits_mlp"], dtype="float64")
    settings = workload.complete({"batch_size": BATCH})
    randoms = [WorkloadRandom("digits_mlp", seed) for seed in range(seeds)]
    rule = rules()[name].choose(options)
    complete = rule.complete(numbers)
    return Bundle(
        workload=workload,
        rule=rule,
        problems=[workload.problem(settings, random) for random in randoms],
        orders=np.random.default_rng(0).integers(0, 1000, (STEPS, seeds, BATCH)),
        hyperparameters={key: np.array([value, value]) for key, value in complete.items()}
        | {"learning_rate": np.array([1.0, 0.5]) * complete["learning_rate"]},
        schedule=np.linspace(1.0, 0.5, STEPS),
        settings=settings,
        randoms=randoms,
    )


def parameters_of(bundle: Bundle, backend: str) -> dict[str, np.ndarray]:
    """Return the parameters (S, K, ...) after all steps."""
    made = engine(backend, "float64")
    with made.context():
        loaded, carry = advanced(bundle, made, STEPS)
        found = loaded.program.parameters(carry.coordinates, ())
        return {name: np.array(made.ops.to_numpy(value)) for name, value in found.items()}


# --- runs -------------------------------------------------------------------------------------------------


CASES = [("kfac", "sampled", 1, 1), ("kfac", "empirical", 3, 2), ("kfac_as_004", "empirical_of_mean", 1, 1)]


@pytest.mark.parametrize(("name", "fisher", "factors", "inverses"), CASES)
def test_backends_agree(name: str, fisher: str, factors: int, inverses: int):
    options = {"fisher": fisher, "factors_every": factors, "inverses_every": inverses}
    bundle = bundle_of(name, options, NUMBERS, seeds=2)
    by_jax, by_torch = (parameters_of(bundle, backend) for backend in ("jax", "torch"))
    for key, value in by_torch.items():
        np.testing.assert_allclose(by_jax[key], value, rtol=0, atol=1e-10 * np.abs(value).max())


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_lanes_are_as_alone(backend: str):
    bundle = bundle_of("kfac", {"factors_every": 2}, NUMBERS, seeds=2)
    together = parameters_of(bundle, backend)
    alone = parameters_of(bundle.subset(slice(1, 2), slice(1, 2)), backend)
    for name, value in alone.items():
        np.testing.assert_allclose(together[name][1, 1], value[0, 0], rtol=1e-12, atol=1e-13)


def test_steps_in_a_row_without_amortized_work_are_one_call_on_jax():
    bundle = bundle_of("kfac", {"factors_every": 3, "inverses_every": 3}, NUMBERS)
    made = engine("jax", "float64")
    with made.context():
        loaded, inputs, segment = begun(bundle, made, STEPS)
        bounds = []
        for work, program in segment.programs.items():

            def counted(*arguments: Any, work: Work = work, program: Any = program) -> Any:
                bounds.append((work, *map(int, arguments[-2:])))
                return program(*arguments)

            segment.programs[work] = counted
        segment(loaded.carry, loaded.constants, inputs)
    both = Work.OBSERVE | Work.REFRESH
    assert bounds == [(both, 0, 1), (Work.NONE, 1, 3), (both, 3, 4)]


def test_it_is_for_networks_alone():
    workload = workloads()["least_squares"]
    rule = rules()["kfac"]
    shapes, roles = {"theta": (4,)}, workload.roles(workload.complete({}))
    with pytest.raises(
        OptionError, match=r"kfac: the model has no weight matrix and no convolution \(theta\)"
    ):
        Update(rule, layout(shapes, roles)).groups  # noqa: B018


def test_what_it_costs_is_counted_by_the_steps_that_observe():
    every, seldom, exact = (
        bundle_of("kfac", options, NUMBERS)
        for options in ({}, {"factors_every": 10}, {"fisher": "expected", "factors_every": 10})
    )
    steps = np.array([0, 1, 10, 11, 20])
    assert every.evaluations_of(steps).tolist() == [0, 2, 20, 22, 40]
    assert seldom.evaluations_of(steps).tolist() == [0, 2, 11, 13, 22]
    assert exact.evaluations_of(steps).tolist() == [0, 11, 20, 31, 40]


def test_statistics_are_evaluated_only_at_steps_that_observe():
    update = bundle_of("kfac", {"factors_every": 2, "inverses_every": 3}, NUMBERS).update
    both, observe, refresh = Work.OBSERVE | Work.REFRESH, Work.OBSERVE, Work.REFRESH
    works = [both, Work.NONE, observe, refresh, observe, Work.NONE, both]
    assert [update.work_of(step) for step in range(1, 8)] == works
    assert update.cadence == set(works)


def test_factors_count_in_bundles():
    """The need has 65^2 + 32^2 + 33^2 + 10^2 numbers; the state has twice as many, and the velocities."""
    bundle = bundle_of("kfac", {}, NUMBERS, seeds=2)
    factors = 65**2 + 32**2 + 33**2 + 10**2
    assert sum(need.entries(model_of(bundle.layout)) for need in bundle.needs) == factors
    assert state_entries(bundle.rule, bundle.layout) == 2 * factors + 1 + 2410
    examples = max(len(split["labels"]) for split in bundle.problems[0].splits.values())
    lane = 4 * 2410 + 2 * (2 * factors + 1 + 2410) + 2 * examples * (32 + 32 + 10 + 10) + factors
    assert [lanes_per_bundle(bundle, 8, 8 * size) for size in (2 * lane - 1, 2 * lane)] == [(1, 1), (1, 2)]


def test_nothing_is_evaluated_or_drawn_where_nothing_observes():
    bundle = bundle_of("kfac", {"factors_every": 2}, NUMBERS)
    assert [bool(bundle.draws(0, step)["drawn targets"].any()) for step in (1, 2, 3)] == [True, False, True]
    made = engine("jax", "float64")
    with made.context():
        loaded = load(bundle, made)
        inputs = segment_inputs(bundle, made, 0, 1)
        given = step_of(inputs, 0)
        point = loaded.program.parameters(loaded.carry.coordinates, ())
        batch = minibatch_of(loaded.constants, given)
        for observes, seen in ((True, {"layers"}), (False, set())):
            assert set(loaded.program.evaluation(point, {}, batch, given.noise, observes).needs) == seen


def test_the_defaults_of_kfac_as_004_are_what_its_figures_ran():
    rule = rules()["kfac_as_004"]
    assert rule.chosen == {
        **rules()["kfac"].chosen,
        "fisher": "empirical_of_mean",
        "first_factors": "kept",
    }
    given = {"learning_rate": 1e-5, "damping": 1.3e-4}
    own = {"factor_decay": 0.9, "momentum": 0.0, "weight_decay": 0.0}
    assert rule.complete(given) == rules()["kfac"].complete(given) | own


def test_it_runs_on_given_statistics_and_says_which():
    start = {"W": np.ones((2, 3)), "b": np.zeros(2)}
    kinds = {"W": "weight", "b": "bias"}
    values = {"learning_rate": 0.1, "damping": 0.25}
    layers: Any = {"W": {"inputs": 4 * np.eye(4), "gradients": 0.5 * np.eye(2)}}
    online = Online("kfac_as_004", start, values, "numpy", kinds=kinds)
    after = online.step({"W": np.ones((2, 3)), "b": np.ones(2)}, layers=layers)
    np.testing.assert_allclose(after["W"], 1 - 0.1 / (4.25 * 0.75))
    np.testing.assert_allclose(after["b"], -0.1 / (4.25 * 0.75))
    wrong: Any = {"W": {"inputs": np.eye(3), "gradients": np.eye(2)}}
    for given in (dict[str, Any](), {"layers": wrong}):
        with pytest.raises(InputError, match=r"needs statistics of the layers of shape .* observes"):
            online.step({"W": np.ones((2, 3)), "b": np.ones(2)}, **given)


@pytest.mark.parametrize("name", ["kfac", "kfac_as_004"])
def test_the_option_fisher_chooses_the_statistics(name: str):
    assert [fisher_of(chosen(name, {"fisher": fisher}).needs) for fisher in FISHERS] == [*FISHERS]


@pytest.mark.parametrize("name", ["kfac", "kfac_as_004"])
def test_a_damping_of_zero_is_refused(name: str):
    """A Cholesky factor of a singular matrix is NaN."""
    with pytest.raises(HyperparameterError, match=r"damping.*\(0, inf\)"):
        rules()[name].complete({"learning_rate": 0.1, "damping": 0.0})


def test_factors_without_any_gradient_are_damped_alone():
    zero = LayerFactors(np.zeros((3, 3)), np.zeros((2, 2)))
    damping = np.full((1, 1), 0.25)
    for balanced, expected in ((True, 2.0), (False, 4.0)):
        for matrix in damped_inverses(numpy_ops(), zero, damping, balanced):
            np.testing.assert_allclose(matrix, expected * np.eye(len(matrix)))
