"""The class of update rules that call an optimizer of PyTorch.

Engines treat such rules differently from all other rules, because an optimizer of PyTorch changes parameters
in place and stores its own state.
"""

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

    `curvebench.interop` creates such rules from the name of an optimizer class. The class is defined in
    `curvebench.steps`, because engines have to distinguish these rules from the rules of this project.

    Args:
        make: `make(leaves, roles, values) -> optimizers`, where `leaves` maps parameter names to leaf
            tensors, `roles` maps parameter names to roles, and `values` maps the names of hyperparameters to
            values.
        closure: whether every step gets a closure (a function that evaluates the loss again), even if the
            optimizer does not require it.
        needs_closure: function that returns whether the optimizer requires a closure. A function is used
            instead of a value, because it may have to import the optimizer's library.
    """

    make: Make = lambda leaves, roles, values: []
    closure: bool = False
    needs_closure: Callable[[], bool] = lambda: False

    @property
    def runs_singly(self) -> bool:
        """Whether the rule evaluates the loss during a step, so that each run (lane) needs its own program.

        The optimizer calls a closure, or differentiates the gradient, which is a need of the rule.
        """
        return self.closure or bool(self.needs) or self.needs_closure()


def requires_closure(step: Callable[..., Any]) -> bool:
    """Return whether `step`, the method of an optimizer class of PyTorch, requires the argument `closure`."""
    closure = signature(step).parameters.get("closure")
    return closure is not None and closure.default is Parameter.empty


def closure_gradients(state: Sequence[Any]) -> int:
    """Return the number of gradients that closures have computed so far, summed over all lanes.

    Args:
        state: `Carry.state` of a bundle. For optimizers of PyTorch, it contains a list with one object per
            lane.
    """
    return sum(lane.evaluations for group in state if isinstance(group, list) for lane in group)
