"""Optimizers of PyTorch as rules: what the engine knows of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from curvebench.optimizers.rule import ParameterRole, Rule

Make = Callable[[Mapping[str, Any], Mapping[str, ParameterRole], Mapping[str, float]], list[Any]]


@dataclass(frozen=True)
class TorchRule(Rule):
    """A torch.optim.Optimizer, which steps leaves of a single run in place, its state inside it.

    Args:
        make: `make(leaves, roles, values) -> optimizers` for leaf tensors and their roles by name, and
            numbers by our names.
        closure: whether steps are given a closure, even where they could do without.
    """

    make: Make = lambda leaves, roles, values: []
    closure: bool = False


def closure_evaluations(state: Sequence[Any]) -> int:
    """The gradients that closures have evaluated, of the state of a bundle's rules."""
    return sum(one.evaluations for held in state if isinstance(held, list) for one in held)
