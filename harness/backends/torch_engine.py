"""Programs on PyTorch: lanes by torch.func, steps in a host loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.utils import _pytree as pytree

from harness.backends.engine import NO_GPU
from harness.backends.ops import Array, Ops
from harness.backends.torch_native import NATIVE, Native
from harness.backends.torch_ops import torch_ops
from harness.errors import InputError
from harness.program import Carry, Constants, Inputs, LaneGradient, Program, pick


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

        def gradient(params: Any, model: Any, batch: Any) -> Any:
            lanes = next(iter(params.values())).shape[:2]
            if lanes == (1, 1):  # plain autograd: a single run need not pay for mapping
                return _alone(
                    ops, loss, params, model, {k: v[0] for k, v in batch.items()} if per_seed else batch
                )
            return mapped(params, model, batch)

        return gradient

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
        native = NATIVE.get(program.update.rule.name)
        alone = tuple(carry.coordinates.shape[:2]) == (1, 1)
        hyper = {name: float(values.flatten()[0]) for name, values in constants.hyper.items()}
        if native is not None and alone and native.applies(hyper) and program.stop_gradient_norm is None:
            self.note(f"{program.update.rule.name}: {native.kernel} updates single runs")
            return _native_segment(program, native, hyper)
        return _plain_segment(program)

    def note(self, text: str) -> None:
        """Keep a note for the provenance, once."""
        if text not in self.notes:
            self.notes.append(text)

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


def _plain_segment(program: Program) -> Callable[[Carry, Constants, Inputs], Carry]:
    def advance(carry: Carry, constants: Constants, inputs: Inputs) -> Carry:
        for index in range(inputs.step.shape[0]):
            order = None if inputs.order is None else inputs.order[index]
            carry = program.step(carry, constants, Inputs(inputs.step[index], inputs.schedule[index], order))
        return carry

    return advance


def _native_segment(
    program: Program, native: Native, hyper: Mapping[str, float]
) -> Callable[[Carry, Constants, Inputs], Carry]:
    """The steps of a single run with its update in place; the buffers of the carry are reused."""

    def advance(carry: Carry, constants: Constants, inputs: Inputs) -> Carry:
        flat, state = carry.coordinates[0, 0], pytree.tree_map(lambda leaf: leaf[0, 0], carry.state)
        # Views of the buffer where no basis is in between: they see every update.
        views = None if constants.matrices else program.parameters(carry.coordinates, ())
        model, losses = carry.model, []
        schedule, first = inputs.schedule.tolist(), float(inputs.step[0])
        for index, multiplier in enumerate(schedule):
            params = views or program.parameters(carry.coordinates, constants.matrices)
            batch = pick(constants, None if inputs.order is None else inputs.order[index])
            loss, grads, model = program.gradient(params, model, batch)
            losses.append(loss)
            grad = program.coordinates(grads, constants.matrices)[0, 0]
            rate = hyper["learning_rate"] * multiplier
            native.step(flat, grad, state, {**hyper, "learning_rate": rate, "step": first + index})
        failed = ~torch.isfinite(torch.stack(losses))  # (steps, 1, 1)
        steps = torch.where(failed, inputs.step[:, None, None], float("inf")).amin(dim=0)
        new = (carry.diverged_at == 0) & torch.isfinite(steps)
        return carry._replace(model=model, diverged_at=torch.where(new, steps, carry.diverged_at))

    return advance


def _alone(ops: Ops, loss: Callable[..., Any], params: Any, model: Any, batch: Any) -> Any:
    """Loss, gradient and model state of the only lane, with its two axes of length 1."""
    leaves = {name: value[0, 0].detach().requires_grad_() for name, value in params.items()}
    value, new_model, _ = loss(ops, leaves, {name: state[0, 0] for name, state in model.items()}, batch, {})
    grads = torch.autograd.grad(value, list(leaves.values()), allow_unused=True, materialize_grads=True)
    return (
        value.detach()[None, None],
        {name: grad[None, None] for name, grad in zip(leaves, grads, strict=True)},
        {name: state.detach()[None, None] for name, state in new_model.items()},
    )


def make(dtype: str, device: str) -> TorchEngine:
    """The engine for a precision and a device.

    Raises:
        InputError: for `gpu` where PyTorch sees none.
    """
    if device == "gpu" and not torch.cuda.is_available():
        raise InputError(NO_GPU.format(library="PyTorch"))
    return TorchEngine(dtype, {"gpu": "cuda"}.get(device, device))
