"""Training of a small network in any precision, for many seeds at once. Gradients are computed in float32.

A lane is one training run; all lanes (seeds) are computed together. B has the eigenvectors, and d the
eigenvalues, of the curvature that the rule `spectral` learns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from curvebench.arrays.numpy_ops import numpy_ops
from curvebench.benchmarks.claims._parts import Random
from curvebench.optimizers import rules
from curvebench.steps.layout import layout, roles_of
from curvebench.steps.update import Update

# Number of inputs, hidden units and classes.
WIDTH = 16
SHAPES = {"first": (WIDTH, WIDTH), "second": (WIDTH, WIDTH)}
EXAMPLES, BATCH = 1024, 64
CHECKPOINTS = 20


@dataclass(frozen=True)
class SeedProblems:
    """Classification problems, one for each seed.

    Args:
        inputs: inputs of the network, (seeds, examples, WIDTH).
        labels: class of each example, (seeds, examples).
        start: initial weights, (seeds, 2, WIDTH, WIDTH), whose values bfloat16 represents exactly.
        order: indices of the examples in each step, (steps, seeds, batch).
    """

    inputs: np.ndarray
    labels: np.ndarray
    start: np.ndarray
    order: np.ndarray


@dataclass(frozen=True)
class Training:
    """Measurements during training, at checkpoints that start with step 0.

    Args:
        steps: number of steps before each checkpoint, (checkpoints,).
        losses: losses over all examples, (checkpoints, seeds).
        defects: maximum of |B^T B - I|_2 over all bases, (checkpoints,).
        values: minimum of all eigenvalues d, (checkpoints,).
    """

    steps: np.ndarray
    losses: np.ndarray
    defects: np.ndarray
    values: np.ndarray


def draw_lanes(random: Random, seeds: int, steps: int) -> SeedProblems:
    """Draw problems with correlated inputs.

    Nine tenths of the labels come from a teacher network; a tenth is random.
    """
    mixing = random.standard_normal((seeds, WIDTH, WIDTH)) * np.geomspace(1, 0.1, WIDTH) / np.sqrt(WIDTH)
    inputs = (random.standard_normal((seeds, EXAMPLES, WIDTH)) @ mixing).astype(np.float32)
    teacher = 3 * random.standard_normal((2, seeds, WIDTH, WIDTH)) / np.sqrt(WIDTH)
    logits = np.tanh(inputs @ teacher[0].swapaxes(-1, -2)) @ teacher[1].swapaxes(-1, -2)
    anew = random.random((seeds, EXAMPLES)) < 0.1
    labels = np.where(anew, random.integers(0, WIDTH, anew.shape), logits.argmax(-1))
    start = rounded(random.standard_normal((seeds, 2, WIDTH, WIDTH)) / np.sqrt(WIDTH))
    return SeedProblems(inputs, labels, start, random.integers(0, EXAMPLES, (steps, seeds, BATCH)))


def loss_and_gradient(
    weights: np.ndarray, inputs: np.ndarray, labels: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean cross-entropy of the logits W_2 tanh(W_1 x), and its gradient.

    The shapes are (seeds,) and (seeds, 2, WIDTH, WIDTH).
    """
    first, second = weights[:, 0], weights[:, 1]
    hidden = np.tanh(inputs @ first.swapaxes(-1, -2))
    logits = hidden @ second.swapaxes(-1, -2)
    logits = logits - logits.max(-1, keepdims=True)
    logarithms = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    chosen = np.take_along_axis(logarithms, labels[..., None], -1)
    error = np.exp(logarithms)
    np.put_along_axis(error, labels[..., None], np.take_along_axis(error, labels[..., None], -1) - 1, -1)
    error = error / inputs.shape[1]
    back = (error @ second) * (1 - hidden**2)
    gradient = np.stack([back.swapaxes(-1, -2) @ inputs, error.swapaxes(-1, -2) @ hidden], 1)
    return -chosen.mean((-2, -1)), gradient


