"""The small networks of the tests against forward passes by hand, and their gradients on two backends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest
import scipy.signal
import scipy.special
import torch

from harness.backends.jax_ops import jax_ops
from harness.backends.numpy_ops import numpy_ops
from harness.backends.torch_ops import torch_ops
from harness.seeding import WorkloadRandom
from tests.harness.networks import SMALL_ATTENTION, SMALL_CONVOLUTION
from workloads.workload import Workload

NETWORKS = (SMALL_CONVOLUTION, SMALL_ATTENTION)
BATCH = 6


@pytest.fixture(autouse=True)
def wide() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def given(workload: Workload) -> tuple[dict[str, np.ndarray], ...]:
    """Parameters, model state, one minibatch and its noise."""
    settings, random = workload.complete({}), WorkloadRandom(workload.name, 2)
    problem = workload.problem(settings, random)
    rng = random("test")
    state = {name: value + rng.random(value.shape) for name, value in problem.state.items()}
    batch = {name: values[:BATCH] for name, values in problem.splits["train"].items()}
    assert workload.noise is not None
    return problem.parameters, state, batch, workload.noise(settings, rng, BATCH)


def softmax(x: np.ndarray) -> np.ndarray:
    return np.exp(x) / np.exp(x).sum(-1, keepdims=True)


def likelihood(logits: np.ndarray, labels: np.ndarray) -> float:
    return float(-np.log(softmax(logits)[np.arange(len(labels)), labels]).mean())


def convolution_by_hand(params: Any, state: Any, images: np.ndarray, keep: Any, training: bool) -> np.ndarray:
    """The logits; in training by the statistics of the batch."""
    hidden = images
    for layer in (1, 2):
        kernel = params[f"kernel{layer}"]
        hidden = np.array(
            [
                [
                    sum(scipy.signal.correlate2d(p, k, "same") for p, k in zip(image, ks, strict=True))
                    for ks in kernel
                ]
                for image in hidden
            ]
        )
        mean, variance = state[f"mean{layer}"], state[f"variance{layer}"]
        if training:
            mean, variance = hidden.mean((0, 2, 3)), hidden.var((0, 2, 3))
        for channel in range(4):
            scaled = (hidden[:, channel] - mean[channel]) / np.sqrt(variance[channel] + 1e-5)
            hidden[:, channel] = scaled * params[f"scale{layer}"][channel] + params[f"shift{layer}"][channel]
        hidden = np.maximum(hidden, 0)
        if layer == 1:
            hidden = hidden.reshape(-1, 4, 4, 2, 4, 2).max((3, 5))
    return (hidden.reshape(-1, 64) * keep) @ params["head_weight"].T + params["head_bias"]


def attention_by_hand(params: Any, images: np.ndarray, keep: np.ndarray) -> np.ndarray:
    def norm(name: str, x: np.ndarray) -> np.ndarray:
        scaled = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
        return scaled * params[f"{name}_scale"] + params[f"{name}_shift"]

    def linear(name: str, x: np.ndarray) -> np.ndarray:
        return x @ params[f"{name}_weight"].T + params[f"{name}_bias"]

    logits = []
    for image, kept in zip(images, keep, strict=True):
        patches = [image[0, i : i + 2, j : j + 2].ravel() for i in range(0, 8, 2) for j in range(0, 8, 2)]
        x = (np.array(patches) @ params["patch"].reshape(8, 4).T + params["position"]) * kept
        query, key, value = (
            linear(f"block1_{part}", norm("block1_norm1", x)) for part in ("query", "key", "value")
        )
        heads = [softmax(query[:, h] @ key[:, h].T / 2) @ value[:, h] for h in (slice(0, 4), slice(4, 8))]
        x = x + linear("block1_output", np.hstack(heads))
        hidden = linear("block1_hidden", norm("block1_norm2", x))
        x = x + linear("block1_result", hidden * scipy.special.ndtr(hidden))
        logits.append(linear("head", norm("norm", x).mean(0)))
    return np.array(logits)


def test_they_are_small() -> None:
    sizes = [sum(value.size for value in given(workload)[0].values()) for workload in NETWORKS]
    assert sizes == [846, 866]


@pytest.mark.parametrize("workload", NETWORKS, ids=lambda workload: workload.name)
def test_every_parameter_has_a_role_and_every_draw_is_fresh(workload: Workload) -> None:
    params, *_ = given(workload)
    assert list(workload.roles({})) == list(params)
    assert workload.noise is not None
    rng = np.random.default_rng(4)
    first, second = workload.noise({}, rng, 5), workload.noise({}, rng, 5)
    for name, values in first.items():
        assert len(values) == 5
        assert not np.array_equal(values, second[name])


def test_the_convolution_sees_moved_images_and_keeps_running_statistics() -> None:
    params, state, batch, noise = given(SMALL_CONVOLUTION)
    margin = np.pad(batch["images"], ((0, 0), (0, 0), (1, 1), (1, 1)))
    images = np.zeros_like(batch["images"])
    for image, (rows, columns) in enumerate(zip(noise["rows"], noise["columns"], strict=True)):
        flipped = columns[0] > columns[-1]
        top, left = rows[0], columns.min()
        window = margin[image, 0, top : top + 8, left : left + 8]
        images[image, 0] = window[:, ::-1] if flipped else window
    expected = likelihood(convolution_by_hand(params, state, images, noise["keep"], True), batch["labels"])
    first = np.array(
        [
            [scipy.signal.correlate2d(image[0], kernel[0], "same") for kernel in params["kernel1"]]
            for image in images
        ]
    )
    loss, new_state, _ = SMALL_CONVOLUTION.loss(numpy_ops(), params, state, batch, noise)
    np.testing.assert_allclose(loss, expected, rtol=1e-12)
    np.testing.assert_allclose(new_state["mean1"], 0.9 * state["mean1"] + 0.1 * first.mean((0, 2, 3)))
    np.testing.assert_allclose(new_state["variance1"], 0.9 * state["variance1"] + 0.1 * first.var((0, 2, 3)))
    assert set(new_state) == set(state)


def test_the_convolution_is_evaluated_by_the_running_statistics_without_noise() -> None:
    params, state, batch, _ = given(SMALL_CONVOLUTION)
    logits = convolution_by_hand(params, state, batch["images"], 1.0, False)
    found = SMALL_CONVOLUTION.evaluate(numpy_ops(), params, state, batch)
    np.testing.assert_allclose(found["loss"], likelihood(logits, batch["labels"]), rtol=1e-12)
    np.testing.assert_allclose(found["accuracy"], (logits.argmax(1) == batch["labels"]).mean())


def test_attention_equals_a_forward_pass_by_hand() -> None:
    params, state, batch, noise = given(SMALL_ATTENTION)
    logits = attention_by_hand(params, batch["images"], noise["keep"])
    loss = SMALL_ATTENTION.loss(numpy_ops(), params, state, batch, noise)[0]
    np.testing.assert_allclose(loss, likelihood(logits, batch["labels"]), rtol=1e-12)
    whole = attention_by_hand(params, batch["images"], np.ones((BATCH, 16, 8)))
    found = SMALL_ATTENTION.evaluate(numpy_ops(), params, state, batch)
    np.testing.assert_allclose(found["loss"], likelihood(whole, batch["labels"]), rtol=1e-12)


@pytest.mark.parametrize("workload", NETWORKS, ids=lambda workload: workload.name)
def test_backends_agree_on_loss_state_and_gradient(workload: Workload) -> None:
    everything = given(workload)
    expected, expected_state, _ = workload.loss(numpy_ops(), *everything)
    gradients = []
    for ops, transform in (
        (jax_ops("float64"), lambda f: jax.jit(jax.value_and_grad(f, has_aux=True))),
        (torch_ops("cpu", "float64"), lambda f: swapped(torch.func.grad_and_value(f, has_aux=True))),
    ):
        params, state, batch, noise = (
            {name: ops.asarray(value) for name, value in arrays.items()} for arrays in everything
        )
        (loss, new_state), grads = transform(
            lambda p, ops=ops, rest=(state, batch, noise): workload.loss(ops, p, *rest)[:2]
        )(params)
        np.testing.assert_allclose(ops.to_numpy(loss), expected, rtol=1e-12)
        for name, value in expected_state.items():
            np.testing.assert_allclose(ops.to_numpy(new_state[name]), value, rtol=1e-11)
        gradients.append({name: ops.to_numpy(value) for name, value in grads.items()})
    for name, ours in gradients[0].items():
        assert np.linalg.norm(ours) > 1e-14 or name.endswith("key_bias"), name  # a key's bias cancels
        np.testing.assert_allclose(ours, gradients[1][name], rtol=0, atol=1e-11, err_msg=name)


def swapped(function: Any) -> Any:
    """PyTorch's (gradient, value) in the order of JAX."""
    return lambda params: function(params)[::-1]


@pytest.mark.parametrize("workload", NETWORKS, ids=lambda workload: workload.name)
def test_lanes_map(workload: Workload) -> None:
    ops = torch_ops("cpu", "float64")
    lanes = [given(workload), given(workload)]
    for value in lanes[1][0].values():
        value *= 0.9
    stacked = [
        {name: ops.asarray(np.stack([one[name], two[name]])) for name in one}
        for one, two in zip(*lanes, strict=True)
    ]
    losses = torch.func.vmap(lambda *inputs: workload.loss(ops, *inputs)[0])(*stacked)
    alone = [workload.loss(numpy_ops(), *lane)[0] for lane in lanes]
    np.testing.assert_allclose(losses, alone, rtol=1e-12)
    assert alone[0] != alone[1]
