"""Every rule on every kind of small workload, on both executors: lanes, noise, streaming, compilation."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
import torch
from torch._dynamo.utils import counters
from torch._inductor import cpp_builder
from torch._inductor.exc import InvalidCxxCompiler

from curvebench import optimizers
from curvebench.backends.engine import engine
from curvebench.backends.torch_engine import TorchEngine
from curvebench.engine.bundle import Bundle, Trajectories
from curvebench.engine.evaluation import evaluator
from curvebench.engine.execution import execute
from curvebench.engine.inputs import segment_inputs
from curvebench.engine.loading import load
from curvebench.optimizers.rule import Rule
from curvebench.registry import find_rule
from curvebench.steps.engine import Engine
from curvebench.steps.program import Carry, step_of
from curvebench.workloads import workloads
from curvebench.workloads.workload import GRADIENT_NORM, Workload
from tests.curvebench.engine.test_execution import changed, make_bundle, run
from tests.curvebench.networks import ATTENTION, SMALL_ATTENTION, SMALL_CONVOLUTION
from tests.curvebench.toys import TANH, advanced

BATCH, STEPS = 16, 6
RATES = {"shampoo": 0.02, "sgd": 0.05, "momentum": 0.02, "newton": 0.2}  # others 0.002
RULES = optimizers.rules()
# Every way in which the engine calls a rule: entrywise, amortized, in parts, looking ahead, as one vector, by
# name with layers.
WAYS = ("sgd", "adam", "shampoo", "muon", "nesterov_lookahead", "adagrad_norm", "symo")
VARIANTS: dict[str, Rule] = {
    **{name: RULES[name] for name in WAYS},
    "shampoo averaged, every 3 steps": RULES["shampoo"].choose({"statistics": "ema", "refresh_every": 3}),
    "muon by svd": RULES["muon"].choose({"orthogonalization": "svd"}),
}
ALL = {**RULES, **VARIANTS}
# the regression says no likelihood to draw targets from
ALL["kfac"] = RULES["kfac"].choose({"fisher": "empirical"})
ALL = {name: rule for name, rule in ALL.items() if not any(need.of_likelihood for need in rule.needs)}
del ALL["lbfgs"]  # the regression has minibatches
# What networks have that the regression lacks (noise, attention, convolutions) meets a rule by entries; the
# regression meets one of each way that compiles in seconds. `make test-all` has all pairs.
ON_NETWORKS = {SMALL_CONVOLUTION.name: ("adam",), SMALL_ATTENTION.name: ("adam",)}
ON_JAX_ALONE = ("adam", "muon", "adagrad_norm", "shampoo averaged, every 3 steps")
ON_TANH = ("sgd", "adam", "nesterov_lookahead", "adagrad_norm", "symo", "shampoo averaged, every 3 steps")
# Rules that use eigenvectors of singular statistics, which each library chooses: equal at full rank alone,
# where test_parity.py and tests/optimizers compare them.
IN_A_NULL_SPACE = ("soap",)
NETWORKS = {workload.name: workload for workload in (SMALL_CONVOLUTION, SMALL_ATTENTION)}


def named(value: Any) -> str:
    """Return the name of a parameter of a test."""
    return value.name if isinstance(value, Workload) else str(value)


def bundle_of(
    workload: Workload, rule: Rule, seeds: tuple[int, ...] = (0, 1), rates: int = 2, steps: int = STEPS
) -> Bundle:
    """Lanes of a network with minibatches and noise, or of the tanh regression, in two rotated blocks."""
    rate = RATES.get(rule.name, 0.002)
    settings = tuple(rate * 1.5**k for k in range(rates))
    if workload.name == TANH.name:
        basis = rule.for_model is None  # layers are those of the original coordinates
        return make_bundle(rule=rule, seeds=seeds, rates=settings, steps=steps, evaluations=2, basis=basis)
    return make_bundle(
        *(workload, rule, seeds, settings, BATCH, False, steps),
        schedule=np.linspace(1.0, 0.5, steps),
        evaluations=2,
        settings=workload.complete({}),
    )


def assert_equal(one: Trajectories, other: Trajectories, tolerance: float) -> None:
    for name, values in one.metrics.items():
        np.testing.assert_allclose(
            other.metrics[name], values, rtol=tolerance, atol=tolerance * np.abs(values).max(), err_msg=name
        )


@pytest.mark.parametrize(
    ("workload", "variant", "backend", "steps"),
    [
        *((TANH, one, "torch", 200) for one in VARIANTS),
        # a rule by entries, one in parts, one of the whole model and one with a cadence; where the gradient
        # is taken elsewhere is the engine's code for both, and its lanes equal torch's below
        *(
            pytest.param(TANH, one, "jax", 200, marks=[] if one in ON_JAX_ALONE else [pytest.mark.long])
            for one in VARIANTS
        ),
        *((network, "adam", "torch", STEPS) for network in NETWORKS.values()),
        # their lanes equal torch's: below, and in engine/test_accumulation.py
        *(
            pytest.param(network, "adam", "jax", STEPS, marks=pytest.mark.long)
            for network in NETWORKS.values()
        ),
    ],
    ids=named,
)
def test_a_lane_equals_the_run_alone(workload: Workload, variant: str, backend: str, steps: int):
    bundle = bundle_of(workload, VARIANTS[variant], steps=steps)
    together, alone = run(bundle, backend), run(bundle.subset(slice(1, 2), slice(1, 2)), backend)
    assert (together.diverged_at == 0).all()
    tolerance = 1e-12 if workload is TANH else 1e-11
    for name, values in alone.metrics.items():
        np.testing.assert_allclose(
            together.metrics[name][:, 1, 1], values[:, 0, 0], rtol=tolerance, atol=1e-15, err_msg=name
        )


# --- compilation ---------------------------------------------------------------------------------


@contextmanager
def compilations() -> Iterator[Counter[str]]:
    """Counts what JAX and torch.compile compile inside, and graphs that torch breaks."""
    seen: Counter[str] = Counter()

    def listen(event: str, seconds: float, **facts: Any) -> None:
        seen["jax"] += event == "/jax/core/compile/backend_compile_duration"

    jax.monitoring.register_event_duration_secs_listener(listen)
    before = counters["stats"]["unique_graphs"]
    try:
        yield seen
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
        seen["torch"] = counters["stats"]["unique_graphs"] - before


def compiled_steps(bundle: Bundle, made: Engine) -> tuple[dict[str, np.ndarray], int, int]:
    """Metrics after 5 single steps, and what was compiled up to the first and from the second on."""
    with made.context():
        loaded = load(bundle, made)
        inputs = [segment_inputs(bundle, made, step, 1) for step in range(5)]
        with compilations() as first:
            evaluate = evaluator(bundle, made, loaded)
            segment = made.segment(loaded, inputs[0])
            carry = segment(loaded.carry, loaded.constants, inputs[0])
            evaluate(carry, loaded.constants)
        with compilations() as second:
            for given in inputs[1:]:
                carry = segment(carry, loaded.constants, given)
            metrics = evaluate(carry, loaded.constants)
    backend = made.ops.backend
    return metrics, first[backend], second[backend]


@pytest.mark.parametrize(
    ("workload", "variant"),
    [  # compiled for seconds
        pytest.param(TANH, one, marks=[] if one in ON_TANH else [pytest.mark.long]) for one in ALL
    ]
    + [  # for many seconds
        pytest.param(network, one, marks=[] if one in ON_NETWORKS[network.name] else [pytest.mark.long])
        for network in NETWORKS.values()
        for one, rule in VARIANTS.items()
        if rule.for_model is None
    ],
    ids=named,
)
def test_backends_agree_and_the_second_step_compiles_nothing(workload: Workload, variant: str):
    """No leaf is eager on torch either: a compiled function that would fall back fails, and notes say it."""
    bundle = bundle_of(workload, ALL[variant])
    bundle = bundle if workload.mapped else bundle.subset(slice(0, 1), slice(0, 1))
    torch._dynamo.reset()
    counters.clear()
    compiled = TorchEngine("float64", "cpu", compiler="eager", worth_compiling=0, fused=False)
    on_torch, first, second = compiled_steps(bundle, compiled)
    assert (first > 0, second) == (True, 0)
    assert not counters["graph_break"]
    assert all(note.endswith("compiled as one graph") for note in compiled.notes)
    on_jax, first, second = compiled_steps(bundle, engine("jax", "float64"))
    assert (first > 0, second) == (True, 0)
    for name, values in on_jax.items():
        assert np.isfinite(values).all()
        if bundle.rule.name not in IN_A_NULL_SPACE:
            np.testing.assert_allclose(on_torch[name], values, rtol=1e-9, err_msg=name)


@pytest.mark.long
@pytest.mark.parametrize("variant", ["adamw", "shampoo averaged, every 3 steps", "muon"])
def test_compiled_updates_equal_eager_ones(variant: str):
    """By the compiler that runs use, with lanes that stop and stay."""
    bundle = bundle_of(TANH, ALL[variant])
    bundle = changed(bundle, orders=None, stop_gradient_norm=0.3)
    eager = execute(bundle, TorchEngine("float64", "cpu", worth_compiling=1 << 62))
    compiled = execute(bundle, TorchEngine("float64", "cpu", worth_compiling=0))
    assert_equal(eager, compiled, 1e-11)
    assert (eager.stopped_at == compiled.stopped_at).all()


def test_no_compiler_is_a_named_fallback(monkeypatch: pytest.MonkeyPatch):
    def missing() -> str:
        raise InvalidCxxCompiler

    monkeypatch.setattr(cpp_builder, "get_cpp_compiler", missing)
    made = TorchEngine("float64", "cpu", worth_compiling=0)
    result = execute(bundle_of(TANH, VARIANTS["adam"]), made)
    assert np.isfinite(result.metrics["train_loss"]).all()
    assert made.notes == ["adam: eager updates; torch.compile finds no C++ compiler on this machine"]


def test_what_cannot_be_compiled_is_eager_and_said():
    def broken(graph: Any, inputs: Any) -> Any:
        raise KeyError("buf1")

    torch._dynamo.reset()
    made = TorchEngine("float64", "cpu", compiler=broken, worth_compiling=0, fused=False)
    bundle = bundle_of(TANH, VARIANTS["adam"])
    assert_equal(run(bundle, "jax"), execute(bundle, made), 1e-11)
    assert made.notes == ["adam: eager updates; torch.compile cannot compile them (KeyError: 'buf1')"]


@pytest.mark.parametrize("compiled", [True, False])
def test_new_state_may_be_what_the_update_overwrites(compiled: bool):
    """Old parameters and old state that go on as other state: torch writes in place, and must copy first."""

    class Lagged(NamedTuple):
        before: Any  # the parameters of the step before
        last: Any  # the last gradient
        earlier: Any  # the one before it

    def update(ops: Any, grad: Any, state: Any, param: Any, hyper: Any) -> Any:
        moved = param - hyper["learning_rate"] * (grad + 0.5 * state.last + 0.25 * state.earlier)
        return moved + 0.5 * (param - state.before), Lagged(param, grad, state.last)

    def init(ops: Any, param: Any) -> Lagged:
        return Lagged(param + 0.0, ops.zeros_like(param), ops.zeros_like(param))

    rule = dataclasses.replace(VARIANTS["sgd"], name="lagged", init=init, update=update)
    bundle = bundle_of(TANH, rule)
    torch._dynamo.reset()
    worth = 0 if compiled else 1 << 62
    made = TorchEngine("float64", "cpu", compiler="eager", worth_compiling=worth)
    assert_equal(run(bundle, "jax"), execute(bundle, made), 1e-11)


def test_metrics_and_model_state_may_be_parameters():
    """A metric or a model state that is a parameter is copied: later steps, which update parameters in
    place, do not change it.
    """

    def loss(ops: Any, params: Any, state: Any, batch: Any, noise: Any) -> Any:
        value, _, metrics = TANH.loss(ops, params, {"seen": state["seen"]}, batch, noise)
        drift = ops.sum(ops.square(params["bias"] - state["lagged"]))
        return value + 0.1 * drift, {"seen": state["seen"], "lagged": params["bias"]}, metrics

    def evaluate(ops: Any, params: Any, state: Any, split: Any) -> Any:
        return {"loss": params["bias"][0], "seen": state["lagged"][0]}

    workload = dataclasses.replace(
        TANH,
        loss=loss,
        evaluate=evaluate,
        metrics={name: TANH.metrics[name] for name in ("train_loss", "train_seen")},
    )
    for part in ((slice(0, 2), slice(0, 2)), (slice(0, 1), slice(0, 1))):
        bundle = bundle_of(TANH, VARIANTS["sgd"]).subset(*part)
        problems = [
            dataclasses.replace(problem, state={**problem.state, "lagged": np.zeros(4)})
            for problem in bundle.problems
        ]
        bundle = dataclasses.replace(bundle, workload=workload, problems=problems)
        assert_equal(run(bundle, "jax"), run(bundle, "torch"), 1e-11)


# --- gradients elsewhere, Hessians, learning rates of parameters' own --------------------------------


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_looking_ahead_is_double_momentum_seen_from_its_fast_weights(backend: str):
    """002 Lemma S.10: at a constant rate the gradients are taken at the same points, in a basis too."""
    made = engine(backend, "float64")
    norms, points = {}, {}
    for name in ("nesterov", "nesterov_lookahead"):
        bundle = make_bundle(rule=RULES[name], rates=(0.02, 0.05), steps=10, evaluations=10)
        bundle = dataclasses.replace(bundle, schedule=np.ones(10))
        with made.context():
            loaded, carry = advanced(bundle, made, 10)
            last, update = step_of(segment_inputs(bundle, made, 9, 1), 0), loaded.program.update
            values = loaded.program.values(loaded.constants, last)
            points[name] = made.ops.to_numpy(update.point(made.ops, carry.state, carry.coordinates, values))
            norms[name] = made.ops.to_numpy(carry.coordinates)
    np.testing.assert_allclose(points["nesterov_lookahead"], points["nesterov"], rtol=1e-11)
    assert np.abs(norms["nesterov_lookahead"] - norms["nesterov"]).max() > 1e-3


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_newton_finds_the_minimum_of_a_quadratic_in_a_step_in_every_basis(backend: str):
    """Two lanes: rate 1 arrives, rate 1/2 halves the distance, whose square is the loss above the minimum."""
    workload = workloads()["least_squares"]
    settings = workload.complete({"n": 40, "d": 12, "alpha": 1.0})
    bundle = make_bundle(
        *(workload, RULES["newton"], (0,), (1.0, 0.5), None, False, 1),
        given=settings,
        hyperparameters={"learning_rate": np.array([1.0, 0.5]), "damping": np.zeros(2)},
        evaluations=1,
        settings=settings,
    )
    size, names = bundle.layout.total, tuple(bundle.problems[0].parameters)
    turned = np.linalg.qr(np.random.default_rng(0).standard_normal((size, size)))[0][None]
    for matrices in ({}, {names: turned}):
        losses = run(dataclasses.replace(bundle, matrices=matrices), backend).metrics["train_loss"][:, 0]
        assert losses[1, 0] < 1e-9 * losses[0, 0]
        np.testing.assert_allclose(losses[1, 1], losses[0, 1] / 4, rtol=1e-6)
    assert bundle.evaluations_of(np.array([0, 7])).tolist() == [0, 7 * (1 + size)]


# --- checkpoints -------------------------------------------------------------------------------------


def kept(carry: Carry, made: Engine) -> dict[str, np.ndarray]:
    """Return copies of the arrays of a carry that a checkpoint contains, by name."""
    return {name: array.copy() for name, array in made.carry_to_host(carry).items()}


@pytest.mark.parametrize(
    ("variant", "backend"),
    [(one, "torch") for one in ALL]
    + [(one, "jax") for one in ("adam", "nesterov_lookahead", "shampoo averaged, every 3 steps")],
)
def test_a_run_goes_on_from_a_checkpoint_bit_for_bit(variant: str, backend: str):
    """After 5 of 8 steps, which is between two refreshes where there is a cadence."""
    bundle, made = bundle_of(TANH, ALL[variant], steps=8), engine(backend, "float64")
    with made.context():
        loaded = load(bundle, made)
        carry = loaded.carry
        for start, length in ((0, 5), (5, 3)):
            inputs = segment_inputs(bundle, made, start, length)
            checkpoint = kept(carry, made)
            segment = made.segment(dataclasses.replace(loaded, carry=carry), inputs, 8)
            carry = segment(carry, loaded.constants, inputs)
        restored = made.carry_from_host(load(bundle, made).carry, checkpoint)
        again = kept(segment(restored, loaded.constants, inputs), made)
    for name, array in kept(carry, made).items():
        assert again[name].tobytes() == array.tobytes(), name


@pytest.mark.parametrize("variant", ["adam", "shampoo averaged, every 3 steps", "torch:torch.optim.Adam"])
def test_evaluations_that_do_not_divide_the_steps_change_nothing(variant: str):
    """Stretches of lengths A, B, A: each length has a program of its own, in the same buffers."""
    rule = ALL[variant] if variant in ALL else find_rule(variant)
    bundle = make_bundle(rule=rule, seeds=(0,), rates=(0.05,), steps=8, basis=False)
    one, other = (
        run(dataclasses.replace(bundle, evaluations=evaluations), "torch").metrics["train_loss"][-1]
        for evaluations in (1, 5)
    )
    np.testing.assert_allclose(other, one, rtol=1e-11)


# --- amortized work, noise, streaming ---------------------------------------------------------------


@pytest.mark.parametrize("backend", ["jax", "torch"])
@pytest.mark.parametrize("starts", [False, True])
@pytest.mark.parametrize(("every", "steps"), [(1, [1, 2, 3, 4, 5, 6]), (4, [1, 5]), (None, [1])])
def test_refresh_follows_its_cadence(every: int | None, steps: list[int], starts: bool, backend: str):
    """A rule whose refresh notes the step that it is done before, as a sum of powers of two.

    With work of its own at the start, that step counts as step 0. The steps are cut in two stretches.
    """

    def start(ops: Any, grad: Any, state: Any, hyper: Any) -> Any:
        return type(state)(state.velocity + 1.0)

    def refresh(ops: Any, grad: Any, state: Any, hyper: Any) -> Any:
        return type(state)(state.velocity + 2.0 ** hyper["step"])

    def update(ops: Any, grad: Any, state: Any, param: Any, hyper: Any) -> Any:
        return state.velocity, state  # the parameters tell what the state is

    rule = dataclasses.replace(
        RULES["momentum"],
        scope="leaf",
        refresh=refresh,
        refresh_every=every,
        start=start if starts else None,
        update=update,
    )
    bundle = make_bundle(rule=rule, basis=False, steps=6, evaluations=2)
    made = engine(backend, "float64")
    with made.context():
        loaded = load(bundle, made)
        first, second = (segment_inputs(bundle, made, begin, 3) for begin in (0, 3))
        segment = made.segment(loaded, first, 6)
        carry = segment(segment(loaded.carry, loaded.constants, first), loaded.constants, second)
        found = np.unique(made.ops.to_numpy(carry.coordinates))
    assert found.tolist() == [sum(2.0**step for step in steps) - (1 if starts else 0)]


def test_equal_leaves_are_one_array():
    """Neighbours of one kind and shape are updated together; a rotated block keeps its own order."""
    seen: list[tuple[int, ...]] = []

    def update(ops: Any, grad: Any, state: Any, param: Any, hyper: Any) -> Any:
        seen.append(tuple(param.shape))
        assert hyper["learning_rate"].shape == (1, 2, *(1,) * (param.ndim - 2))
        return param, state

    rule = dataclasses.replace(VARIANTS["sgd"], scope="leaf", update=update)
    execute(bundle_of(SMALL_ATTENTION, rule, steps=2), engine("torch", "float64"))
    shapes = {(role.kind, shape) for shape, role in ATTENTION.values()}
    assert len(seen) == 2 * len(shapes)
    assert max(shape[2] for shape in seen) > 1


@pytest.mark.parametrize(
    ("workload", "backend"),
    [
        (TANH, "jax"),
        *((network, "torch") for network in NETWORKS.values()),
        *(pytest.param(network, "jax", marks=pytest.mark.long) for network in NETWORKS.values()),
    ],
    ids=named,
)
def test_streaming_changes_nothing(workload: Workload, backend: str, monkeypatch: pytest.MonkeyPatch):
    held = bundle_of(workload, VARIANTS["adam"])
    metrics = {name: one for name, one in workload.metrics.items() if name != GRADIENT_NORM}  # needs all data
    held = dataclasses.replace(
        held, workload=dataclasses.replace(workload, metrics=metrics, evaluation_batch=None)
    )
    streamed = dataclasses.replace(held.workload, streamed=True, evaluation_batch=24)
    whole = run(held, backend)
    assert_equal(whole, run(dataclasses.replace(held, workload=streamed), backend), 1e-11)
    monkeypatch.setattr("curvebench.engine.inputs.MAX_INPUT_BYTES", 1)  # a step at a time
    assert_equal(whole, run(dataclasses.replace(held, workload=streamed), backend), 1e-11)


@pytest.mark.parametrize("workload", NETWORKS.values(), ids=lambda workload: workload.name)
def test_noise_is_that_of_seed_and_step(workload: Workload):
    made = engine("jax", "float64")
    bundle = bundle_of(workload, VARIANTS["sgd"])
    with made.context():
        whole = segment_inputs(bundle, made, 0, 4).noise
        second = segment_inputs(bundle.subset(slice(1, 2), slice(0, 1)), made, 2, 1).noise
    assert set(whole) == set(second)
    for name, values in whole.items():
        assert np.array_equal(np.asarray(values)[2:3, 1:2], np.asarray(second[name]))
        assert not np.array_equal(np.asarray(values)[0], np.asarray(values)[1]), name


def test_noise_reaches_the_loss():
    bundle = bundle_of(SMALL_ATTENTION, VARIANTS["sgd"])
    draw = SMALL_ATTENTION.noise
    assert draw is not None
    still = dataclasses.replace(
        SMALL_ATTENTION,
        noise=lambda settings, generator, size: {
            name: np.ones_like(value) for name, value in draw(settings, generator, size).items()
        },
    )
    one, other = run(bundle, "torch"), run(dataclasses.replace(bundle, workload=still), "torch")
    assert (one.metrics["train_loss"][-1] != other.metrics["train_loss"][-1]).all()
