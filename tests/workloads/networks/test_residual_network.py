"""The residual network: sizes, roles, initial distribution, comparison with torchvision."""

from __future__ import annotations

import math

import numpy as np
import pytest

from curvebench.benchmarks.peer_networks import torchvision_network
from curvebench.workloads.networks.residual_network import ResidualNetwork, residual_logits
from curvebench.workloads.workload import Role
from tests.workloads.cases import assert_near, outputs_state_and_gradients
from tests.workloads.networks import oracles

NETWORKS = {
    "18 layers": ResidualNetwork(3, (2, 2, 2, 2), 64, 1000),
    "34 layers": ResidualNetwork(3, (3, 4, 6, 3), 64, 1000),
    "large stem": ResidualNetwork(3, (1, 2), 6, 5),
    "small stem": ResidualNetwork(1, (1, 2, 1), 6, 5, stem=3),
}
SIDES = {"18 layers": 33, "34 layers": 33, "large stem": 21, "small stem": 13}
LARGE = ("18 layers", "34 layers")
EXAMPLES = 2


def _size(network: ResidualNetwork) -> int:
    return sum(math.prod(shape) for shape in network.shapes.values())


# --- sizes, roles, start -------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "parameters"), [("18 layers", 11_689_512), ("34 layers", 21_797_672)])
def test_known_networks_have_their_number_of_parameters(name, parameters):
    assert _size(NETWORKS[name]) == parameters


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_layers_are_numbered_from_the_stem_to_the_head(network):
    roles = network.roles
    assert list(roles) == list(network.shapes)
    last = 2 * sum(network.blocks) + 1
    layers = {roles[name].layer for name in roles if name.endswith("weight") and "projection" not in name}
    assert layers == set(range(last + 1))
    assert roles["stem_weight"] == Role("convolution", 0)
    assert (roles["head_weight"], roles["head_bias"]) == (Role("head", last), Role("bias", last))
    first = 1 + network.blocks[0]
    of_first = roles[f"block{first}_first_weight"].layer
    assert roles[f"block{first}_projection_weight"] == Role("convolution", of_first)
    assert roles[f"block{first}_second_scale"] == Role("norm", of_first + 1)
    assert "block1_projection_weight" not in roles


def test_the_start_has_torchvisions_law():
    network = NETWORKS["18 layers"]
    sample, theirs = network.sample(np.random.default_rng(0)), torchvision_network(network).double()
    torchs = {name: value.numpy() for name, value in theirs.state_dict().items()}
    for ours, name in oracles.torchvision_names(network).items():
        value, due = {**sample, **network.state}[ours], torchs[name]
        assert value.shape == due.shape
        if np.ptp(due) == 0:  # scales, shifts and running statistics
            assert np.array_equal(value, due)
        else:  # 500 entries or more: a standard error of 3 %, and of the fourth moment 6 %
            spread = np.sqrt(np.mean(due**2))
            assert np.sqrt(np.mean(value**2)) == pytest.approx(spread, rel=0.1)
            assert abs(value.mean()) < 5 * spread / value.size**0.5
            is_uniform = name.startswith("fc")
            assert np.mean((value / spread) ** 4) == pytest.approx(9 / 5 if is_uniform else 3, rel=0.2)


# --- torchvision ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "backend"),
    [pytest.param(name, "torch", marks=[pytest.mark.long] * (name == "34 layers")) for name in NETWORKS]
    # whose convolutions in float64 take a minute here, where they are not optimized
    + [pytest.param(name, "jax", marks=[pytest.mark.long] * (name in LARGE)) for name in NETWORKS],
)
def test_outputs_gradients_and_statistics_are_torchvisions(name, backend):
    """A step in training mode, then evaluation by the statistics after it."""
    network, side = NETWORKS[name], SIDES[name]
    generator = np.random.default_rng(0)
    params = network.sample(generator)
    for key, value in params.items():
        if key.endswith(("scale", "shift")):
            params[key] = value + 0.1 * generator.normal(size=value.shape)
    start = {
        key: np.exp(value) / np.e if key.endswith("variance") else 0.1 * generator.normal(size=value.shape)
        for key, value in network.state.items()
    }
    images = generator.normal(size=(EXAMPLES, network.channels, side, side))
    direction = generator.normal(size=(EXAMPLES, network.classes))

    names = oracles.torchvision_names(network)
    theirs = torchvision_network(network).double()
    oracles.load(theirs, {names[key]: value for key, value in {**params, **start}.items()})
    due = {}
    for training in (True, False):
        theirs.train(training)
        logits, gradients = oracles.outputs_and_gradients(theirs, images, direction)
        statistics = {key: theirs.state_dict()[names[key]].numpy().copy() for key in start}
        due[training] = logits, statistics, {key: gradients[names[key]] for key in params}
    assert not np.allclose(due[True][0], due[False][0])

    state = start
    for training, (logits, statistics, gradients) in due.items():

        def outputs(ops, params, state=state, training=training):
            at = {key: ops.asarray(value) for key, value in state.items()}
            return residual_logits(ops, params, at, ops.asarray(images), training)

        found, state, by_name = outputs_state_and_gradients(backend, outputs, params, direction)
        assert_near({"logits": found}, {"logits": logits}, 1e-10)
        assert_near(state, statistics, 1e-10)
        assert_near(by_name, gradients, 1e-10)
