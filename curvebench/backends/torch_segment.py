"""A stretch of steps on PyTorch, in a host loop that writes into a bundle's buffers."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch

from curvebench.arrays.ops import Ops
from curvebench.backends.torch_compiled import never_eager
from curvebench.backends.torch_updates import Bound, BufferUpdate, StepContext, writable
from curvebench.steps.program import Carry, Constants, Inputs, Program, where_lanes


class TorchSegment:
    """Steps that write into the carry's buffers, which are reused from call to call.

    What sees every update of these buffers is made once, not once a step.
    """

    def __init__(self, program: Program, updates: list[BufferUpdate], compiled: bool) -> None:
        self.program, self.updates, self.compiled = program, updates, compiled
        self.buffer: torch.Tensor | None = None  # (S, K, d), what the views belong to
        self.state: tuple[Any, ...] = ()
        # for the loss; None where a basis or a look-ahead is in between
        self.params: dict[str, torch.Tensor] | None = None
        self.bound: list[Bound] = []

    def __call__(self, carry: Carry, constants: Constants, inputs: Inputs) -> Carry:
        with never_eager() if self.compiled else nullcontext(), torch.no_grad():
            # Another segment may have gone on in the same buffer, with a state of its own.
            if self.buffer is not carry.coordinates or self.state is not carry.state:
                self._hold(carry, constants)
            carry, losses, stopped_at = carry._replace(state=self.state), [], carry.stopped_at
            numbers, multipliers = inputs.step.tolist(), inputs.schedule.tolist()
            inputs = on_device(self.program.ops, inputs)
            for number, multiplier, one in zip(numbers, multipliers, inputs_by_step(inputs), strict=True):
                carry, loss = self._step(carry, constants, one, round(number), multiplier)
                losses.append(loss)
            return self.program.with_losses(carry, stopped_at, torch.stack(losses, dim=-1), inputs.step)

    def _hold(self, carry: Carry, constants: Constants) -> None:
        program, rotated = self.program, bool(constants.matrices)
        self.buffer, self.state = carry.coordinates, writable(carry.state, carry.coordinates)
        carry = carry._replace(state=self.state)
        elsewhere = rotated or program.update.looks_ahead
        self.params = None if elsewhere else program.parameters(carry.coordinates, ())
        self.bound = [one.bind(program, carry, rotated, number) for number, one in enumerate(self.updates)]

    def _step(
        self, carry: Carry, constants: Constants, inputs: Inputs, number: int, schedule: float
    ) -> tuple[Carry, torch.Tensor]:
        program = self.program
        point = program.point(carry, constants, inputs) if self.params is None else self.params
        info = program.evaluate(point, carry.model, constants, inputs, program.update.work_of(number))
        context = [StepContext(program, constants, inputs, number, schedule, info, carry.model, None)]
        loss = info.loss
        del info  # the gradient belongs to the context alone
        return self._apply(carry, context.pop()), loss

    def _apply(self, carry: Carry, context: StepContext) -> Carry:
        """`Program.apply`, written into the buffers."""
        program = self.program
        stopped_at = program.stopped_at(carry, context.info, context.inputs)
        model = context.info.model
        if program.protocol.clip_gradient_norm is not None:
            context = replace(context, info=program.clipped(context.info))
        if program.protocol.stop_gradient_norm is not None:
            context = replace(context, held=stopped_at > 0)
            model = where_lanes(program.ops, context.held, carry.model, model)
        # Model state may be parameters, which the update overwrites.
        model = {name: value.clone() for name, value in model.items()}
        for update in self.bound:
            update(context)
        return carry._replace(state=self.state, model=model, stopped_at=stopped_at)


def on_device(ops: Ops, inputs: Inputs) -> Inputs:
    """The inputs with what is on the host sent once for all steps, of which none then waits for it."""
    return inputs._replace(step=ops.asarray(inputs.step), schedule=ops.asarray(inputs.schedule))


def inputs_by_step(inputs: Inputs) -> list[Inputs]:
    """The inputs of each step; unbinding takes a tenth of the time of indexing step by step."""
    count = len(inputs.step)

    def unbound(value: Any) -> Any:
        if isinstance(value, Mapping):
            each = zip(*(array[:count].unbind(0) for array in value.values()), strict=True)
            return [dict(zip(value, arrays, strict=True)) for arrays in each]
        return [None] * count if value is None else value[:count].unbind(0)

    return [Inputs(*fields) for fields in zip(*map(unbound, inputs), strict=True)]
