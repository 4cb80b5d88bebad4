"""Whole networks on a device: precisions, gradients, no waiting for the host; on a CPU too where it can be.

It imports nothing that plans or reports need: on a machine with a GPU and little else,
`python -m pytest -c /dev/null --rootdir . -m gpu tests/curvebench/test_gpu.py` runs it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from curvebench.backends.engine import engine
from curvebench.benchmarks import gpu, networks_at_speed
from curvebench.benchmarks.networks_at_speed import NETWORKS, SMALL, TimedNetwork
from curvebench.engine.execution import execute
from curvebench.engine.loading import load
from curvebench.optimizers import rules
from curvebench.optimizers.rule import Rule
from curvebench.steps.derivatives import StepEvaluation
from curvebench.workloads.networks.vision_transformer import PlainViT
from tests.curvebench.toys import begun

ON_GPU = pytest.param("gpu", marks=pytest.mark.gpu)
DEVICES = pytest.mark.parametrize("device", ["cpu", ON_GPU])
BOTH = pytest.mark.parametrize("backend", ["torch", "jax"])
BATCH = 8
TINY = networks_at_speed.vit("small_vit", PlainViT(4 * 4 * 3, 32, 1, classes=10), side=8, patch=4, heads=2)
RULES: dict[str, Rule] = {
    "adamw": rules()["adamw"],
    "muon": rules()["muon"].choose({"newton_schulz_precision": "bfloat16"}),
}


def gradients(network: TimedNetwork, backend: str, precision: str, device: str) -> np.ndarray:
    """Return the gradient of a network on the first images, all gradients concatenated, in float64."""
    bundle, made = network.bundle(RULES["adamw"], BATCH, 1), engine(backend, precision, device)
    with made.context():
        loaded = load(bundle, made)
        params = loaded.program.parameters(loaded.carry.coordinates, ())
        batch = {name: values[:BATCH] for name, values in loaded.constants.data.items()}
        arguments: tuple[Any, ...] = (params, loaded.carry.model, batch, {})
        evaluation = partial(StepEvaluation(made, network.workload.loss, per_seed=False), observes=False)
        grads = made.compiled(evaluation, *arguments)(*arguments).gradient
        found = [np.array(made.ops.to_numpy(grads[name]), np.float64).ravel() for name in sorted(grads)]
        return np.concatenate(found)


def error(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))


# A CPU's TF32 is float32. On an H100, JAX's convolutions in TF32 are up to 1.8e-2 off.
BOUNDS = {"float32": (0.0, 1e-4), "tf32": (0.0, 3e-2), "mixed": (1e-4, 0.1), "bfloat16": (1e-4, 0.1)}


@DEVICES
@pytest.mark.parametrize(
    ("name", "backend"),
    [
        *((network.name, "torch") for network in SMALL),
        ("small_vit", "jax"),
        *(pytest.param(name, "jax", marks=pytest.mark.long) for name in ("small_resnet", "small_hiera")),
    ],
)
def test_gradients_are_as_exact_as_the_precision(name: str, backend: str, device: str):
    # four compilations on JAX
    network = TINY if (backend, device) == ("jax", "cpu") else NETWORKS[name]
    exact = gradients(network, "torch", "float64", "cpu")
    errors = {word: error(gradients(network, backend, word, device), exact) for word in BOUNDS}
    for word, (least, most) in BOUNDS.items():
        assert least <= errors[word] < most, errors
    assert errors["float32"] <= errors["tf32"] < errors["mixed"]


@pytest.mark.gpu
def test_tf32_is_used_on_a_gpu_where_it_is_asked_for_alone():
    network = NETWORKS["small_vit"]
    exact = gradients(network, "torch", "float64", "cpu")
    for backend in ("torch", "jax"):
        strict, fast = (
            error(gradients(network, backend, word, "gpu"), exact) for word in ("float32", "tf32")
        )
        assert fast > 10 * strict


@DEVICES
@BOTH
@pytest.mark.parametrize("name", RULES)
def test_a_small_network_trains_in_half_precision(name: str, backend: str, device: str):
    bundle = TINY.bundle(RULES[name], BATCH, 10)
    found = execute(bundle, engine(backend, "bfloat16", device))
    assert not found.diverged_at.any()
    assert np.isfinite(found.metrics["train_loss"]).all()


@pytest.mark.gpu
@pytest.mark.parametrize("network", SMALL, ids=lambda network: network.name)
@pytest.mark.parametrize("name", RULES)
def test_steps_never_wait_for_the_device(name: str, network: TimedNetwork):
    import torch

    made = engine("torch", "mixed", "gpu")
    bundle = network.bundle(RULES[name], BATCH, 4)
    with made.context():
        loaded, inputs, segment = begun(bundle, made, 4)
        carry = segment(loaded.carry, loaded.constants, inputs)
        made.synchronize(carry)
        torch.cuda.set_sync_debug_mode("error")
        try:
            segment(carry, loaded.constants, inputs)
        finally:
            torch.cuda.set_sync_debug_mode("default")


# --- the table -----------------------------------------------------------------------------------


@pytest.mark.slow
@DEVICES
def test_the_table_has_a_row_beside_plain_loops_and_one_for_each_optimizer(
    device: str, capsys: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(NETWORKS, "small_vit", TINY)
    arguments = ["--device", device, "--networks", "small_vit", "--precisions", "mixed", "--backends", "jax"]
    arguments += ["--optimizers", "muon", "--batch-size", "4", "--repetitions", "1"]
    out = tmp_path / "table.jsonl"
    gpu.main([*arguments, "--out", str(out)])
    first, second = map(json.loads, out.read_text().splitlines())
    assert first["measured"] == "adamw over the fastest plain loop"
    assert first["peer"] == "jitted optax"
    assert first["ratio"][0] > 0
    # parameters and two moments in float32
    assert first["alive_bytes_a_parameter"] == pytest.approx(12, rel=0.05)
    assert second["measured"] == "cost of muon"
    capsys.readouterr()
    gpu.main([*arguments, "--out", str(out)])
    assert not capsys.readouterr().out  # measurements in the file are not repeated


def test_each_network_is_timed_in_its_precisions(monkeypatch: pytest.MonkeyPatch):
    timed = []

    def measured(network: TimedNetwork, backend: str, precision: str, *sizes: Any) -> Iterator[Any]:
        timed.append((network.name, backend, precision))
        return iter(())

    monkeypatch.setattr(gpu, "measured", measured)
    gpu.main(["--device", "cpu", "--backends", "jax", "--precisions", "tf32", "mixed"])
    small = ("small_resnet", "small_vit", "small_hiera")
    known = {name: [one for one in NETWORKS[name].precisions if one in ("tf32", "mixed")] for name in small}
    assert timed == [(name, "jax", precision) for name in small for precision in known[name]]
    assert ("small_resnet", "jax", "tf32") in timed
    assert ("small_vit", "jax", "tf32") not in timed
