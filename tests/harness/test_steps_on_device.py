"""Steps on PyTorch ask the device for nothing and send it nothing, and hold no more than they must."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from harness.backends.engine import engine
from harness.backends.torch_engine import TorchEngine
from harness.engine.execution import Bundle, execute, load, stretch_inputs
from harness.engine.program import Carry
from optimizers import rules
from tests.harness.engine.test_execution import make_bundle
from tests.harness.networks import SMALL_ATTENTION, SMALL_CONVOLUTION
from tests.harness.test_executors import bundle_of
from tests.harness.toys import TANH
from workloads.workload import Problem, Workload

# Of momentum and adagrad torch has no kernel for a device of shapes alone.
RULES = ("sgd", "adam", "adamw", "muon", "soap", "shampoo", "adagrad_norm", "nesterov_lookahead")


class _Watch(TorchDispatchMode):  # type: ignore[misc]  # torch has no types here
    """Counts operations by name that read a number, or have an array of the host as an argument."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        arrays = [one for one in pytree.tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
        is_read = function is torch.ops.aten._local_scalar_dense.default
        if is_read or any(one.device.type == "cpu" for one in arrays):
            self.seen[str(function)] += 1
        return function(*args, **(kwargs or {}))


def exchanged(bundle: Bundle, steps: int) -> Counter[str]:
    """What so many steps exchange with a device that has shapes alone, on which no number can be read."""
    made = TorchEngine("float32", "meta", worth_compiling=1 << 62, loss_worth_compiling=np.inf)
    with made.context():
        loaded = load(bundle, made)
        inputs = stretch_inputs(bundle, made, 0, steps)
        # fused kernels take hyperparameters as numbers, which are read once, before the run
        numbers = {name: torch.tensor(values) for name, values in bundle.hyperparameters.items()}
        on_host = loaded.constants._replace(hyper=numbers)
        segment = made.segment(loaded.program, loaded.carry, on_host, inputs, steps)
        with _Watch() as watch:
            segment(loaded.carry, loaded.constants, inputs)
    return watch.seen


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("workload", [SMALL_CONVOLUTION, SMALL_ATTENTION], ids=lambda workload: workload.name)
def test_a_step_exchanges_nothing_with_the_host(workload: Workload, name: str) -> None:
    bundle = bundle_of(workload, rules()[name], (0,), 1)
    few, many = exchanged(bundle, 1), exchanged(bundle, 6)
    assert few == many
    assert few["aten._to_copy.default"] == 2  # the numbers of the steps and the schedule, once


def test_a_constant_of_the_host_is_seen() -> None:
    """The watch of the test above finds what it is there for."""
    bundle = bundle_of(SMALL_ATTENTION, rules()["sgd"], (0,), 1)
    loss = bundle.workload.loss

    def with_constant(ops: Any, params: Any, state: Any, batch: Any, noise: Any) -> Any:
        value, *others = loss(ops, params, state, batch, noise)
        return value + ops.asarray(np.ones(1))[0], *others

    sending = replace(bundle, workload=replace(bundle.workload, loss=with_constant))
    assert exchanged(sending, 6) != exchanged(sending, 1)


# --- memory ----------------------------------------------------------------------------------------

WIDE = 400


def _wide(rule: str) -> Bundle:
    """A single run on a layer so large that all else does not count."""

    def loss(ops: Any, params: Mapping[str, Any], state: Any, batch: Any, noise: Any) -> Any:
        wide = ops.linear(batch["features"], params["wide"])
        return ops.mean(ops.square(ops.linear(ops.tanh(wide), params["head"]))), state, {}

    bundle = make_bundle(rule=rules()[rule], seeds=(0,), rates=(0.01,), basis=False)
    [problem] = bundle.problems
    inputs = problem.splits["train"]["features"].shape[1]
    rng = np.random.default_rng(0)
    parameters = {
        "wide": rng.standard_normal((WIDE * WIDE, inputs)),
        "head": rng.standard_normal((1, WIDE * WIDE)),
    }
    workload = replace(
        TANH,
        loss=loss,
        evaluate=lambda ops, params, state, split: {"loss": loss(ops, params, state, split, {})[0]},
        roles=lambda settings: {name: TANH.roles({})["first"] for name in parameters},
    )
    problems = [Problem(parameters, problem.splits, problem.state)]
    return replace(bundle, workload=workload, problems=problems)


def alive_bytes() -> int:
    """Of the storages of all arrays of torch that anything holds."""
    gc.collect()
    arrays = [one for one in gc.get_objects() if type(one) in (torch.Tensor, torch.nn.Parameter)]
    return sum({one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in arrays}.values())


@pytest.mark.parametrize(("rule", "copies"), [("sgd", 1), ("momentum", 2), ("adamw", 3), ("muon", 2)])
def test_between_steps_parameters_and_state_are_held_once(rule: str, copies: int) -> None:
    """As a plain loop with torch.optim holds them, gradients set to None: AdamW's 12 bytes a parameter."""
    bundle = _wide(rule)
    entries, before, seen = bundle.layout.total, alive_bytes(), []
    execute(bundle, engine("torch", "float32"), progress=lambda steps: seen.append(alive_bytes() - before))
    assert copies <= seen[-1] / (4 * entries) < 1.05 * copies


def test_state_that_cannot_be_written_to_is_copied() -> None:
    """One array twice, one broadcast and the parameters themselves."""
    rule = rules()["adam"]

    def run(init: Any) -> tuple[Carry, Carry]:
        bundle = make_bundle(rule=replace(rule, init=init), seeds=(0,), rates=(0.01,), basis=False)
        made = TorchEngine("float64", "cpu", fused=False)
        with made.context():
            loaded = load(bundle, made)
            inputs = stretch_inputs(bundle, made, 0, 3)
            segment = made.segment(loaded.program, loaded.carry, loaded.constants, inputs, 3)
            return loaded.carry, segment(loaded.carry, loaded.constants, inputs)

    def same_twice(ops: Any, param: Any) -> Any:
        state = rule.init(ops, param)
        return type(state)(state[0], state[0])

    def broadcast(ops: Any, param: Any) -> Any:
        zero = ops.broadcast_to(ops.zeros((1, 1, 1)), param.shape)
        return type(rule.init(ops, param))(zero, zero)

    _, due = run(rule.init)
    for init in (same_twice, broadcast):
        _, found = run(init)
        torch.testing.assert_close(found.coordinates, due.coordinates, rtol=0, atol=0)
        assert found.state[0][0].data_ptr() != found.state[0][1].data_ptr()
