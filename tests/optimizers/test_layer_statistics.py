"""Statistics of layers against loops over examples, on networks with convolutions, attention and noise."""

from __future__ import annotations

import dataclasses
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from curvebench.arrays.torch_ops import torch_ops
from curvebench.backends.engine import engine
from curvebench.engine.bundle import Bundle
from curvebench.engine.inputs import segment_inputs
from curvebench.engine.loading import load
from curvebench.optimizers.arrays import map_arrays
from curvebench.optimizers.gradient_descent import SGD
from curvebench.optimizers.layer_statistics import layers_need
from curvebench.optimizers.layers import Layer, layers_of
from curvebench.optimizers.options import OptionError
from curvebench.steps.derivatives import DRAWS
from curvebench.steps.program import step_of
from curvebench.steps.update import Work
from curvebench.workloads import workloads
from curvebench.workloads.workload import Likelihood, Role, Workload
from tests.curvebench.engine.test_execution import make_bundle
from tests.curvebench.networks import SMALL_ATTENTION, SMALL_CONVOLUTION

BATCH, SEEDS = 6, 2
Statistics = dict[str, dict[str, np.ndarray]]


def observing(fisher: str) -> Any:
    """Gradient descent that needs the statistics of layers."""
    return dataclasses.replace(
        SGD, needs=(layers_need(fisher),), observe=lambda ops, grad, state, hyper: state
    )


def bundle_of(workload: Workload, fisher: str) -> Bundle:
    settings = workload.complete({"batch_size": BATCH})
    workload, rule = dataclasses.replace(workload, dtype="float64"), observing(fisher)
    lanes = make_bundle(workload, rule, range(SEEDS), (0.1, 0.2), BATCH, basis=False, steps=1, given=settings)
    return dataclasses.replace(lanes, evaluations=1, settings=settings)


def observed(bundle: Bundle, backend: str) -> Statistics:
    """Return the layer statistics of the first step, (S, K, ...) for S seeds and K settings."""
    made = engine(backend, "float64")
    with made.context():
        loaded = load(bundle, made)
        one = step_of(segment_inputs(bundle, made, 0, 1), 0)
        program, carry = loaded.program, loaded.carry
        point = program.point(carry, loaded.constants, one)
        info = program.evaluate(point, carry.model, loaded.constants, one, Work.OBSERVE)
        found: Statistics = map_arrays(lambda value: np.array(made.ops.to_numpy(value)), info.needs["layers"])
        return found


