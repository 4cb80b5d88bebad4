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


def _sgd(params: Tensors, grads: Tensors, state: Any, hyper: Hyper, number: torch.Tensor) -> None:
    torch._foreach_add_(params, grads, alpha=-hyper["learning_rate"])


def _momentum(params: Tensors, grads: Tensors, state: Any, hyper: Hyper, number: torch.Tensor) -> None:
    torch._fused_sgd_(
        params,
        grads,
        state.velocity,
        weight_decay=0.0,
        momentum=hyper["momentum"],
        lr=hyper["learning_rate"],
        dampening=0.0,
        nesterov=False,
        maximize=False,
        is_first_step=False,
    )


def _adagrad(params: Tensors, grads: Tensors, state: Any, hyper: Hyper, number: torch.Tensor) -> None:
    torch._fused_adagrad_(
        params,
        grads,
        state.sum_of_squares,
        [number] * len(params),
        lr=hyper["learning_rate"],
        lr_decay=0.0,
        weight_decay=0.0,
        eps=hyper["epsilon"],
        maximize=False,
    )


def _adam_family(kernel: Any) -> Step:
    def step(params: Tensors, grads: Tensors, state: Any, hyper: Hyper, number: torch.Tensor) -> None:
        kernel(
            params,
            grads,
            state.first,
            state.second,
            [],
            [number] * len(params),
            lr=hyper["learning_rate"],
            beta1=hyper["beta1"],
            beta2=hyper["beta2"],
            weight_decay=hyper.get("weight_decay", 0.0),
            eps=hyper["epsilon"],
            amsgrad=False,
            maximize=False,
        )

    return step


def _has_epsilon(hyper: Hyper) -> bool:
    # with 0 the rule leaves an entry without gradient where it is; a kernel gives NaN
    return hyper["epsilon"] > 0


def _null(params: Tensors, grads: Tensors, state: Any, hyper: Hyper, number: torch.Tensor) -> None:
    """Nothing: an eager program computes the gradient whether it is used or not."""


NATIVE: Mapping[str, Native] = {
    "null": Native("curvebench.timing.step_times", _null, "no kernel"),
    "sgd": Native("curvebench.optimizers.gradient_descent", _sgd, "torch._foreach_add_"),
    "momentum": Native("curvebench.optimizers.gradient_descent", _momentum, "torch._fused_sgd_"),
    "adagrad": Native(
        "curvebench.optimizers.adagrad",
        _adagrad,
        "torch._fused_adagrad_",
        lambda hyper: _has_epsilon(hyper) and hyper["initial_accumulator"] == 0,
    ),
    "adam": Native(
        "curvebench.optimizers.adam", _adam_family(torch._fused_adam_), "torch._fused_adam_", _has_epsilon
    ),
    "adamw": Native(
        "curvebench.optimizers.adam", _adam_family(torch._fused_adamw_), "torch._fused_adamw_", _has_epsilon
    ),
}


def native_of(rule: Rule) -> Native | None:
    """The kernel of a rule of this project at its options' defaults, which kernels are for; else None."""
    native = NATIVE.get(rule.name)
    is_plain = all(rule.chosen[name] == option.default for name, option in rule.options.items())
    return native if native and is_plain and rule.update.__module__ == native.home else None
