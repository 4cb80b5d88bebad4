"""The class of update rules that call an optimizer of PyTorch.

Engines treat these rules differently from all others, because the optimizer changes parameters in place and
stores its own state.
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

    `curvebench.interop` creates such rules from the name of an optimizer class. The class is here, because
    the engine has to distinguish it from rules of this project.

    Args:
        make: `make(leaves, roles, values) -> optimizers`, given the leaf tensors and their roles by parameter
            name, and the hyperparameters by name.
        closure: whether every step gets a closure (a function that evaluates the loss again), even if the
            optimizer does not require it.
        needs_closure: returns whether the optimizer requires a closure. It is a function, since the answer
            may require an import of the optimizer's library.
    """

    make: Make = lambda leaves, roles, values: []
    closure: bool = False
    needs_closure: Callable[[], bool] = lambda: False

    @property
    def runs_singly(self) -> bool:
        """Whether each run (lane) needs a program of its own.

        A run with a closure needs a program of its own, because a closure evaluates the loss of one run in
        the middle of a step.
        """
        return self.closure or self.needs_closure()


def requires_closure(step: Callable[..., Any]) -> bool:
    """Return whether `step`, the method of an optimizer class of PyTorch, requires the argument `closure`."""
    closure = signature(step).parameters.get("closure")
    return closure is not None and closure.default is Parameter.empty


def closure_gradients(state: Sequence[Any]) -> int:
    """Count the gradients that closures have computed so far.

    Args:
        state: `Carry.state` of a bundle. For optimizers of PyTorch, it contains an object per lane.
    """
    return sum(lane.evaluations for group in state if isinstance(group, list) for lane in group)
