"""Optimizers of PyTorch as rules, as far as the engine has to know them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any

from curvebench.optimizers.rule import ParameterRole, Rule

Make = Callable[[Mapping[str, Any], Mapping[str, ParameterRole], Mapping[str, float]], list[Any]]


@dataclass(frozen=True)
class TorchRule(Rule):
    """A `torch.optim.Optimizer`, which updates the parameters of one run in place and stores its own state.

    `curvebench.interop` creates such rules from the name of an optimizer class. The class is here, because
    the engine has to distinguish it from rules of this project.

    Args:
        make: `make(leaves, roles, values) -> optimizers`, given the leaf tensors and their roles by parameter
            name, and the hyperparameters by name.
        closure: whether every step gets a closure, even if the optimizer does not require one.
        needs_closure: returns whether the optimizer requires a closure. It is a function, since the answer
            may require an import of the optimizer's library.
    """

    make: Make = lambda leaves, roles, values: []
    closure: bool = False
    needs_closure: Callable[[], bool] = lambda: False

    @property
    def runs_singly(self) -> bool:
        """Whether each lane needs its own program: a closure evaluates the loss of one lane in mid-step."""
        return self.closure or self.needs_closure()


def requires_closure(step: Callable[..., Any]) -> bool:
    """Return whether the method `step` of an optimizer class cannot be called without a closure."""
    closure = signature(step).parameters.get("closure")
    return closure is not None and closure.default is Parameter.empty


def closure_gradients(state: Sequence[Any]) -> int:
    """Count the gradients that closures have computed so far in a bundle with this `Carry.state`."""
    return sum(lane.evaluations for group in state if isinstance(group, list) for lane in group)
