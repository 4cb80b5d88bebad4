"""Independent references: each rule as a plain NumPy loop in float64, from PyTorch and from Optax."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]
Hyper = Mapping[str, float]


# --- plain loops, one parameter at a time, every hyperparameter given -------------------------------


def sgd(w: np.ndarray, grads: list[np.ndarray], hyper: Hyper) -> Iterator[np.ndarray]:
    for g in grads:
        w = w - hyper["learning_rate"] * g
        yield w


def momentum(w: np.ndarray, grads: list[np.ndarray], hyper: Hyper) -> Iterator[np.ndarray]:
    for t in range(len(grads)):
        # the velocity written out: sum of mu^(t-l) g_l
        v = sum(hyper["momentum"] ** (t - past) * grads[past] for past in range(t + 1))
        w = w - hyper["learning_rate"] * v
        yield w


def adagrad(w: np.ndarray, grads: list[np.ndarray], hyper: Hyper) -> Iterator[np.ndarray]:
    total = np.full(w.shape, hyper["initial_accumulator"])
    for g in grads:
        total = total + g * g
        w = w - hyper["learning_rate"] * g / (np.sqrt(total) + hyper["epsilon"])
        yield w


def adamw(w: np.ndarray, grads: list[np.ndarray], hyper: Hyper) -> Iterator[np.ndarray]:
    rate, beta1, beta2 = hyper["learning_rate"], hyper["beta1"], hyper["beta2"]
    for t in range(1, len(grads) + 1):
        # the running means written out as weighted means of all gradients so far
        past = np.arange(t - 1, -1, -1)
        weights1, weights2 = beta1**past, beta2**past
        mean = sum(a * g for a, g in zip(weights1, grads, strict=False)) / weights1.sum()
        square = sum(a * g**2 for a, g in zip(weights2, grads, strict=False)) / weights2.sum()
        w = w - rate * hyper.get("weight_decay", 0.0) * w
        w = w - rate * mean / (np.sqrt(square) + hyper["epsilon"])
        yield w


LOOPS: dict[str, Callable[[np.ndarray, list[np.ndarray], Hyper], Iterator[np.ndarray]]] = {
    "sgd": sgd,
    "momentum": momentum,
    "adagrad": adagrad,
    "adam": adamw,
    "adamw": adamw,
}


def loop(optimizer: str, params: Arrays, grads: list[Arrays], hyper: Hyper) -> list[Arrays]:
    """The plain loop on every parameter, in the form of `harness.replay`."""
    paths = {
        name: list(LOOPS[optimizer](value, [g[name] for g in grads], hyper)) for name, value in params.items()
    }
    return [{name: path[step] for name, path in paths.items()} for step in range(len(grads))]


# --- PyTorch -----------------------------------------------------------------------------------------


def torch_optimizer(optimizer: str, hyper: Hyper) -> Callable[[Any], Any]:
    """The class in torch.optim with the settings that make it the same algorithm."""
    import torch

    rate = hyper["learning_rate"]
    betas = (hyper.get("beta1", 0.0), hyper.get("beta2", 0.0))
    made: dict[str, Callable[[Any], Any]] = {
        "sgd": lambda p: torch.optim.SGD(p, lr=rate),
        # dampening 0: the velocity takes the whole gradient
        "momentum": lambda p: torch.optim.SGD(p, lr=rate, momentum=hyper["momentum"], dampening=0.0),
        "adagrad": lambda p: torch.optim.Adagrad(
            p, lr=rate, initial_accumulator_value=hyper["initial_accumulator"], eps=hyper["epsilon"]
        ),
        "adam": lambda p: torch.optim.Adam(p, lr=rate, betas=betas, eps=hyper["epsilon"]),
        "adamw": lambda p: torch.optim.AdamW(
            p, lr=rate, betas=betas, eps=hyper["epsilon"], weight_decay=hyper["weight_decay"]
        ),
    }
    return made[optimizer]


def pytorch(optimizer: str, params: Arrays, grads: list[Arrays], hyper: Hyper) -> list[Arrays]:
    """The path of torch.optim in float64."""
    import torch

    tensors = {name: torch.tensor(value, dtype=torch.float64) for name, value in params.items()}
    stepper = torch_optimizer(optimizer, hyper)(list(tensors.values()))
    path = []
    for grad in grads:
        for name, tensor in tensors.items():
            tensor.grad = torch.tensor(grad[name], dtype=torch.float64)
        stepper.step()
        path.append({name: tensor.numpy().copy() for name, tensor in tensors.items()})
    return path


# --- Optax -------------------------------------------------------------------------------------------


def optax_transformation(optimizer: str, hyper: Hyper) -> Any:
    """The transformation in optax with the settings that make it the same algorithm."""
    import optax

    rate = hyper["learning_rate"]
    moments = {name: hyper.get(long, 0.0) for name, long in (("b1", "beta1"), ("b2", "beta2"))}
    made: dict[str, Callable[[], Any]] = {
        "sgd": lambda: optax.sgd(rate),
        "momentum": lambda: optax.sgd(rate, momentum=hyper["momentum"]),
        # optax adds epsilon inside the root: the same algorithm only at 0
        "adagrad": lambda: optax.adagrad(
            rate, initial_accumulator_value=hyper["initial_accumulator"], eps=0.0
        ),
        # eps_root 0: nothing is added inside the root
        "adam": lambda: optax.adam(rate, **moments, eps=hyper["epsilon"], eps_root=0.0),
        "adamw": lambda: optax.adamw(
            rate, **moments, eps=hyper["epsilon"], eps_root=0.0, weight_decay=hyper["weight_decay"]
        ),
    }
    return made[optimizer]()


@contextmanager
def jax_float64() -> Iterator[None]:
    """JAX in float64, inside only."""
    import jax

    with jax.enable_x64(True):
        yield


def optax_path(optimizer: str, params: Arrays, grads: list[Arrays], hyper: Hyper) -> list[Arrays]:
    """The path of optax in float64."""
    import jax.numpy as jnp
    import optax

    with jax_float64():
        transformation = optax_transformation(optimizer, hyper)
        values = {name: jnp.asarray(value) for name, value in params.items()}
        state = transformation.init(values)
        path = []
        for grad in grads:
            arrays = {name: jnp.asarray(value) for name, value in grad.items()}
            updates, state = transformation.update(arrays, state, values)
            values = optax.apply_updates(values, updates)
            path.append({name: np.asarray(value) for name, value in values.items()})
    return path
