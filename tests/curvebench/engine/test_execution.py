"""Bundles of lanes: the same runs alone, on both backends, and by hand in NumPy."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
import pytest

from curvebench import optimizers
from curvebench.arrays import jax_ops, ops
from curvebench.backends import jax_engine
from curvebench.backends.engine import engine
from curvebench.engine.bundle import Bundle, Trajectories
from curvebench.engine.clock import CHECKPOINT, PHASES, Clock
from curvebench.engine.execution import execute
from curvebench.engine.inputs import equal_lengths
from curvebench.engine.loading import load
from curvebench.engine.memory import lanes_per_bundle
from curvebench.engine.schedules import multipliers
from curvebench.optimizers.gradient_descent import MOMENTUM, SGD
from curvebench.optimizers.rule import Rule
from curvebench.seeding import WorkloadRandom, batch_order
from curvebench.steps.program import Program, StepProtocol
from curvebench.workloads.workload import Workload, examples_in
from tests.curvebench.toys import TANH, TANH_SHARED, loss_and_gradient, steep_loss, steps_by_hand

STEPS = 12


def orthogonal(size: int, seed: int) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(size, size)))[0]


def make_bundle(
    workload: Workload = TANH,
    rule: Rule = MOMENTUM,
    seeds: Sequence[int] = (0, 1, 2),
    rates: Sequence[float] = (0.05, 0.2),
    batch_size: int | None = 10,
    basis: bool = True,
    steps: int = STEPS,
    given: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Bundle:
    """Return lanes of a workload, each seed's in two blocks of rotated coordinates where there is a basis.

    Args:
        given: the settings of the workload but the size of its minibatches.
        changes: other fields of the bundle, and of what its steps execute.
    """
    random = [WorkloadRandom(workload.name, seed) for seed in seeds]
    problems = [workload.problem({**(given or {}), "batch_size": batch_size}, one) for one in random]
    orders = None
    if batch_size is not None:
        examples = examples_in(problems[0].splits["train"])
        orders = np.stack([batch_order(one, examples, batch_size, steps) for one in random], axis=1)
    complete = [rule.complete({"learning_rate": rate}) for rate in rates]
    matrices = {
        ("first",): np.stack([orthogonal(12, 10 + seed) for seed in seeds]),
        ("second", "bias"): np.stack([orthogonal(12, 20 + seed) for seed in seeds]),
    }
    bundle = Bundle(
        workload=workload,
        rule=rule,
        problems=problems,
        orders=orders,
        hyperparameters={name: np.array([values[name] for values in complete]) for name in complete[0]},
        schedule=multipliers({"name": "cosine"}, steps),
        evaluations=4,
        matrices=matrices if basis else {},
        randoms=random,
    )
    return changed(bundle, **changes)


def changed(bundle: Bundle, **changes: Any) -> Bundle:
    """Return a bundle with some fields, and some of what its steps execute, changed."""
    keys = {
        key.name: changes.pop(key.name) for key in dataclasses.fields(StepProtocol) if key.name in changes
    }
    return dataclasses.replace(bundle, protocol=dataclasses.replace(bundle.protocol, **keys), **changes)


def run(bundle: Bundle, backend: str) -> Trajectories:
    return execute(bundle, engine(backend, "float64"))


def same(one: Trajectories, other: Trajectories, tolerance: float) -> None:
    for name, values in one.metrics.items():
        np.testing.assert_allclose(other.metrics[name], values, rtol=tolerance, atol=1e-14, err_msg=name)


@pytest.mark.parametrize("workload", [TANH, TANH_SHARED], ids=lambda workload: workload.name)
@pytest.mark.parametrize("batch_size", [10, None])
def test_torch_equals_jax(workload: Workload, batch_size: int | None):
    bundle = make_bundle(workload, batch_size=batch_size)
    same(run(bundle, "jax"), run(bundle, "torch"), 1e-11)


def test_bases_in_separate_arrays_give_the_same_runs(monkeypatch: pytest.MonkeyPatch):
    bundle = make_bundle()
    whole = run(bundle, "jax")
    monkeypatch.setattr(ops, "LARGE", 12)
    made = engine("jax", "float64")
    with made.context():
        matrices = load(bundle, made).constants.matrices
    assert [type(held) for held in matrices] == [jax_ops.Bases] * 2
    same(whole, run(bundle, "jax"), 1e-11)


@pytest.mark.parametrize(
    ("workload", "name", "options", "tolerance"),
    [
        (TANH, "momentum", {}, 1e-12),
        (TANH_SHARED, "newton", {}, 1e-5),  # indefinite Hessians amplify rounding
        (TANH, "kfac", {"fisher": "empirical", "factors_every": 2, "inverses_every": 2}, 1e-9),
    ],
)
def test_lanes_in_turn_give_the_same_runs(
    workload: Workload, name: str, options: dict[str, Any], tolerance: float, monkeypatch: pytest.MonkeyPatch
):
    bundle = make_bundle(workload, optimizers.rules()[name].choose(options), basis=False)
    at_once = run(bundle, "jax")
    turns: list[Any] = []
    loop = jax.lax.map

    def counted(function: Any, elements: Any) -> Any:
        turns.append(function)
        return loop(function, elements)

    monkeypatch.setattr(jax.lax, "map", counted)
    monkeypatch.setattr(jax_engine, "MANY_EXAMPLES", 1)
    in_turn = run(bundle, "jax")
    assert turns
    same(at_once, in_turn, tolerance)


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_equals_a_plain_loop(backend: str):
    """One lane by hand: momentum, cosine schedule, minibatches, written out in NumPy."""
    bundle = make_bundle(rates=(0.2,), seeds=(5,), basis=False)
    steps, end = steps_by_hand(bundle, 0, 0.2, momentum=0.9)
    train = bundle.problems[0].splits["train"]
    losses = [loss_and_gradient(params, train)[0] for params in (*(one.params for one in steps[::3]), end)]
    result = run(bundle, backend)
    np.testing.assert_allclose(result.metrics["train_loss"][:, 0, 0], losses, rtol=1e-11)
    assert result.steps.tolist() == [0, 3, 6, 9, 12]


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_model_state_goes_in_and_out(backend: str):
    seen = run(make_bundle(), backend).metrics["train_seen"][:, 0, 0]
    assert seen.tolist() == [0, 30, 60, 90, 120]


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_a_diverged_lane_leaves_its_neighbours_alone(backend: str):
    workload = dataclasses.replace(TANH, loss=steep_loss)
    wild = run(make_bundle(workload, rates=(0.001, 1e3), rule=SGD), backend)
    calm = run(make_bundle(workload, rates=(0.001,), rule=SGD), backend)
    assert (wild.diverged_at[:, 1] > 0).all()
    assert (wild.diverged_at[:, 0] == 0).all()
    np.testing.assert_allclose(
        wild.metrics["train_loss"][:, :, 0], calm.metrics["train_loss"][:, :, 0], rtol=1e-12
    )


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_a_lane_stops_at_the_gradient_norm(backend: str):
    """It stops at its first short gradient, and parameters, state and model state stay from there on."""

    def descend(**changes: Any) -> Trajectories:
        changes = {"batch_size": None, "rates": (0.3,), "steps": 40, "evaluations": 40} | changes
        return run(make_bundle(**changes), backend)

    norms = descend().metrics["gradient_norm"][:, :, 0]  # before each step
    threshold = float(np.median(norms))
    held = descend(stop_gradient_norm=threshold)
    for s in range(3):
        first = int(np.argmax(norms[:, s] < threshold))  # updates made before that gradient
        assert held.stopped_at[s, 0] == first + 1
        np.testing.assert_allclose(held.metrics["gradient_norm"][: first + 1, s, 0], norms[: first + 1, s])
        for values in held.metrics.values():
            assert np.ptp(values[first:, s, 0]) == 0


def test_the_clock_holds_every_phase():
    clock = Clock()
    execute(make_bundle(), engine("jax", "float64"), clock)
    assert set(clock.seconds) == {*PHASES, CHECKPOINT}
    assert all(clock.seconds[phase] > 0 for phase in PHASES if phase != "import")
    assert clock.seconds[CHECKPOINT] == 0
    assert 0 < clock.parts["waiting"] < clock.seconds["data"], "loading is no waiting"
    assert clock.parts["basis"] == 0


def test_the_first_state_is_made_while_compiling(monkeypatch: pytest.MonkeyPatch):
    """Tracing its operations takes seconds on JAX, which no other phase may have."""
    start = Program.start

    def slow(*given: Any) -> Any:
        time.sleep(0.5)
        return start(*given)

    monkeypatch.setattr(Program, "start", slow)
    clock = Clock()
    execute(make_bundle(), engine("torch", "float64"), clock)
    assert clock.seconds["compile"] > 0.5


def test_bundle_size_follows_shapes_and_the_limit():
    bundle = make_bundle(seeds=tuple(range(6)), rates=(0.1, 0.2, 0.3))
    assert lanes_per_bundle(bundle, 8, 1 << 30) == (6, 3)
    seeds, settings = lanes_per_bundle(bundle, 8, 60_000)
    assert 1 <= seeds < 6
    assert settings == 3
    assert lanes_per_bundle(bundle, 4, 60_000)[0] >= seeds
    assert lanes_per_bundle(bundle, 8, 16_500) == (1, 2)  # not even a seed's settings fit
    assert lanes_per_bundle(bundle, 8, 1) == (1, 1)
    alone = dataclasses.replace(bundle, workload=dataclasses.replace(TANH, mapped=False))
    assert lanes_per_bundle(alone, 8, 1 << 30) == (1, 1)


def test_stretches_cover_the_steps():
    assert equal_lengths(1000, 50) == [20] * 50
    assert sum(equal_lengths(17, 5)) == 17
    assert len(set(equal_lengths(17, 5))) <= 2
    assert equal_lengths(3, 10) == [1, 1, 1]
