"""Steps on PyTorch ask the device for nothing and send it nothing, and hold no more than they must."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from curvebench.backends.engine import engine
from curvebench.backends.torch_engine import TorchEngine
from curvebench.benchmarks.gpu import alive_bytes
from curvebench.engine.bundle import Bundle
from curvebench.engine.execution import execute
from curvebench.engine.inputs import segment_inputs
from curvebench.engine.loading import load
from curvebench.optimizers import rules
from curvebench.steps import update
from curvebench.steps.program import Carry
from curvebench.workloads.workload import Problem, Role, Workload
from tests.curvebench.engine.test_execution import make_bundle
from tests.curvebench.networks import SMALL_ATTENTION, SMALL_CONVOLUTION
from tests.curvebench.test_executors import bundle_of
from tests.curvebench.toys import TANH, advanced, begun

# Torch has no kernels of momentum and adagrad for the device `meta`, whose tensors have no values.
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
    """Count the transfers between host and device in a number of steps.

    The device is PyTorch's `meta`, whose tensors have shapes but no values, so that reading a number raises.
    """
    made = TorchEngine("float32", "meta", worth_compiling=1 << 62, loss_worth_compiling=np.inf)
    with made.context():
        loaded = load(bundle, made)
        inputs = segment_inputs(bundle, made, 0, steps)
        # fused kernels take hyperparameters as numbers, which are read once, before the run
        numbers = {name: torch.tensor(values) for name, values in bundle.hyperparameters.items()}
        on_host = replace(loaded, constants=loaded.constants._replace(hyper=numbers))
        segment = made.segment(on_host, inputs, steps)
        with _Watch() as watch:
            segment(loaded.carry, loaded.constants, inputs)
    return watch.seen


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("workload", [SMALL_CONVOLUTION, SMALL_ATTENTION], ids=lambda workload: workload.name)
def test_a_step_exchanges_nothing_with_the_host(workload: Workload, name: str):
    bundle = bundle_of(workload, rules()[name], (0,), 1)
    few, many = exchanged(bundle, 1), exchanged(bundle, 6)
    assert few == many
    assert few["aten._to_copy.default"] == 2  # the numbers of the steps and the schedule, once


# --- memory ----------------------------------------------------------------------------------------

WIDE, DEEP = 200, 4


def _wide(rule: str) -> Bundle:
    """Return a bundle of a single run on layers so wide that only their weights matter for memory."""

    def value(ops: Any, params: Mapping[str, Any], batch: Any) -> Any:
        hidden = batch["features"]
        for weight in params.values():
            hidden = ops.tanh(ops.linear(hidden, weight))
        return ops.mean(ops.square(hidden))

    bundle = make_bundle(rule=rules()[rule], seeds=(0,), rates=(0.01,), basis=False)
    [problem] = bundle.problems
    inputs = problem.splits["train"]["features"].shape[1]
    shapes = [(WIDE, inputs), *[(WIDE, WIDE)] * DEEP]
    rng = np.random.default_rng(0)
    parameters = {
        f"weight{number}": rng.standard_normal(shape) / np.sqrt(shape[1])
        for number, shape in enumerate(shapes)
    }
    workload = replace(
        TANH,
        loss=lambda ops, params, state, batch, noise: (value(ops, params, batch), state, {}),
        evaluate=lambda ops, params, state, split: {"loss": value(ops, params, split)},
        roles=lambda settings: {name: Role("weight", number) for number, name in enumerate(parameters)},
    )
    problems = [Problem(parameters, problem.splits, problem.state)]
    return replace(bundle, workload=workload, problems=problems)


@pytest.mark.parametrize(("rule", "copies"), [("sgd", 1), ("momentum", 2), ("adamw", 3), ("muon", 2)])
def test_between_steps_parameters_and_state_are_held_once(rule: str, copies: int):
    """As a plain loop with torch.optim holds them, gradients set to None: AdamW's 12 bytes a parameter."""
    bundle = _wide(rule)
    entries, before, seen = bundle.layout.total, alive_bytes("torch"), []

    def look(steps: int) -> None:
        seen.append(alive_bytes("torch") - before)

    execute(bundle, engine("torch", "float32"), progress=look)
    assert copies <= seen[-1] / (4 * entries) < 1.05 * copies


class Peak(TorchDispatchMode):  # type: ignore[misc]  # torch has no types here
    """Peak of the bytes of all live storages that operations in the context use."""

    def __init__(self) -> None:
        super().__init__()
        self.alive: dict[int, tuple[StorageWeakRef, int]] = {}
        self.bytes = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        for one in pytree.tree_leaves((args, kwargs, found)):
            if isinstance(one, torch.Tensor):
                storage = one.untyped_storage()
                self.alive[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        self.alive = {key: value for key, value in self.alive.items() if not value[0].expired()}
        self.bytes = max(self.bytes, sum(size for _, size in self.alive.values()))
        return found


@pytest.mark.parametrize(("rule", "copies"), [("sgd", 1), ("momentum", 2), ("adamw", 3)])
def test_within_a_step_the_gradient_is_held_once_besides(rule: str, copies: int):
    """No gradient of an earlier step is in memory, as in a plain loop that sets gradients to None."""
    bundle = _wide(rule)
    made = engine("torch", "float32")
    with made.context():
        loaded, inputs, segment = begun(bundle, made, 3, 3)
        carry = segment(loaded.carry, loaded.constants, inputs)  # the first step is recorded
        with Peak() as peak:
            segment(carry, loaded.constants, inputs)
    assert copies + 1 <= peak.bytes / (4 * bundle.layout.total) < 1.15 * (copies + 1)


@pytest.mark.parametrize("rule", ["muon", "soap"])
def test_large_leaves_that_are_alike_are_updated_a_few_at_once(rule: str, monkeypatch: pytest.MonkeyPatch):
    bundle = _wide(rule)
    together = execute(bundle, engine("torch", "float64"))
    pieces = len(bundle.update.groups)
    monkeypatch.setattr(update, "ENTRIES_AT_ONCE", 3 * WIDE * WIDE)
    few = replace(bundle)
    assert len(few.update.groups) == pieces + 1  # 3 and 1 of the 4
    found = execute(few, engine("torch", "float64"))
    for name, values in together.metrics.items():
        np.testing.assert_allclose(found.metrics[name], values, rtol=1e-9, err_msg=name)


def test_state_that_cannot_be_written_to_is_copied():
    """One array twice, one broadcast and the parameters themselves."""
    rule = rules()["adam"]

    def run(init: Any) -> Carry:
        bundle = make_bundle(rule=replace(rule, init=init), seeds=(0,), rates=(0.01,), basis=False)
        made = TorchEngine("float64", "cpu", fused=False)
        with made.context():
            return advanced(bundle, made, 3)[1]

    def same_twice(ops: Any, param: Any) -> Any:
        state = rule.init(ops, param)
        return type(state)(state[0], state[0])

    def broadcast(ops: Any, param: Any) -> Any:
        zero = ops.broadcast_to(ops.zeros((1, 1, 1)), param.shape)
        return type(rule.init(ops, param))(zero, zero)

    due = run(rule.init)
    for init in (same_twice, broadcast):
        found = run(init)
        torch.testing.assert_close(found.coordinates, due.coordinates, rtol=0, atol=0)
        assert found.state[0][0].data_ptr() != found.state[0][1].data_ptr()
