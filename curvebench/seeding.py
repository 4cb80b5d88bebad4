"""Random generators by named axes, equal by value on every backend."""

from __future__ import annotations

import hashlib

import numpy as np

from curvebench.workloads.workload import Random


def generator(*axes: str | int) -> np.random.Generator:
    """The generator of a point on named axes, such as `("digits_mlp", 1003, "order")`.

    Different axes give independent streams (`numpy.random.SeedSequence`); equal ones the same stream
    on every machine and backend.
    """
    digest = hashlib.sha256("\x1f".join(f"{type(axis).__name__}:{axis}" for axis in axes).encode()).digest()
    return np.random.Generator(
        np.random.PCG64(np.random.SeedSequence(np.frombuffer(digest, np.uint32).tolist()))
    )


class WorkloadRandom:
    """The generators that a workload draws one problem from (the `Random` protocol of workloads)."""

    def __init__(self, workload: str, seed: int) -> None:
        self._workload, self.seed = workload, seed

    def __call__(self, purpose: str, shared: bool = False) -> np.random.Generator:
        """A fresh generator for a purpose; `shared` gives every seed the same one."""
        return generator(self._workload, "shared" if shared else self.seed, purpose)


def batch_order(
    random: Random, examples: int, batch_size: int, steps: int, purpose: str = "order"
) -> np.ndarray:
    """Indices of the minibatches of each step, shape (steps, batch_size), int32: a long run has many.

    Every epoch is a fresh permutation cut into whole batches; what is left over is not used in it.

    Raises:
        ValueError: when a batch is larger than the data.
    """
    if batch_size > examples:
        raise ValueError(f"batch_size = {batch_size} is larger than the {examples} training examples")
    rng = random(purpose)
    per_epoch = examples // batch_size
    epochs = -(-steps // per_epoch)
    kept = per_epoch * batch_size
    order = np.concatenate([rng.permutation(examples)[:kept].astype(np.int32) for _ in range(epochs)])
    return order.reshape(-1, batch_size)[:steps]
