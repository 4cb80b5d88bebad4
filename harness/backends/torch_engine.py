"""Programs on PyTorch: lanes by torch.func, steps in a host loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.utils import _pytree as pytree

from harness.backends.ops import Array
from harness.backends.torch_ops import torch_ops
from harness.program import Carry, Constants, Inputs, LaneGradient, Program


class TorchEngine:
    """The engine of PyTorch (harness.backends.engine.Engine)."""

    def __init__(self, dtype: str, device: str) -> None:
        self.ops = torch_ops(device, dtype)
        self.device = device
        self.notes: list[str] = []

    def context(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def lane_gradient(self, loss: Callable[..., Any], per_seed: bool) -> LaneGradient:
        ops = self.ops

        def one(params: Any, model: Any, batch: Any) -> Any:
            def value(params: Any) -> Any:
                loss_value, new_model, _ = loss(ops, params, model, batch, {})
                return loss_value, new_model

            grads, (loss_value, new_model) = torch.func.grad_and_value(value, has_aux=True)(params)
            return loss_value, grads, new_model

        over_settings = torch.func.vmap(one, in_dims=(0, 0, None))
        mapped: LaneGradient = torch.func.vmap(over_settings, in_dims=(0, 0, 0 if per_seed else None))
        return mapped

    def lane_evaluation(self, evaluate: Callable[..., Any], per_seed: bool) -> Callable[..., Any]:
        ops = self.ops

        def one(params: Any, model: Any, split: Any) -> Any:
            return evaluate(ops, params, model, split)

        over_settings = torch.func.vmap(one, in_dims=(0, 0, None))
        mapped: Callable[..., Any] = torch.func.vmap(over_settings, in_dims=(0, 0, 0 if per_seed else None))
        return mapped

    def segment(
        self, program: Program, carry: Carry, constants: Constants, inputs: Inputs
    ) -> Callable[[Carry, Constants, Inputs], Carry]:
        def advance(carry: Carry, constants: Constants, inputs: Inputs) -> Carry:
            for index in range(inputs.step.shape[0]):
                order = None if inputs.order is None else inputs.order[index]
                carry = program.step(
                    carry, constants, Inputs(inputs.step[index], inputs.schedule[index], order)
                )
            return carry

        return advance

    def compiled(self, function: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
        return function

    def gradients(self, loss: Callable[..., Any], per_sample: bool) -> Callable[..., Mapping[str, Array]]:
        ops = self.ops

        def one(params: Any, model: Any, batch: Any) -> Any:
            return torch.func.grad(lambda p: loss(ops, p, model, batch, {})[0])(params)

        mapped: Callable[..., Mapping[str, Array]] = torch.func.vmap(
            one, in_dims=(0, None, 0 if per_sample else None)
        )
        return mapped

    def limit_threads(self, threads: int) -> None:
        torch.set_num_threads(threads)

    def finish(self, value: Any) -> None:
        if self.device.startswith("cuda"):
            torch.cuda.synchronize(self.device)

    def state_bytes(self, state: Any) -> int:
        leaves = pytree.tree_leaves(state)
        return sum(leaf.numel() * leaf.element_size() for leaf in leaves)


def make(dtype: str, device: str) -> TorchEngine:
    """The engine for a precision and a device (`cpu`, `cuda`)."""
    return TorchEngine(dtype, device)
