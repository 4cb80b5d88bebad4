"""Models of PyTorch, for timing this project against plain loops of PyTorch.

Like a user's file, this module imports nothing of curvebench.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional


def numbers(*shape: int) -> Any:
    """Draw normal numbers with a fixed seed."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


class DenseNetwork(nn.Sequential):  # type: ignore[misc]  # torch has no types here
    """A network of three dense layers, which PyTorch can compute for several runs together."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def labelled() -> tuple[Any, Any]:
    """Return inputs (2000, 64) with the index of the largest of ten entries as the label."""
    inputs = numbers(2_000, 64)
    return inputs, inputs[:, :10].argmax(1)


def classification(model: Any, batch: Any) -> Any:
    """Return the mean cross entropy."""
    return functional.cross_entropy(model(batch[0]), batch[1])


class Recurrent(nn.Module):  # type: ignore[misc]  # torch has no types here
    """A GRU, for which PyTorch has no batching rule, so that its runs are computed one after another."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent, self.out = nn.GRU(2, 32, num_layers=2, batch_first=True), nn.Linear(32, 1)

    def forward(self, inputs: Any) -> Any:
        """Return a number for each sequence (examples, length, 2)."""
        return self.out(self.recurrent(inputs)[0][:, -1])[:, 0]


def sequences() -> tuple[Any, Any]:
    """Return sequences (2000, 30, 2) with their means as targets."""
    inputs = numbers(2_000, 30, 2)
    return inputs, inputs.mean((1, 2))


def regression(model: Any, batch: Any) -> Any:
    """Return the mean squared error."""
    return functional.mse_loss(model(batch[0]), batch[1])
