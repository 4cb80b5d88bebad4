"""Random generators whose seeds are names, such as workload, seed and purpose.

Everything random is drawn on the host, by NumPy, so that all backends get equal values.
"""

from __future__ import annotations

import hashlib

import numpy as np

from curvebench.workloads.arguments import Random


def generator(*axes: str | int) -> np.random.Generator:
    """Return the random generator that belongs to a sequence of names and numbers.

    Equal sequences give equal random numbers on every machine; different sequences give independent random
    numbers, since a hash of the sequence seeds `numpy.random.SeedSequence`.

    Args:
        axes: the names and numbers, such as workload, seed and purpose: `"digits_mlp", 1003, "order"`.
    """
    digest = hashlib.sha256("\x1f".join(f"{type(axis).__name__}:{axis}" for axis in axes).encode()).digest()
    seed = np.random.SeedSequence(np.frombuffer(digest, np.uint32).tolist())
    return np.random.Generator(np.random.PCG64(seed))


class WorkloadRandom:
    """Source of the random generators of one problem: the `Random` that a workload's functions receive.

    Each purpose, such as "data" or "parameters", has a generator of its own, so that a change in the random
    numbers for one purpose does not change the random numbers for other purposes.

    Args:
        workload: name of the workload.
        seed: seed of the problem.

    Example:
        >>> from curvebench import WorkloadRandom
        >>> random = WorkloadRandom("least_squares", seed=3)
        >>> bool(random("data").normal() == random("data").normal())
        True
        >>> bool(random("data").normal() == random("parameters").normal())
        False
    """

    def __init__(self, workload: str, seed: int) -> None:
        self._workload, self.seed = workload, seed

    def __call__(self, purpose: str, shared: bool = False) -> np.random.Generator:
        """Return a new random generator.

        Args:
            purpose: purpose of the random numbers, such as "data". Each call with the same purpose returns a
                generator with the same random numbers.
            shared: whether the random numbers are the same for every seed of the problem.
        """
        return generator(self._workload, "shared" if shared else self.seed, purpose)


def batch_order(
    random: Random, examples: int, batch_size: int, steps: int, purpose: str = "order"
) -> np.ndarray:
    """Return the indices of the examples in the minibatch of each step, shape (steps, batch_size).

    For every epoch, the examples are permuted anew and divided into whole minibatches. The remaining examples
    are not used in that epoch. The indices have the type int32, which takes half the memory of int64.

    Args:
        random: source of random generators.
        examples: number of training examples.
        batch_size: number of examples in a minibatch.
        steps: number of steps.
        purpose: purpose for which `random` returns the generator.

    Raises:
        ValueError: when `batch_size` is larger than `examples`.
    """
    if batch_size > examples:
        raise ValueError(f"batch_size = {batch_size} is larger than the {examples} training examples")
    rng = random(purpose)
    per_epoch = examples // batch_size
    epochs = -(-steps // per_epoch)
    used = per_epoch * batch_size
    order = np.concatenate([rng.permutation(examples)[:used].astype(np.int32) for _ in range(epochs)])
    return order.reshape(-1, batch_size)[:steps]