class Recording:
    """A table that keeps what enters each layer and, as a leaf of the graph, what leaves it."""

    def __init__(self, parameters: dict[str, torch.Tensor]) -> None:
        self.ops, self.parameters = torch_ops("cpu", "float64"), parameters
        self.uses: list[tuple[str, torch.Tensor, torch.Tensor]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.ops, name)

    def _kept(self, weight: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        (name,) = [name for name, value in self.parameters.items() if value is weight]
        self.uses.append((name, x.detach(), y))
        return y

    def linear(self, x: torch.Tensor, weight: torch.Tensor, bias: Any = None) -> torch.Tensor:
        return self._kept(weight, x, self.ops.linear(x, weight, bias))

    def linear_layers(self, x: torch.Tensor, weights: list[torch.Tensor]) -> torch.Tensor:
        for weight in weights:
            x = self.linear(x, weight)
        return x

    def conv2d(
        self, x: torch.Tensor, weight: torch.Tensor, stride: int = 1, padding: int = 0
    ) -> torch.Tensor:
        y = self.ops.conv2d(x, weight, stride, padding)
        patches = torch.nn.functional.unfold(x, weight.shape[2:], padding=padding, stride=stride)
        return self._kept(weight, patches.mT, y)


def by_examples(bundle: Bundle, seed: int, fisher: str) -> Statistics:
    """Return the factors A and G of one seed, by loops over examples and rows."""
    problem, workload = bundle.problems[seed], bundle.workload
    assert bundle.orders is not None
    likelihood = workload.likelihood
    assert likelihood is not None
    params = {name: torch.tensor(value, requires_grad=True) for name, value in problem.parameters.items()}
    state = {name: torch.tensor(value) for name, value in problem.state.items()}
    batch = {
        name: torch.tensor(value[bundle.orders[0, seed]]) for name, value in problem.splits["train"].items()
    }
    drawn = {name: torch.tensor(value) for name, value in bundle.draws(seed, 1).items()}
    draws = drawn.pop(DRAWS, None)
    table = Recording(params)
    if fisher.startswith("empirical"):
        value = workload.loss(table, params, state, batch, drawn)[0]
        residuals = [torch.tensor(float(BATCH) if fisher == "empirical" else 1.0)]
    else:
        value = likelihood.outputs(table, params, state, batch, drawn)
        residuals = _residuals(likelihood.family, value.detach(), draws, fisher)
    layers = {layer.weight: layer for layer in layers_of(bundle.layout.shapes, bundle.layout.roles)}
    found: Statistics = {}
    rows: dict[str, int] = {}
    for name, x, y in table.uses:
        if name not in layers:
            continue
        has_bias = layers[name].bias is not None
        a, g, number = np.zeros(()), np.zeros(()), 0
        per_residual = [torch.autograd.grad(value, y, r.to(value), retain_graph=True)[0] for r in residuals]
        for example in range(BATCH):
            for row in x[example].reshape(-1, x.shape[-1]).numpy():
                entering = np.append(row, 1.0) if has_bias else row
                a, number = a + np.outer(entering, entering), number + 1
            for gradient in per_residual:
                own = gradient[example]
                own = own.flatten(1).T if own.ndim == 3 else own.reshape(-1, own.shape[-1])
                for row in own.numpy():
                    g = g + np.outer(row, row) / BATCH
        before = found.get(name, {"inputs": np.zeros(()), "gradients": np.zeros(())})
        found[name] = {"inputs": before["inputs"] + a, "gradients": before["gradients"] + g}
        rows[name] = rows.get(name, 0) + number
    return {name: {**one, "inputs": one["inputs"] / rows[name]} for name, one in found.items()}


def _residuals(family: str, outputs: torch.Tensor, draws: Any, fisher: str) -> list[torch.Tensor]:
    classes = outputs.shape[-1]
    unit = torch.eye(classes, dtype=torch.float64)
    if family == "gaussian":
        return [draws] if fisher == "sampled" else [unit[c].expand_as(outputs) for c in range(classes)]
    p = torch.softmax(outputs, -1)
    if fisher == "sampled":
        return [p - unit[(outputs + draws).argmax(-1)]]
    return [p[..., c : c + 1].sqrt() * (p - unit[c]) for c in range(classes)]


def _with_outputs(workload: Workload) -> Workload:
    """Return a network of the tests with its likelihood, by a loss of which the logits are taken."""
    kept: list[Any] = []

    class Stopped:
        def __init__(self, table: Any) -> None:
            self.table = table

        def __getattr__(self, name: str) -> Any:
            return getattr(self.table, name)

        def log_softmax(self, scores: Any, axis: int) -> Any:
            kept.append(scores)
            return self.table.log_softmax(scores, axis)

    def outputs(ops: Any, params: Any, state: Any, batch: Any, noise: Any) -> Any:
        workload.loss(Stopped(ops), params, state, batch, noise)
        return kept.pop()

    return dataclasses.replace(workload, likelihood=Likelihood(outputs, "categorical"))


NETWORKS = {
    "relu": workloads()["digits_mlp"],
    "linear": workloads()["linear_network"],
    "convolution": _with_outputs(SMALL_CONVOLUTION),
    "attention": _with_outputs(SMALL_ATTENTION),
}


CASES = [*product(NETWORKS, ("empirical", "sampled", "expected")), ("linear", "empirical_of_mean")]
# XLA compiles for 11 s with convolutions, for 16 with attention; test_kfac_curvlinops.py has others.
COMPILED = [("relu", "sampled")]


@pytest.mark.parametrize(
    ("network", "fisher", "backend"),
    [
        pytest.param(
            *case, backend, marks=[pytest.mark.long] if backend == "jax" and case not in COMPILED else []
        )
        for backend in ("jax", "torch")
        for case in CASES
    ],
)
def test_against_examples_one_by_one(network: str, fisher: str, backend: str):
    bundle = bundle_of(NETWORKS[network], fisher)
    together = observed(bundle, backend)
    alone = observed(bundle.subset(slice(1, 2), slice(1, 2)), backend)
    expected = by_examples(bundle, 1, fisher)
    likelihood = NETWORKS[network].likelihood
    assert likelihood is not None
    # a loss of c times the negative log-likelihood has c times its curvature, and c^2 times its squares
    scale = 1 / likelihood.scale if fisher.startswith("empirical") else likelihood.scale
    assert set(together) == set(expected)
    for name, one in expected.items():
        for kind, value in one.items():
            wanted = value * (scale if kind == "gradients" else 1.0)
            for found in (together[name][kind][1, 1], alone[name][kind][0, 0]):
                np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12 * np.abs(wanted).max())


