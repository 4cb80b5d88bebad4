"""Optimizers of PyTorch as rules: what the engine knows of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any

from curvebench.optimizers.rule import ParameterRole, Rule

Make = Callable[[Mapping[str, Any], Mapping[str, ParameterRole], Mapping[str, float]], list[Any]]


@dataclass(frozen=True)
class TorchRule(Rule):
    """A torch.optim.Optimizer, which steps the leaves of one run in place and stores its state itself.

    Args:
        make: `make(leaves, roles, values) -> optimizers` for leaf tensors and their roles by name, and
            hyperparameters by name.
        closure: whether every step is given a closure, even if it could do without.
        needs_closure: whether a step cannot do without. Asking may import the optimizer's library.
    """

    make: Make = lambda leaves, roles, values: []
    closure: bool = False
    needs_closure: Callable[[], bool] = lambda: False

    @property
    def runs_singly(self) -> bool:
        """Whether lanes cannot share a program: a closure evaluates the loss of one lane in mid-step."""
        return self.closure or self.needs_closure()


def requires_closure(step: Callable[..., Any]) -> bool:
    """Return whether the step of an optimizer class cannot be called without a closure."""
    closure = signature(step).parameters.get("closure")
    return closure is not None and closure.default is Parameter.empty


def closure_gradients(state: Sequence[Any]) -> int:
    """The gradients that closures have evaluated, of the state of a bundle's rules."""
    return sum(one.evaluations for held in state if isinstance(held, list) for one in held)
