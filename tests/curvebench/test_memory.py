"""Memory of single runs compared with plain loops: live arrays on PyTorch, the compiler's layout on JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import optax
import pytest
import torch

from curvebench.backends.engine import engine
from curvebench.benchmarks import gpu
from curvebench.benchmarks.networks_at_speed import NETWORKS, TimedNetwork, vit
from curvebench.optimizers import rules
from curvebench.workloads.networks.vision_transformer import PlainViT
from tests.curvebench.test_steps_on_device import Peak
from tests.curvebench.toys import begun

STEPS, IMAGES = 2, 2
BETWEEN, WITHIN = 1.05, 1.15  # accepted multiples of the bytes of a plain loop, between steps and at the peak
Loop = Callable[[], None]


def peak_of(run: Loop) -> int:
    """Return the peak of the bytes of all live tensors in `run`, including the data."""
    with Peak() as peak:
        run()
    return peak.bytes


def our_torch(network: TimedNetwork, rule: str) -> Loop:
    """Steps of a rule by the engine."""
    bundle, made = network.bundle(rules()[rule], IMAGES, STEPS), engine("torch", "float32")
    with made.context():
        loaded, inputs, segment = begun(bundle, made, STEPS, STEPS)
    held, constants = [loaded.carry], loaded.constants
    del loaded

    def run() -> None:
        with made.context():
            held[0] = segment(held[0], constants, inputs)

    return run


def plain_torch(network: TimedNetwork, rule: str) -> Loop:
    """Steps of torch.optim: Muon of the weights, as ours, and fused AdamW of all else."""
    ops, problem = engine("torch", "float32").single_run_ops, network.problem(IMAGES)
    params = {name: ops.asarray(value).requires_grad_() for name, value in problem.parameters.items()}
    state = {name: ops.asarray(value) for name, value in problem.state.items()}
    data = {name: ops.asarray(value) for name, value in problem.splits["train"].items()}
    is_matrix = {name: rule == "muon" and network.network.roles[name].kind == "weight" for name in params}
    matrices, others = (
        [params[name] for name in params if is_matrix[name] is each] for each in (True, False)
    )
    optimizers: list[Any] = [torch.optim.AdamW(others, fused=True)]
    optimizers += [torch.optim.Muon(matrices)] if matrices else []

    def run() -> None:
        for number in range(STEPS):
            batch = {name: values[number * IMAGES :][:IMAGES] for name, values in data.items()}
            network.classifier.loss(ops, params, state, batch, {})[0].backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()

    return run


@pytest.mark.parametrize("rule", ["adamw", "muon"])
def test_a_run_on_torch_holds_what_a_plain_loop_holds(rule: str) -> None:
    alive, peaks = {}, {}
    for make in (our_torch, plain_torch):
        before = gpu.alive_bytes("torch")
        run = make(NETWORKS["small_vit"], rule)
        run()  # the first step is recorded, and makes the state of torch.optim
        alive[make], peaks[make] = gpu.alive_bytes("torch") - before, peak_of(run)
        del run
    assert alive[our_torch] <= BETWEEN * alive[plain_torch]
    assert peaks[our_torch] <= WITHIN * peaks[plain_torch]


# XLA copies leaves out of the buffer and holds them from the loss to its gradient: the parameters once more,
# which AdamW's peak shows where activations are fewer than those of 16 images.
@pytest.mark.parametrize(("rule", "images"), [("adamw", 16), ("muon", 4)])
def test_a_run_on_jax_takes_what_a_jitted_loop_of_optax_takes(rule: str, images: int) -> None:
    network, made = (
        vit("memory", PlainViT(4 * 4 * 3, 64, 2, classes=10), side=16, patch=4, heads=2),
        engine("jax", "float32"),
    )
    peer = {"adamw": optax.adamw(1e-4), "muon": optax.contrib.muon(1e-4)}[rule]
    with made.context():
        ours = gpu.our_loop(network, made, rules()[rule], images)
        plain = gpu.plain_jax(network, made, images, peer)
    assert ours.alive_bytes <= BETWEEN * plain.alive_bytes
    assert ours.peak_bytes is not None
    assert plain.peak_bytes is not None
    assert ours.peak_bytes <= WITHIN * plain.peak_bytes
