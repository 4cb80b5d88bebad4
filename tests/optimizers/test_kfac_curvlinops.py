"""Factors and inverses of K-FAC compared with curvlinops, on small networks in float64."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import numpy as np
import pytest
import torch
from curvlinops import KFACInverseLinearOperator, KFACLinearOperator
from torch import nn

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.backends.engine import engine
from curvebench.optimizers.kfac import LayerFactors, damped_inverses
from curvebench.optimizers.layer_statistics import layers_need
from curvebench.steps.derivatives import StepEvaluation
from curvebench.steps.layout import layout
from curvebench.workloads.workload import Likelihood, Role

EXAMPLES, CLASSES, DAMPING = 13, 3, 1e-2
FISHERS = {"empirical": "empirical", "expected": "type-2"}
# What our G is multiplied with to be theirs. The mean squared error over N examples and C outputs is
# s = 2 / C times the mean negative log-likelihood; its gradients g make our G, s / N times the sum of g g^T;
# theirs is C / N times the sum of s g (s g)^T, for the gradients s g of the squared errors.
MULTIPLES = {("mse", "empirical"): 2.0}
BALANCED: dict[bool, dict[str, Any]] = {  # whether damping is balanced, and how curvlinops is asked for it
    True: {"damping": DAMPING, "use_heuristic_damping": True},
    False: {"damping": (DAMPING, DAMPING)},
}


@dataclass(frozen=True)
class Network:
    """One network as a module of torch and as a function of our array functions.

    Args:
        module: layers named by their place; a parameter's name is theirs.
        shape: of an example.
        outputs: `outputs(ops, params, state, batch, noise)`.
        kinds: of the layers' weights, by their place.
    """

    module: nn.Sequential
    shape: tuple[int, ...]
    outputs: Any
    kinds: dict[int, Literal["weight", "convolution"]]

    def roles(self) -> dict[str, Role]:
        numbers = {place: number for number, place in enumerate(self.kinds)}
        return {
            name: Role(self.kinds[place] if name.endswith("weight") else "bias", numbers[place])
            for name, _ in self.module.named_parameters()
            for place in [int(name.split(".")[0])]
        }


def _perceptron(ops: Any, params: Any, state: Any, batch: Any, noise: Any) -> Any:
    x = ops.tanh(ops.linear(batch["x"], params["0.weight"], params["0.bias"]))
    x = ops.relu(ops.linear(x, params["2.weight"], params["2.bias"]))
    return ops.linear(x, params["4.weight"], params["4.bias"])


def _convolutions(ops: Any, params: Any, state: Any, batch: Any, noise: Any) -> Any:
    x = ops.relu(ops.conv2d(batch["x"], params["0.weight"], 1, 1))
    x = ops.tanh(ops.conv2d(x, params["2.weight"], 2, 0))
    return ops.linear(ops.reshape(x, (x.shape[0], -1)), params["5.weight"], params["5.bias"])


NETWORKS = {
    "perceptron": Network(
        nn.Sequential(
            *(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 4), nn.ReLU(), nn.Linear(4, CLASSES))
        ).double(),
        (5,),
        _perceptron,
        {0: "weight", 2: "weight", 4: "weight"},
    ),
    "convolutions": Network(
        nn.Sequential(
            *(nn.Conv2d(2, 3, 3, padding=1, bias=False), nn.ReLU()),
            *(nn.Conv2d(3, 4, 2, stride=2, bias=False), nn.Tanh()),
            *(nn.Flatten(), nn.Linear(4 * 3 * 2, CLASSES)),
        ).double(),
        (2, 6, 5),
        _convolutions,
        {0: "convolution", 2: "convolution", 5: "weight"},
    ),
}
LIKELIHOODS: dict[str, tuple[Literal["categorical", "gaussian"], float]] = {
    "cross-entropy": ("categorical", 1.0),
    "mse": ("gaussian", 2.0 / CLASSES),  # the mean over outputs too, of twice the negative log-likelihood
}


def loss_of(network: Network, name: str) -> Any:
    """Return the mean loss that torch's module of the same name computes."""

    def loss(ops: Any, params: Any, state: Any, batch: Any, noise: Any) -> Any:
        outputs = network.outputs(ops, params, state, batch, noise)
        if name == "mse":
            return ops.mean(ops.square(outputs - batch["y"])), state, {}
        chosen = ops.take_along_axis(ops.log_softmax(outputs, -1), batch["y"][:, None], axis=-1)
        return -ops.mean(chosen), state, {}

    return loss


