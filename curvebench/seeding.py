"""Random generators that are identified by names and numbers, with equal values on every backend."""

from __future__ import annotations

import hashlib

import numpy as np

from curvebench.workloads.workload import Random


def generator(*axes: str | int) -> np.random.Generator:
    """Return the random generator for a list of names and numbers, such as `("digits_mlp", 1003, "order")`.

    Different lists give statistically independent generators (`numpy.random.SeedSequence`). Equal lists give
    the same numbers on every machine.
    """
    digest = hashlib.sha256("\x1f".join(f"{type(axis).__name__}:{axis}" for axis in axes).encode()).digest()
    return np.random.Generator(
        np.random.PCG64(np.random.SeedSequence(np.frombuffer(digest, np.uint32).tolist()))
    )


class WorkloadRandom:
    """Source of the random generators of one problem: implements the `Random` protocol of workloads.

    Args:
        workload: name of the workload.
        seed: seed of the problem.
    """

    def __init__(self, workload: str, seed: int) -> None:
        self._workload, self.seed = workload, seed

    def __call__(self, purpose: str, shared: bool = False) -> np.random.Generator:
        """Return a new generator for a purpose. With `shared`, it is the same for all seeds."""
        return generator(self._workload, "shared" if shared else self.seed, purpose)


def batch_order(
    random: Random, examples: int, batch_size: int, steps: int, purpose: str = "order"
) -> np.ndarray:
    """Return the indices of the examples in the minibatches of all steps, int32, shape (steps, batch_size).

    Every epoch is a new permutation, cut into minibatches. The examples of an incomplete last minibatch are
    not used in that epoch. The order of a long run is large, hence the 32 bits.

    Args:
        random: source of generators.
        examples: number of training examples.
        batch_size: examples in a minibatch.
        steps: number of minibatches.
        purpose: purpose for which the generator is requested.

    Raises:
        ValueError: if a minibatch is larger than the training set.
    """
    if batch_size > examples:
        raise ValueError(f"batch_size = {batch_size} is larger than the {examples} training examples")
    rng = random(purpose)
    per_epoch = examples // batch_size
    epochs = -(-steps // per_epoch)
    used = per_epoch * batch_size
    order = np.concatenate([rng.permutation(examples)[:used].astype(np.int32) for _ in range(epochs)])
    return order.reshape(-1, batch_size)[:steps]