def test_a_weight_that_enters_no_layer_is_named():
    def loss(ops: Any, params: Any, state: Any, batch: Any, noise: Any) -> Any:
        return ops.mean(ops.linear(batch["features"], params["W3"] @ params["W2"] @ params["W1"])), state, {}

    workload = dataclasses.replace(NETWORKS["linear"], loss=loss)
    with pytest.raises(OptionError, match=r"the weight 'W1' never enters ops.linear or ops.conv2d by itself"):
        observed(bundle_of(workload, "empirical"), "jax")


def test_a_bias_that_is_added_elsewhere_is_named():
    workload = NETWORKS["relu"]

    def loss(ops: Any, params: Any, state: Any, batch: Any, noise: Any) -> Any:
        hidden = ops.linear(batch["features"], params["W1"]) + params["b1"]
        return ops.mean(ops.linear(ops.relu(hidden), params["W2"], params["b2"])), state, {}

    with pytest.raises(OptionError, match=r"'W1' .*no bias, .* its bias is 'b1'"):
        observed(bundle_of(dataclasses.replace(workload, loss=loss), "empirical"), "torch")


def test_a_workload_without_a_likelihood_has_only_an_empirical_fisher():
    workload = dataclasses.replace(NETWORKS["relu"], likelihood=None)
    with pytest.raises(OptionError, match=r"fisher: expected .*: the workload does not say how its targets"):
        observed(bundle_of(workload, "expected"), "jax")
    assert set(observed(bundle_of(workload, "empirical"), "jax")) == {"W1", "W2"}


def test_weights_of_one_layer_share_its_biases_in_order():
    shapes = {"q": (4, 3), "k": (4, 3), "bq": (4,), "bk": (4,), "norm": (4,), "head": (2, 4), "b": (2,)}
    kinds: dict[str, Any] = {
        "q": "weight",
        "k": "weight",
        "bq": "bias",
        "bk": "bias",
        "norm": "norm",
        "head": "head",
    }
    roles = {name: Role(kinds.get(name, "bias"), int(name in ("head", "b"))) for name in shapes}
    assert layers_of(shapes, roles) == (
        Layer("q", "bq", (4, 3), 0),
        Layer("k", "bk", (4, 3), 0),
        Layer("head", "b", (2, 4), 1),
    )
    del shapes["bk"]
    with pytest.raises(OptionError, match="the biases bq of layer 0 may belong to each of q, k; give every"):
        layers_of(shapes, roles)


@pytest.mark.parametrize("axes", [(0, None), (None, 0), (1, 0)])
def test_a_tap_of_torch_is_mapped_inside_gradients_and_outside(axes: tuple[int | None, int | None]):
    ops = torch_ops(dtype="float64")
    weight = torch.arange(1.0, 4.0, dtype=torch.float64)
    y, slot = torch.ones(3, 3, dtype=torch.float64), torch.zeros(3, 3, dtype=torch.float64)
    own, other = (
        value if axis is not None else value[0] for value, axis in zip((y, slot), axes, strict=True)
    )

    def total(y: Any, slot: Any) -> Any:
        return (ops.tap(lambda g: g * g, y, slot) * weight).sum()

    of_y, of_slot = torch.func.vmap(torch.func.grad(total, (0, 1)), axes)(own, other)
    assert torch.equal(of_y, weight.expand(3, 3))
    assert torch.equal(of_slot, (weight**2).expand(3, 3))
    of_slot = torch.func.grad(lambda slot: torch.func.vmap(total, axes)(own, slot).sum())(other)
    assert torch.equal(of_slot, (weight**2).expand(3, 3) if axes[1] == 0 else 3 * weight**2)
