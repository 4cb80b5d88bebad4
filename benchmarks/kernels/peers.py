"""Other libraries' steps on the same parameters and gradients: torch.optim, Optax, pytorch_optimizer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from curvebench.backends import BACKENDS
from curvebench.optimizers import rules
from curvebench.optimizers.options import Options
from curvebench.optimizers.rule import Rule

from .case import ReadyCase
from .matrix_peers import TORCH_MATRIX_PEERS, TorchPeer, optax_muon
from .shapes import Shapes
from .steps import LEARNING_RATE, end_to_end, start

# Class and arguments that make a peer take the same step as our rule of that name with its defaults.
TORCH: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "sgd": ("SGD", {}),
    "momentum": ("SGD", {"momentum": 0.9}),
    "adagrad": ("Adagrad", {"eps": 1e-10}),
    "adam": ("Adam", {}),
    "adamw": ("AdamW", {"weight_decay": 0.01}),
}
OPTAX: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "sgd": ("sgd", {}),
    "momentum": ("sgd", {"momentum": 0.9}),
    # Optax adds epsilon inside the root: 0 there is nearer to ours than an equal number.
    "adagrad": ("adagrad", {"initial_accumulator_value": 0.0, "eps": 0.0}),
    "adam": ("adam", {}),
    "adamw": ("adamw", {"weight_decay": 0.01}),
}
Prepare = Callable[[Shapes, str], ReadyCase]  # of shapes and precision


@dataclass(frozen=True)
class Contest:
    """Our step and the step of a peer, which are timed in turn.

    Args:
        step: name of our step.
        backend, precision: of our step.
        peer: name of the peer.
        ours, theirs: prepare the two steps.
        calls: how many calls in a row are one sample.
        steps: how many optimizer steps one sample has.
    """

    step: str
    backend: str
    precision: str
    peer: str
    ours: Callable[[], ReadyCase]
    theirs: Callable[[], ReadyCase]
    calls: int = 1
    steps: int = 1

    @property
    def label(self) -> str:
        """Step, backend and precision, as in tables."""
        return f"{self.step} {self.backend} {self.precision}"


def _torch_peer(name: str, path: str) -> TorchPeer:
    def make(leaves: Mapping[str, Any], rule: Rule) -> list[Any]:
        import torch

        kind, given = TORCH[name]
        return [getattr(torch.optim, kind)(list(leaves.values()), lr=LEARNING_RATE, **given, **{path: True})]

    return TorchPeer(make)


def _optax_step(name: str, shapes: Shapes, dtype: str) -> ReadyCase:
    """A jitted step of Optax that is given its parameters and state to overwrite."""
    import jax
    import jax.numpy as jnp
    import optax

    if name == "muon":
        transformation = optax_muon()
    else:
        function, given = OPTAX[name]
        transformation = getattr(optax, function)(LEARNING_RATE, **given)

    def take(params: Any, state: Any, grads: Any) -> tuple[Any, Any]:
        updates, state = transformation.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    with jax.enable_x64(dtype == "float64"):
        first, slope = start(shapes)
        params = {key: jnp.asarray(array, dtype) for key, array in first.items()}
        grads = {key: jnp.asarray(array, dtype) for key, array in slope.items()}
        state = transformation.init(params)
        step = jax.jit(take, donate_argnums=(0, 1)).lower(params, state, grads).compile()

    def run() -> None:
        nonlocal params, state
        params, state = step(params, state, grads)
        jax.block_until_ready((params, state))

    def result() -> np.ndarray:
        return end_to_end({key: np.asarray(params[key]) for key in shapes})

    return ReadyCase(run, result, lambda: jax.enable_x64(dtype == "float64"))


def peers(optimizer: str, backend: str, options: Options | None = None) -> dict[str, Prepare]:
    """The peers of an optimizer's step on a backend, by label; none for a rule that no library has.

    Args:
        optimizer: a rule's name.
        backend: jax or torch; what no library of JAX has is taken from PyTorch's.
        options: the rule's, of which peers have the cadence.

    Returns:
        `prepare(shapes, dtype) -> ReadyCase` by label; hyperparameters are those of `optimizer_step`,
        but for epsilon, which is the peer's own default where work is amortized.
    """
    if backend == "jax" and (optimizer in OPTAX or optimizer == "muon"):
        return {"optax": partial(_optax_step, optimizer)}
    found: dict[str, TorchPeer] = {}
    if backend == "torch" and optimizer in TORCH:
        found = {f"torch.optim {path}": _torch_peer(optimizer, path) for path in ("fused", "foreach")}
    elif backend in BACKENDS and optimizer in TORCH_MATRIX_PEERS:
        found = dict([TORCH_MATRIX_PEERS[optimizer]])
    return {
        label: partial(peer.prepare, rules()[optimizer].choose(options or {}))
        for label, peer in found.items()
    }
