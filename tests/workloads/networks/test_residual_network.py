"""The residual network: sizes, roles, initial law, torchvision beside it, its workload's data."""

from __future__ import annotations

import math

import numpy as np
import pytest

from curvebench.backends.engine import engine
from curvebench.backends.numpy_ops import numpy_ops
from curvebench.basis_estimation.gradients import sampler
from curvebench.benchmarks.peer_networks import torchvision_network
from curvebench.engine.execution import execute
from curvebench.optimizers import rules
from curvebench.stages.job import sampling_of
from curvebench.stages.parity import bundle_of, prepare
from curvebench.stages.parity_problems import ParityProblem
from curvebench.workloads.fashion import FASHION_RESNET
from curvebench.workloads.idx import read_fashion
from curvebench.workloads.networks.residual_network import ResidualNetwork, residual_logits
from curvebench.workloads.workload import Role
from tests.workloads.cases import (
    assert_near,
    minibatch,
    outputs_state_and_gradients,
    problem_of,
    random_of,
    small,
)
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


def test_the_workloads_own_sizes_are_those_of_its_description():
    settings = FASHION_RESNET.complete({})
    parameters = FASHION_RESNET.sample_parameters(settings, np.random.default_rng(0))
    assert f"d = {sum(value.size for value in parameters.values())}" in FASHION_RESNET.description


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
    [(name, "torch") for name in NETWORKS]
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


# --- the workload --------------------------------------------------------------------------------


def test_splits_are_the_first_images_of_the_standard_parts():
    workload, settings = small("fashion_resnet")
    splits = workload.problem(settings, random_of(0)).splits
    held_out = settings["held_out_examples"]
    places = {"train": ("train", 0), "validation": ("test", 0), "test": ("test", held_out)}
    for name, (part, start) in places.items():
        count = settings["train_examples"] if name == "train" else held_out
        images, labels = (array[start : start + count] for array in read_fashion(part))
        assert np.array_equal(splits[name]["labels"], labels)
        np.testing.assert_allclose(127.5 * (splits[name]["images"] + 1), images[:, None], atol=1e-12)


def test_training_normalizes_by_the_batch_and_evaluation_by_what_ran_before():
    """Loss and likelihood do not read the statistics, which move on; evaluation is by them."""
    workload, problem = problem_of("fashion_resnet")
    ops, batch = numpy_ops(), minibatch(problem)
    assert workload.likelihood is not None
    likely = workload.likelihood.outputs
    moved = {name: value + 0.5 for name, value in problem.state.items()}

    def found(state, batch):
        loss, new, _ = workload.loss(ops, problem.parameters, state, batch, {})
        outputs = likely(ops, problem.parameters, state, batch, {})
        return loss, outputs, new, workload.evaluate(ops, problem.parameters, state, batch)["loss"]

    loss, outputs, new, evaluated = found(problem.state, batch)
    loss_of_moved, outputs_of_moved, new_of_moved, evaluated_of_moved = found(moved, batch)
    assert loss == loss_of_moved
    assert np.array_equal(outputs, outputs_of_moved)
    logs = outputs - np.log(np.exp(outputs).sum(-1, keepdims=True))
    assert loss == pytest.approx(-logs[np.arange(len(logs)), batch["labels"]].mean(), rel=1e-12)
    assert evaluated != evaluated_of_moved
    for name, value in new.items():  # nine tenths of the old are kept
        np.testing.assert_allclose(new_of_moved[name] - value, 0.9 * 0.5, rtol=1e-9)


def test_sampled_gradients_and_runs_in_their_basis_are_equal_on_both_backends():
    """EGOP's gradients at fresh starts, a basis of them, and metrics by running statistics of Adam in it."""
    _, settings = small("fashion_resnet")
    problem = ParityProblem("", "", "fashion_resnet", {**settings, "batch_size": 5}, {"samples": "0.02 d"})
    engines = {backend: engine(backend, "float64") for backend in ("torch", "jax")}
    spec, basis = problem.workload_spec, problem.basis_spec
    prepared = prepare(problem, engines["torch"])
    one = prepared.instance
    gradients, runs = {}, {}
    for backend, made in engines.items():
        sample = sampler(sampling_of(basis, spec, one), made, one.problem, one.random)
        pieces = list(sample(one.problem, one.random))
        gradients[backend] = {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
        runs[backend] = execute(bundle_of(rules()["adam"], prepared), made).metrics
    assert_near(gradients["jax"], gradients["torch"], 1e-10)
    assert_near(runs["jax"], runs["torch"], 1e-10)
    losses = runs["torch"]["train_loss"].ravel()
    assert losses[-1] < losses[0]
