"""Fused kernels against the rules that they stand for."""

from __future__ import annotations

import dataclasses
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import torch

from curvebench import optimizers
from curvebench.arrays.torch_ops import torch_ops
from curvebench.backends import torch_engine, torch_segment
from curvebench.backends.engine import engine
from curvebench.backends.torch_engine import TorchEngine
from curvebench.backends.torch_native import NATIVE, native_of
from curvebench.engine.bundle import Bundle, Trajectories
from curvebench.engine.execution import execute
from curvebench.timing.step_times import NULL
from tests.curvebench.engine.test_execution import make_bundle, same

RULES = {name: {**optimizers.rules(), NULL.name: NULL}[name] for name in NATIVE}


def in_parts(state: Any) -> Any:
    return type(state)(*(list(field.split(100)) for field in state))


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-13), ("float32", 2e-5)])
@pytest.mark.parametrize("name", sorted(RULES))
def test_a_kernel_equals_its_rule(name: str, dtype: str, tolerance: float):
    ops, rule = torch_ops("cpu", dtype), RULES[name]
    rng = np.random.default_rng(0)
    param = ops.asarray(rng.normal(size=257))
    fused, state = param.clone(), rule.init(ops, param)
    fused_state = rule.init(ops, param)
    values = {**rule.complete({"learning_rate": 0.03}), "schedule": 1.0}
    for step in range(1, 30):
        grad = ops.asarray(rng.normal(size=257) * 10.0 ** rng.uniform(-3, 3, 257))
        hyper = {**values, "step": float(step)}
        param, state = rule.update(
            ops, grad, state, param, {key: ops.asarray(np.array([value])) for key, value in hyper.items()}
        )
        number = torch.tensor(float(step))
        given = list(fused.split(100)), list(grad.split(100)), in_parts(fused_state)
        NATIVE[name].step(*given, hyper, number)
        torch.testing.assert_close(fused, param, rtol=tolerance, atol=tolerance)
    for one, other in zip(fused_state, state, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("lanes", "worth"), [(1, 1), (1, 4096), (2, 1)], ids=["leaf by leaf", "one buffer", "lanes"]
)
@pytest.mark.parametrize("basis", [True, False])
@pytest.mark.parametrize("name", sorted(RULES))
def test_the_kernel_equals_jaxs_rule(
    name: str, basis: bool, lanes: int, worth: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(torch_segment, "MIN_MEAN_LEAF_ENTRIES", worth)
    monkeypatch.setattr(torch_engine, "MIN_FUSED_ENTRIES", 1)
    made = engine("torch", "float64")
    same(on_jax(name, basis, lanes), execute(runs(name, basis, lanes), made), 1e-9)
    assert made.notes == [f"{name}: {NATIVE[name].kernel} updates single runs"]


@lru_cache(maxsize=2)  # the ways of one kernel are tested one after the other
def on_jax(name: str, basis: bool, lanes: int) -> Trajectories:
    return execute(runs(name, basis, lanes), engine("jax", "float64"))


def runs(name: str, basis: bool, lanes: int) -> Bundle:
    """Return a bundle of `lanes` seeds x `lanes` learning rates."""
    seeds, rates = (3, 4)[:lanes], (0.02, 0.01)[:lanes]
    return make_bundle(rule=RULES[name], seeds=seeds, rates=rates, basis=basis, steps=40)


@pytest.mark.parametrize("name", sorted(RULES))
def test_another_rule_of_the_same_name_has_no_kernel(name: str):
    def update(ops: Any, grad: Any, state: Any, param: Any, hyper: Any) -> Any:
        return RULES[name].update(ops, -grad, state, param, hyper)

    assert native_of(RULES[name]) is NATIVE[name]
    assert native_of(dataclasses.replace(RULES[name], update=update)) is None


def test_the_rule_runs_where_the_kernel_does_not_apply():
    """With epsilon 0 an entry without gradient stays; the kernel would divide 0 by 0."""
    rule = optimizers.rules()["adam"]
    bundle = make_bundle(rule=rule, seeds=(3,), rates=(0.02,))
    bundle = dataclasses.replace(bundle, hyperparameters={**bundle.hyperparameters, "epsilon": np.zeros(1)})
    made = engine("torch", "float64")
    result = execute(bundle, made)
    assert made.notes == ["adam: eager updates; there are too few entries to compile for"]
    assert np.isfinite(result.metrics["train_loss"]).all()


@pytest.mark.parametrize(
    ("device", "worth", "entries", "steps", "few"),
    [
        ("cpu", None, 20_000_000, 50, "entries"),
        ("cpu", None, 20_000_000, 60, None),
        ("meta", None, 20_000_000, 20_000, "steps"),
        ("meta", None, 1, 50_000, None),
        ("meta", 1 << 62, 1, 50_000, "entries"),
        ("cpu", 1 << 62, 1, None, None),
    ],
)
def test_updates_are_compiled_where_a_run_is_long_enough(
    device: str, worth: int | None, entries: int, steps: int | None, few: str | None
):
    made = TorchEngine("float32", device, worth_compiling=worth)
    assert made._too_few(entries, steps) == few


def test_the_kernel_of_a_fallback_rule_has_its_share_of_the_learning_rate(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch_engine, "MIN_FUSED_ENTRIES", 1)
    rule, paths, schedule = optimizers.rules()["muon"], [], np.linspace(1.0, 0.5, 40)
    for ratio in (0.3, 1.0):
        bundle = make_bundle(rule=rule, seeds=(3,), rates=(0.02,), schedule=schedule, steps=40)
        numbers = {**bundle.hyperparameters, "others_ratio": np.full(1, ratio)}
        bundle, made = dataclasses.replace(bundle, hyperparameters=numbers), engine("torch", "float64")
        paths.append(execute(bundle, made))
        same(execute(bundle, engine("jax", "float64")), paths[-1], 1e-9)
        assert f"adamw: {NATIVE['adamw'].kernel} updates single runs" in made.notes
    assert paths[0].metrics["train_loss"][-1] != paths[1].metrics["train_loss"][-1]


def test_divergence_is_seen_at_its_step():
    bundle = make_bundle(rule=optimizers.rules()["sgd"], seeds=(3,), rates=(1e200,), steps=40)
    jax_run, torch_run = (execute(bundle, engine(backend, "float64")) for backend in ("jax", "torch"))
    assert torch_run.diverged_at[0, 0] == jax_run.diverged_at[0, 0] > 0


@pytest.mark.parametrize("worth", [1, 4096], ids=["leaf by leaf", "one buffer"])
def test_a_single_leaf_and_transposed_gradients(worth: int, monkeypatch: pytest.MonkeyPatch):
    """One parameter is leaf and buffer at once; the gradient of a transposed use may lie in another order."""
    monkeypatch.setattr(torch_segment, "MIN_MEAN_LEAF_ENTRIES", worth)

    def loss(ops: Any, params: Any, state: Any, batch: Any, noise: Any) -> Any:
        turned = ops.swapaxes(params["first"], 0, 1)  # (3, 4)
        return ops.sum(ops.square(batch["features"][:3, :3] @ turned - 1.0)), state, {}

    bundle = make_bundle(rule=RULES["adam"], seeds=(3,), rates=(0.02,), basis=False, batch_size=None)
    workload = dataclasses.replace(
        bundle.workload,
        loss=loss,
        evaluate=lambda ops, params, state, split: {"loss": loss(ops, params, state, split, {})[0]},
    )
    problem = dataclasses.replace(
        bundle.problems[0], parameters={"first": bundle.problems[0].parameters["first"]}
    )
    single = dataclasses.replace(bundle, workload=workload, problems=[problem])
    same(execute(single, engine("jax", "float64")), execute(single, engine("torch", "float64")), 1e-11)
