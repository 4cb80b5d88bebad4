"""Programs on PyTorch: lanes by torch.func, steps in a host loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch._utils import _flatten_dense_tensors as flatten
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


# Kernels take lists; below this mean size an entry of the list costs more than a copy into one buffer.
ENTRIES_WORTH_A_LEAF = 4096


@dataclass(frozen=True)
class _Held:
    """Views of a carry's buffers, which see every update in place; made once, not once a call."""

    buffer: torch.Tensor  # (1, 1, d), what the views belong to
    params: dict[str, torch.Tensor] | None  # for the loss; None where a basis is in between
    whole: bool  # whether the kernel takes the buffer as one, or leaf by leaf
    updated: list[torch.Tensor]  # for the kernel
    state: Any  # the rule's, with such a list in each field


def _native_segment(
    program: Program, native: Native, hyper: Mapping[str, float]
) -> Callable[[Carry, Constants, Inputs], Carry]:
    """The steps of a single run with its update in place; the buffers of the carry are reused."""
    layout = program.update.layout
    held: _Held | None = None

    def hold(carry: Carry, constants: Constants) -> _Held:
        whole = bool(constants.matrices) or layout.total < ENTRIES_WORTH_A_LEAF * len(layout.shapes)

        def views(buffer: torch.Tensor) -> list[torch.Tensor]:
            return [buffer[0, 0]] if whole else list(layout.unflatten(program.ops, buffer).values())

        return _Held(
            buffer=carry.coordinates,
            params=None if constants.matrices else program.parameters(carry.coordinates, ()),
            whole=whole,
            updated=views(carry.coordinates),
            state=pytree.tree_map(views, carry.state),
        )

    def gradient_list(grads: Mapping[str, torch.Tensor], constants: Constants) -> list[torch.Tensor]:
        assert held is not None
        if constants.matrices:
            return [program.coordinates(grads, constants.matrices)[0, 0]]
        if held.whole:
            return [flatten([grads[name] for name in layout.shapes])]
        # Kernels pair entries by their place in memory, and a gradient may be a transposed view.
        return [grads[name].contiguous() for name in layout.shapes]

    def advance(carry: Carry, constants: Constants, inputs: Inputs) -> Carry:
        nonlocal held
        if held is None or held.buffer is not carry.coordinates:
            held = hold(carry, constants)
        model, losses = carry.model, []
        first = float(inputs.step[0])
        for index, multiplier in enumerate(inputs.schedule.tolist()):
            params = held.params or program.parameters(carry.coordinates, constants.matrices)
            batch = pick(constants, None if inputs.order is None else inputs.order[index])
            loss, grads, model = program.gradient(params, model, batch)
            losses.append(loss)
            rate = hyper["learning_rate"] * multiplier
            values = {**hyper, "learning_rate": rate, "step": first + index}
            native.step(held.updated, gradient_list(grads, constants), held.state, values)
        failed = ~torch.isfinite(torch.stack(losses))  # (steps, 1, 1)
        if not failed.any():
            return carry._replace(model=model)
        step = torch.where(failed, inputs.step[:, None, None], float("inf")).amin(dim=0)
        return carry._replace(
            model=model, diverged_at=torch.where(carry.diverged_at == 0, step, carry.diverged_at)
        )

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