def ops_of(precision: str) -> Any:
    """Return array functions of a precision: NumPy's, or for bfloat16 PyTorch's, which round every result."""
    return torch_ops_of(precision) if precision == "bfloat16" else numpy_ops(precision)


def torch_ops_of(precision: str) -> Any:
    """Return PyTorch's array functions on a CPU. PyTorch is imported only when this is called."""
    from curvebench.arrays.torch_ops import torch_ops

    return torch_ops("cpu", precision)


def train(
    lanes: SeedProblems,
    options: Mapping[str, Any],
    hyper: Mapping[str, float],
    precision: str = "float32",
    weights_in: str = "float32",
) -> Training:
    """Train the lanes with the rule `spectral`, whose learning rate decreases to 0 by a cosine schedule.

    Args:
        lanes: the problems.
        options, hyper: options and hyperparameters of the rule; hyperparameters are rounded to bfloat16 in
            every precision.
        precision: precision of all computations and of the state of the rule.
        weights_in: precision of the weights.
    """
    ops, single = ops_of(precision), numpy_ops("float32")
    rule = rules()["spectral"].choose(options)
    update = Update(rule, layout(SHAPES, roles_of(SHAPES)))
    seeds, steps = len(lanes.start), len(lanes.order)
    start = lanes.start.reshape(seeds, 1, -1)
    state = update.init(ops, ops.asarray(start))
    flat = ops.cast(ops.asarray(start), weights_in)
    numbers = {name: float(rounded(value)) for name, value in rule.complete(hyper).items()}
    given = {name: ops.zeros((1, 1, 1)) + value for name, value in numbers.items()}
    seen: list[tuple[int, np.ndarray, float, float]] = []

    def weights() -> np.ndarray:
        return np.asarray(ops.to_numpy(ops.cast(flat, "float32"))).reshape(lanes.start.shape)

    def look(step: int) -> None:
        losses, _ = loss_and_gradient(weights(), lanes.inputs, lanes.labels)
        seen.append((step, np.where(np.isfinite(losses), losses, np.inf), *_of_spectrum(ops, state)))

    rows = np.arange(seeds)[:, None]
    with np.errstate(all="ignore"):
        look(0)
        for step in range(1, steps + 1):
            batch = lanes.order[step - 1]
            _, gradient = loss_and_gradient(weights(), lanes.inputs[rows, batch], lanes.labels[rows, batch])
            schedule = (1 + np.cos(np.pi * (step - 1) / steps)) / 2
            values = {
                **given,
                "schedule": ops.zeros((1, 1, 1)) + schedule,
                "step": ops.zeros((1, 1, 1)) + step,
            }
            grad = ops.asarray(single.asarray(gradient).reshape(seeds, 1, -1))
            flat, state = update.apply(ops, grad, state, flat, values, update.work_of(step))
            if step % (steps // CHECKPOINTS) == 0:
                look(step)
    return Training(*(np.array(column) for column in zip(*seen, strict=True)))


def rounded(numbers: Any) -> np.ndarray:
    """Round numbers to the nearest bfloat16, which consists of the upper 16 bits of a float32."""
    bits = np.asarray(numbers, np.float32).view(np.uint32)
    return np.asarray((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000), np.uint32).view(
        np.float32
    )


def _of_spectrum(ops: Any, state: Any) -> tuple[float, float]:
    """Return the maximum of |B^T B - I|_2 over all bases, and the minimum of all eigenvalues d."""
    factors = state[0].curvature.factors
    bases, values = (
        [np.asarray(ops.to_numpy(ops.cast(one[place], "float32")), np.float64) for one in factors]
        for place in (0, 1)
    )
    # The minimum is NaN if an entry is NaN, so that a failed run is noticed.
    return max(map(defect, bases)), float(np.min([one.min() for one in values]))


def defect(basis: np.ndarray) -> float:
    """Return the maximum of |B^T B - I|_2 over bases (..., n, n); infinity if an entry is not finite."""
    if not np.isfinite(basis).all():
        return np.inf
    gram = basis.swapaxes(-1, -2) @ basis
    return float(np.abs(np.linalg.eigvalsh(gram - np.eye(basis.shape[-1]))).max())
