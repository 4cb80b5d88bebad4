"""Fused kernels of PyTorch for update rules of this project.

A kernel updates a flat buffer in place, in one pass. An update remains defined by its rule, which is executed
instead whenever the kernel does not support the hyperparameters. A test compares rules and kernels
(tests/curvebench/test_torch_native.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from curvebench.optimizers.rule import Rule

Hyper = Mapping[str, float]
Tensors = list[torch.Tensor]
Step = Callable[[Tensors, Tensors, Any, Hyper, torch.Tensor], None]
Lists = Callable[[tuple[Tensors, ...]], tuple[Tensors, ...]]
# Name of the hyperparameter that is passed as an argument, for each argument that all kernels have.
COMMON_ARGUMENTS = {"lr": "learning_rate", "weight_decay": "weight_decay"}


@dataclass(frozen=True)
class Native:
    """A fused kernel that updates parameters as a rule does.

    Args:
        home: module that defines the rule's `update`. The module distinguishes the rule from a user's rule
            with the same name.
        step: `step(params, grads, state, hyper, number)`, which updates the lists of tensors `params` and
            `state` in place. `state` is the rule's state with a list in each field. `hyper` contains Python
            numbers. `number` is the number of the step, a float32 scalar tensor.
        kernel: name of the kernel, for the provenance.
        applies: function that returns whether the kernel supports the given hyperparameters.
    """

    home: str
    step: Step
    kernel: str
    applies: Callable[[Hyper], bool] = lambda hyper: True


def _fused(kernel: Any, numbers: Mapping[str, str], lists: Lists = tuple, **constants: Any) -> Step:
    """Return the `Native.step` of a kernel `kernel(params, grads, *lists, lr=..., maximize=False, ...)`.

    Args:
        kernel: the kernel of PyTorch.
        numbers: for each further argument of the kernel, the name of the hyperparameter to pass. If the rule
            does not have the hyperparameter, 0 is passed.
        lists: function that returns the lists of tensors to pass after `grads`. The argument of the function
            is a tuple of the fields of the rule's state, followed by a list with the step's number for each
            parameter.
        constants: further arguments of the kernel, with constant values.
    """
    arguments = {**COMMON_ARGUMENTS, **numbers}.items()

    def step(params: Tensors, grads: Tensors, state: Any, hyper: Hyper, number: torch.Tensor) -> None:
        values = {argument: hyper.get(name, 0.0) for argument, name in arguments}
        tensors = lists((*state, [number] * len(params)))
        kernel(params, grads, *tensors, **values, maximize=False, **constants)

    return step


def _sgd(params: Tensors, grads: Tensors, state: Any, hyper: Hyper, number: torch.Tensor) -> None:
    torch._foreach_add_(params, grads, alpha=-hyper["learning_rate"])


def _null(params: Tensors, grads: Tensors, state: Any, hyper: Hyper, number: torch.Tensor) -> None:
    """Do nothing, for the rule `null`, with which only the computation of the gradient is timed."""


def _adam_family(kernel: Any) -> Step:
    """Return the `Native.step` of a kernel that has the arguments of Adam."""
    numbers = {"beta1": "beta1", "beta2": "beta2", "eps": "epsilon"}
    # The empty list stands for the maximum of the second moments, which only AMSGrad uses.
    return _fused(kernel, numbers, lambda lists: (*lists[:-1], [], lists[-1]), amsgrad=False)


def _has_epsilon(hyper: Hyper) -> bool:
    """Return whether epsilon is positive, as kernels require.

    Let epsilon be 0, and an entry of the parameters have had only gradients of 0. A rule then does not change
    the entry, but a kernel makes it NaN.
    """
    return hyper["epsilon"] > 0


DESCENT, ADAM = "curvebench.optimizers.gradient_descent", "curvebench.optimizers.adam"
MOMENTUM = {"dampening": 0.0, "nesterov": False, "is_first_step": False}
NATIVE: Mapping[str, Native] = {
    "null": Native("curvebench.timing.step_times", _null, "no kernel"),
    "sgd": Native(DESCENT, _sgd, "torch._foreach_add_"),
    "momentum": Native(
        DESCENT,
        _fused(torch._fused_sgd_, {"momentum": "momentum"}, lambda lists: lists[:-1], **MOMENTUM),
        "torch._fused_sgd_",
    ),
    "adagrad": Native(
        "curvebench.optimizers.adagrad",
        _fused(torch._fused_adagrad_, {"eps": "epsilon"}, lr_decay=0.0),
        "torch._fused_adagrad_",
        lambda hyper: _has_epsilon(hyper) and hyper["initial_accumulator"] == 0,
    ),
    "adam": Native(ADAM, _adam_family(torch._fused_adam_), "torch._fused_adam_", _has_epsilon),
    "adamw": Native(ADAM, _adam_family(torch._fused_adamw_), "torch._fused_adamw_", _has_epsilon),
}


def native_of(rule: Rule) -> Native | None:
    """Return the fused kernel that updates parameters as a rule does; None if there is none.

    Only some rules of this project have a kernel, and only with the defaults of all options.
    """
    native = NATIVE.get(rule.name)
    is_plain = all(rule.chosen[name] == option.default for name, option in rule.options.items())
    return native if native and is_plain and rule.update.__module__ == native.home else None
