"""Losses and metrics of single runs compiled as one graph: of every workload, and equal to eager ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from curvebench.backends.torch_engine import TorchEngine
from curvebench.benchmarks.networks_at_speed import SMALL, TimedNetwork
from curvebench.engine.bundle import Bundle
from curvebench.engine.execution import execute
from curvebench.optimizers import rules
from curvebench.workloads.workload import Workload
from tests.curvebench.engine.test_execution import make_bundle
from tests.curvebench.networks import SMALL_ATTENTION, SMALL_CONVOLUTION
from tests.curvebench.test_executors import bundle_of
from tests.workloads.cases import NAMES, small

COMPILED = {"loss: compiled as one graph", "evaluation: compiled as one graph"}


def engine_that_compiles(
    compiler: Any = "aot_eager", worth: float = 0.0, dtype: str = "float64"
) -> TorchEngine:
    """Return an engine with eager updates, and compiled losses and metrics."""
    return TorchEngine(dtype, "cpu", compiler=compiler, worth_compiling=1 << 62, loss_worth_compiling=worth)


def run_of(name: str) -> Bundle:
    """Return a bundle of two steps on a registered workload with small settings, in minibatches of 4 if it
    allows minibatches.
    """
    workload, settings = small(name)
    batch_size = 4 if settings.get("batch_size") is not None else None
    return make_bundle(
        *(workload, rules()["sgd"], (0,), (1e-3,), batch_size, False, 2),
        given=settings,
        schedule=np.ones(2),
        evaluations=2,
        settings=settings,
    )


def assert_equal(bundle: Bundle, made: TorchEngine, tolerance: float) -> None:
    eager = execute(bundle, engine_that_compiles(worth=np.inf, dtype=made.ops.dtype))
    compiled = execute(bundle, made)
    for name, values in eager.metrics.items():
        np.testing.assert_allclose(compiled.metrics[name], values, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", NAMES)
def test_every_workload_is_one_graph(name: str) -> None:
    made = engine_that_compiles()
    bundle = run_of(name)
    assert_equal(bundle, made, 1e-9)
    assert set(made.notes) >= COMPILED


@pytest.mark.parametrize(
    ("workload", "rule"), [(SMALL_CONVOLUTION, "adamw"), (SMALL_ATTENTION, "nesterov_lookahead")]
)
def test_model_state_noise_and_looking_ahead_go_on_as_they_are(workload: Workload, rule: str) -> None:
    made = engine_that_compiles()
    assert_equal(bundle_of(workload, rules()[rule], seeds=(0,), rates=1, steps=12), made, 1e-9)
    assert set(made.notes) >= COMPILED


def test_lanes_and_short_runs_are_not_compiled() -> None:
    several = engine_that_compiles()
    execute(bundle_of(SMALL_ATTENTION, rules()["adamw"], seeds=(0, 1), rates=1, steps=4), several)
    short = engine_that_compiles(worth=1e13)
    execute(bundle_of(SMALL_ATTENTION, rules()["adamw"], seeds=(0,), rates=1, steps=4), short)
    assert not COMPILED & {*several.notes, *short.notes}


def test_what_cannot_be_compiled_is_eager_and_said() -> None:
    def broken(graph: Any, inputs: Any) -> Callable[..., Any]:
        raise ValueError("cannot")

    made = engine_that_compiles(broken)
    assert_equal(bundle_of(SMALL_ATTENTION, rules()["adamw"], seeds=(0,), rates=1, steps=4), made, 0.0)
    assert [note for note in made.notes if note.startswith("loss: eager; ") and "cannot" in note]
    assert not COMPILED & {*made.notes}


def test_a_loss_that_leaves_pytorch_is_eager_and_said() -> None:
    bundle = bundle_of(SMALL_ATTENTION, rules()["adamw"], seeds=(0,), rates=1, steps=4)
    loss = bundle.workload.loss

    def leaving(ops: Any, params: Any, state: Any, batch: Any, noise: Any) -> Any:
        if float(ops.sum(params["scale"])) > 1e9:  # a branch on a value
            raise ValueError
        return loss(ops, params, state, batch, noise)

    bundle = dataclasses.replace(bundle, workload=dataclasses.replace(bundle.workload, loss=leaving))
    made = engine_that_compiles()
    assert_equal(bundle, made, 1e-9)
    assert [note for note in made.notes if note.startswith("loss: eager; ")]


@pytest.mark.long
@pytest.mark.parametrize("precision", ["float32", "mixed"])
@pytest.mark.parametrize("network", SMALL, ids=lambda network: network.name)
def test_the_real_compiler_agrees_with_eager(network: TimedNetwork, precision: str) -> None:
    """Not in `make test`: a network takes 40 s, and a C++ compiler, which not every machine has."""
    bundle = network.bundle(rules()["adamw"], 4, 2)
    made = engine_that_compiles("inductor", dtype=precision)
    compiled = execute(bundle, made)
    eager = execute(bundle, engine_that_compiles(worth=np.inf, dtype=precision))
    assert set(made.notes) >= COMPILED
    tolerance = 1e-4 if precision == "float32" else 2e-2
    found, due = (one.metrics["train_loss"] for one in (compiled, eager))
    np.testing.assert_allclose(found, due, rtol=tolerance)
