"""Helpers for tests of workloads: small settings, random generators, and gradients on two backends."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from curvebench.arrays.jax_ops import jax_ops
from curvebench.arrays.torch_ops import torch_ops
from curvebench.workloads import photographs, physics_informed, workloads
from curvebench.workloads.arguments import Random
from curvebench.workloads.workload import Problem, Workload

IMAGES = {"folder": "three", "classes": 3, "side": 32, "batch_size": 4}
# Settings that make a test fast, by workload; other workloads use their defaults.
SMALL: Mapping[str, Mapping[str, Any]] = {
    "log_sum_exp": {"n": 12, "d": 7},
    "least_squares": {"n": 7, "d": 12},
    "logistic_regression": {"n": 15, "d": 3},
    "linear_network": {
        "widths": [4, 6, 5, 3],
        "train_examples": 40,
        "validation_examples": 8,
        "test_examples": 12,
        "batch_size": 20,
    },
    **{
        f"teacher_student_{activation}": {"widths": [5, 4, 3], "train_examples": 40, "test_examples": 12}
        for activation in ("linear", "tanh")
    },
    "autoencoder": {"widths": [5, 3]},
    "denoising_diffusion": {"widths": [5, 4]},
    "recurrent": {"length": 4, "width": 3, "train_examples": 50, "validation_examples": 10, "batch_size": 20},
    "noisy_quadratic": {"d": 6, "train_examples": 40},
    "matrix_completion": {"n": 6, "rank": 2, "columns": 3, "batch_size": 8},
    "tensor_factorization": {"n": 4, "rank": 2, "noise": 0.1},
    "phase_retrieval": {"d": 4},
    "conditioned_logistic_regression": {"d": 4, "train_examples": 40, "validation_examples": 20},
    "gaussian_process": {"examples": 12, "inputs": 2},
    "skip_gram": {
        "vocabulary": 12,
        "width": 3,
        "train_examples": 60,
        "validation_examples": 20,
        "batch_size": 20,
    },
    "in_context_regression": {
        "layers": 2,
        "dimension": 2,
        "context": 4,
        "train_examples": 50,
        "validation_examples": 10,
        "batch_size": 20,
    },
    "associative_memory": {"facts": 6, "width": 3, "train_examples": 50},
    "modular_addition": {"modulus": 7, "width": 4, "hidden": 6},
    **{
        workload.name: {"width": 5, "depth": 2, "train_examples": 24, "validation_examples": 15}
        for workload in physics_informed.WORKLOADS
    },
    "heavy_tailed_softmax": {
        "classes": 6,
        "features": 4,
        "train_examples": 50,
        "validation_examples": 30,
    },
    "austen_transformer": {
        "context": 6,
        "width": 16,
        "depth": 1,
        "batch_size": 5,
        "train_examples": 25,
        "validation_examples": 10,
    },
    "table_mlp": {
        "table": "satellite",
        "width": 8,
        "batch_size": 20,
        "train_examples": 60,
        "validation_examples": 20,
    },
    "fashion_vit": {"patch": 14, "width": 32, "depth": 1, "train_examples": 200, "held_out_examples": 20},
    "image_resnet": {**IMAGES, "blocks": [1, 1], "width": 2, "stem": 3},
    "image_vit": {**IMAGES, "patch": 8, "width": 64, "depth": 1},
    "image_hiera": {**IMAGES, "width": 4, "blocks": [1, 1, 1, 1]},
    "cifar10_resnet": {"blocks": [1, 1], "width": 2, "batch_size": 6},
    "errors_in_variables": {"n": 5, "m": 4},
    "matrix_factorization": {"n": 6, "m": 5, "rank": 2, "noise": 0.3},
}
# Workloads of photographs need image files, and have separate tests.
NAMES = sorted(workloads().keys() - {workload.name for workload in photographs.WORKLOADS})


def random_of(seed: int) -> Random:
    """Return a function that makes a generator for a purpose, from a seed."""

    def random(purpose: str, shared: bool = False) -> np.random.Generator:
        return np.random.default_rng([zlib.crc32(purpose.encode()), 0 if shared else seed + 1])

    return random


def small(name: str) -> tuple[Workload, dict[str, Any]]:
    """Return a workload and its small settings, completed."""
    workload = workloads()[name]
    return workload, workload.complete(SMALL.get(name, {}))


def problem_of(name: str, seed: int = 0) -> tuple[Workload, Problem]:
    """Return a workload and its small problem."""
    workload, settings = small(name)
    return workload, workload.problem(settings, random_of(seed))


def minibatch(problem: Problem, examples: int = 40) -> dict[str, np.ndarray]:
    """Return the first training examples."""
    return {field: values[:examples] for field, values in problem.splits["train"].items()}


def noise_of(workload: Workload, batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Draw the noise of one step of a workload, always the same; empty if it takes no noise."""
    if workload.noise is None:
        return {}
    size = len(next(iter(batch.values())))
    return workload.noise(small(workload.name)[1], np.random.default_rng(7), size)


