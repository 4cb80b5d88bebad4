"""Algorithms of PyTorch and Optax that are equal to rules of this project, with the necessary settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.optimizers.loops import Hyper

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Oracle:
    """Optimizer of another library.

    Args:
        make: for PyTorch `make(tensors, hyper)`, a list of optimizers; for Optax `make(hyper)`, a
            transformation.
        hyper: values that the equality requires; they replace the entry's values.
        orders: numbers of axes of the parameters that it supports.
        context: context in which it computes in float64.
    """

    make: Callable[..., Any]
    hyper: Hyper = field(default_factory=dict)
    orders: tuple[int, ...] = (0, 1, 2, 4)
    context: Callable[[], AbstractContextManager[Any]] = nullcontext

    def takes(self, params: Arrays) -> Arrays:
        """Return the parameters that it supports."""
        return {name: value for name, value in params.items() if value.ndim in self.orders}


def pytorch_path(oracle: Oracle, params: Arrays, grads: list[Arrays], hyper: Hyper) -> list[Arrays]:
    """Return the path of torch.optim in float64, in the form of `curvebench.replay`."""
    import torch

    tensors = {name: torch.tensor(value, dtype=torch.float64) for name, value in params.items()}
    steppers = oracle.make(list(tensors.values()), hyper)
    path = []
    with oracle.context():
        for grad in grads:
            for name, tensor in tensors.items():
                tensor.grad = torch.tensor(grad[name], dtype=torch.float64)
            for stepper in steppers:
                stepper.step()
            path.append({name: tensor.numpy().copy() for name, tensor in tensors.items()})
    return path


@contextmanager
def jax_float64() -> Iterator[None]:
    """Use float64 in JAX inside the block."""
    import jax

    with jax.enable_x64(True):
        yield


def optax_path(oracle: Oracle, params: Arrays, grads: list[Arrays], hyper: Hyper) -> list[Arrays]:
    """Return the path of Optax in float64. It is not compiled as a whole, which would take longer than its
    steps.
    """
    import jax.numpy as jnp
    import optax

    with jax_float64():
        transformation = oracle.make(hyper)
        values = {name: jnp.asarray(value) for name, value in params.items()}
        state = transformation.init(values)
        path = []
        for grad in grads:
            arrays = {name: jnp.asarray(grad[name]) for name in params}
            updates, state = transformation.update(arrays, state, values)
            values = optax.apply_updates(values, updates)
            path.append({name: np.asarray(value) for name, value in values.items()})
    return path