def data(network: Network, loss: str) -> tuple[np.ndarray, np.ndarray]:
    """Examples, and their labels or answers."""
    generator = np.random.default_rng(1)
    x = generator.standard_normal((EXAMPLES, *network.shape))
    if loss == "mse":
        return x, generator.standard_normal((EXAMPLES, CLASSES))
    return x, generator.integers(0, CLASSES, EXAMPLES)


@pytest.mark.parametrize(
    ("name", "loss", "fisher", "backend"),
    [
        *((*case, "torch") for case in product(NETWORKS, LIKELIHOODS, FISHERS)),
        ("perceptron", "cross-entropy", "empirical", "jax"),  # JAX compiles for seconds each
        ("convolutions", "mse", "expected", "jax"),
    ],
)
def test_factors_and_directions_are_those_of_curvlinops(name: str, loss: str, fisher: str, backend: str):
    network = NETWORKS[name]
    module = network.module
    family, scale = LIKELIHOODS[loss]
    x, y = data(network, loss)
    params = {key: value.detach().numpy() for key, value in module.named_parameters()}

    made = engine(backend, "float64")
    with made.context():
        ops = made.ops
        likelihood = Likelihood(network.outputs, family, scale)
        lay = layout({key: value.shape for key, value in params.items()}, network.roles())
        evaluate = StepEvaluation(made, loss_of(network, loss), False, likelihood, lay, [layers_need(fisher)])
        lanes = {key: ops.asarray(value[None, None]) for key, value in params.items()}
        found = evaluate(lanes, {}, {"x": ops.asarray(x), "y": ops.asarray(y)}, {}, True)
        ours = {
            place: LayerFactors(
                *(
                    ops.to_numpy(found.needs["layers"][f"{place}.weight"][one])[0, 0]
                    for one in LayerFactors._fields
                )
            )
            for place in network.kinds
        }
        gradient = {key: ops.to_numpy(value)[0, 0] for key, value in found.gradient.items()}

    losses = {"mse": nn.MSELoss(), "cross-entropy": nn.CrossEntropyLoss()}
    theirs = KFACLinearOperator(
        module,
        losses[loss],
        list(module.parameters()),
        [(torch.tensor(x), torch.tensor(y))],
        check_deterministic=False,
        fisher_type=FISHERS[fisher],
        separate_weight_and_bias=False,
    )
    theirs.compute_kronecker_factors()
    held = theirs.state_dict()
    multiple = MULTIPLES.get((loss, fisher), 1.0)
    for place, (inputs, gradients) in ours.items():
        ours[place] = LayerFactors(inputs, multiple * gradients)
        for own, key in zip(ours[place], ("input_covariances", "gradient_covariances"), strict=True):
            np.testing.assert_allclose(own, held[key][str(place)].numpy(), rtol=1e-11, atol=1e-13)

    given = [torch.tensor(gradient[key]) for key in params]
    for balanced, options in BALANCED.items():
        inverse = KFACInverseLinearOperator(theirs, **options)
        natural = dict(zip(params, inverse @ given, strict=True))
        for place, factors in ours.items():
            weight, bias = f"{place}.weight", f"{place}.bias"
            joined = gradient[weight].reshape(len(gradient[weight]), -1)
            other = natural[weight].numpy().reshape(joined.shape)
            if bias in params:
                joined = np.column_stack([joined, gradient[bias]])
                other = np.column_stack([other, natural[bias].numpy()])
            inverses = damped_inverses(numpy_ops(), factors, np.full((1, 1), DAMPING), balanced)
            own = inverses.gradients @ joined @ inverses.inputs
            assert np.abs(own - other).max() < 1e-10 * np.abs(other).max()