Scalar = Callable[[Mapping[str, np.ndarray]], float]
Gradient = Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]


def loss_in_numpy(ops: Any, workload: Workload, problem: Problem, batch: Mapping[str, np.ndarray]) -> Scalar:
    """Return the loss as a function of NumPy parameters."""
    noise = noise_of(workload, batch)
    return lambda params: float(workload.loss(ops, params, problem.state, batch, noise)[0])


def torch_gradient(workload: Workload, problem: Problem, batch: Mapping[str, np.ndarray]) -> Gradient:
    """Return a function that computes the gradient with torch in float64."""
    import torch

    ops = torch_ops("cpu", "float64")
    state, on_device = _load(ops, problem.state), _load(ops, batch)
    noise = _load(ops, noise_of(workload, batch))
    function = torch.func.grad(lambda params: workload.loss(ops, params, state, on_device, noise)[0])
    return lambda params: {name: ops.to_numpy(x) for name, x in function(_load(ops, params)).items()}


def jax_gradient(workload: Workload, problem: Problem, batch: Mapping[str, np.ndarray]) -> Gradient:
    """Return a function that computes the gradient with jax in float64; it works inside
    `jax.enable_x64(True)`.
    """
    import jax

    ops = jax_ops("float64")
    state, on_device = _load(ops, problem.state), _load(ops, batch)
    noise = _load(ops, noise_of(workload, batch))
    function = jax.jit(jax.grad(lambda params: workload.loss(ops, params, state, on_device, noise)[0]))
    return lambda params: {name: np.asarray(x) for name, x in function(_load(ops, params)).items()}


def agreed_gradient(
    workload: Workload, problem: Problem, batch: Mapping[str, np.ndarray], tolerance: float = 1e-10
) -> tuple[dict[str, np.ndarray], float]:
    """Return torch's gradient and its norm, after checking that jax's is equal relative to the norm."""
    import jax

    by_torch = torch_gradient(workload, problem, batch)(problem.parameters)
    with jax.enable_x64(True):
        by_jax = jax_gradient(workload, problem, batch)(problem.parameters)
    size = float(np.sqrt(sum(np.sum(value**2) for value in by_torch.values())))
    assert size > 0
    for name, value in by_torch.items():
        np.testing.assert_allclose(by_jax[name], value, rtol=1e-10, atol=tolerance * size)
    return by_torch, size


@dataclass(frozen=True)
class Mapper:
    """A backend's array functions, its `vmap`, and its compiler, or the identity if compiling is slower."""

    ops: Any
    vmap: Callable[..., Any]
    compiled: Callable[..., Any]


@contextlib.contextmanager
def mapper(backend: str) -> Iterator[Mapper]:
    """Return the float64 array functions of a backend, and how it maps over runs."""
    if backend == "torch":
        import torch

        yield Mapper(torch_ops("cpu", "float64"), torch.func.vmap, lambda function: function)
    else:
        import jax

        with jax.enable_x64(True):
            yield Mapper(jax_ops("float64"), jax.vmap, jax.jit)


def _load(ops: Any, arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    return {name: ops.asarray(array) for name, array in arrays.items()}


def outputs_state_and_gradients(
    backend: str, network: Callable[..., Any], params: Mapping[str, np.ndarray], direction: np.ndarray
) -> tuple[np.ndarray, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return a network's outputs and new state, and the gradients of the outputs' product with a direction.

    Args:
        backend: jax or torch, in float64.
        network: `network(ops, params) -> (outputs, state)`.
        params: parameters by name.
        direction: array of the outputs' shape.
    """
    if backend == "torch":
        import torch

        ops = torch_ops("cpu", "float64")
        leaves = {name: torch.tensor(value, requires_grad=True) for name, value in params.items()}
        outputs, state = network(ops, leaves)
        ops.sum(outputs * ops.asarray(direction)).backward()
        gradients = {name: leaf.grad for name, leaf in leaves.items()}
        return ops.to_numpy(outputs), _on_host(ops, state), _on_host(ops, gradients)
    import jax

    with jax.enable_x64(True):
        ops = jax_ops("float64")

        def product(params: Any) -> Any:
            outputs, state = network(ops, params)
            return ops.sum(outputs * direction), (outputs, state)

        gradients, (outputs, state) = jax.jit(jax.grad(product, has_aux=True))(dict(params))
        return ops.to_numpy(outputs), _on_host(ops, state), _on_host(ops, gradients)


def _on_host(ops: Any, arrays: Mapping[str, Any]) -> dict[str, np.ndarray]:
    return {name: ops.to_numpy(array) for name, array in arrays.items()}


def assert_near(found: Mapping[str, np.ndarray], due: Mapping[str, np.ndarray], tolerance: float) -> None:
    """Assert that arrays differ by at most `tolerance` times their maximum absolute entry."""
    assert found.keys() == due.keys()
    for name, value in due.items():
        np.testing.assert_allclose(
            found[name], value, rtol=0, atol=tolerance * np.abs(value).max(), err_msg=name
        )
