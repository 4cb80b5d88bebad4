"""PyTorch's fused kernels for rules of this project: one pass over a flat buffer, in place.

Each entry computes what its rule's `update` computes (tests/curvebench/test_torch_native.py pins the
two to each other); the rule stays the definition, and runs wherever a kernel does not apply.
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
# Hyperparameters that every kernel takes, by its name of the argument.
EVERY = {"lr": "learning_rate", "weight_decay": "weight_decay"}


@dataclass(frozen=True)
class Native:
    """A fused path.

    Args:
        home: the module of the rule's `update`: another rule may have the same name.
        step: `step(params, grads, state, hyper, number)` on lists of tensors, in place; `state` is the rule's
            with a list in each field, `hyper` holds numbers, and `number` is the step's, () in float32.
        kernel: its name, for the provenance.
        applies: whether the kernel covers these hyperparameters.
    """

    home: str
    step: Step
    kernel: str
    applies: Callable[[Hyper], bool] = lambda hyper: True


def _fused(kernel: Any, numbers: Mapping[str, str], lists: Lists = tuple, **constants: Any) -> Step:
    """The step of a fused kernel `kernel(params, grads, *lists, lr=..., maximize=False, ...)`.

    Args:
        kernel: of torch.
        numbers: the hyperparameter by the kernel's argument; those that a rule does not have are 0.
        lists: what the kernel takes besides, of the rule's state and the numbers of the step.
        constants: its other arguments.
    """

    def step(params: Tensors, grads: Tensors, state: Any, hyper: Hyper, number: torch.Tensor) -> None:
        given = {argument: hyper.get(name, 0.0) for argument, name in {**EVERY, **numbers}.items()}
        others = lists((*state, [number] * len(params)))
        kernel(params, grads, *others, **given, maximize=False, **constants)

    return step


def _sgd(params: Tensors, grads: Tensors, state: Any, hyper: Hyper, number: torch.Tensor) -> None:
    torch._foreach_add_(params, grads, alpha=-hyper["learning_rate"])


def _null(params: Tensors, grads: Tensors, state: Any, hyper: Hyper, number: torch.Tensor) -> None:
    """Do nothing: an eager program computes the gradient whether it is used or not."""


def _adam_family(kernel: Any) -> Step:
    numbers = {"beta1": "beta1", "beta2": "beta2", "eps": "epsilon"}
    # the empty list stands for the largest second moments, which AMSGrad alone has
    return _fused(kernel, numbers, lambda lists: (*lists[:-1], [], lists[-1]), amsgrad=False)


def _has_epsilon(hyper: Hyper) -> bool:
    # with 0 the rule leaves an entry without gradient where it is; a kernel gives NaN
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
    """The kernel of a rule of this project at its options' defaults, which kernels are for; else None."""
    native = NATIVE.get(rule.name)
    is_plain = all(rule.chosen[name] == option.default for name, option in rule.options.items())
    return native if native and is_plain and rule.update.__module__ == native.home else None
