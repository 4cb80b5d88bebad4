"""A stretch of steps on PyTorch, in a host loop that writes into a bundle's buffers.

They are updated by a rule, by a fused kernel, or by a torch.optim.Optimizer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch._utils import _flatten_dense_tensors as flatten
from torch.utils import _pytree as pytree

from curvebench.arrays.ops import Ops
from curvebench.backends.torch_compiled import Stepper, compiling, never_eager
from curvebench.backends.torch_contestant import KeptContestant, TorchContestant
from curvebench.backends.torch_native import Native
from curvebench.optimizers.rule import map_arrays
from curvebench.steps.derivatives import StepInfo, model_of
from curvebench.steps.program import Carry, Constants, Inputs, Loaded, Program, select_lanes, step_of
from curvebench.steps.torch_rule import TorchRule
from curvebench.steps.update import UpdateGroup

# Kernels take lists; below this mean size an entry of the list costs more than a copy into one buffer.
ENTRIES_WORTH_A_LEAF = 4096


@dataclass
class StepContext:
    """The step that an update belongs to; what few updates need is computed when it is asked for.

    Nothing else holds the gradient by name, which is let go once it is in one array.

    Args:
        program, constants, inputs: of the step.
        number: of the step in the run, from 1.
        schedule: the learning rate's multiplier.
        info: what the loss said.
        model: the model state before the step.
        held: lanes (S, K) that stay as they are, or None.
    """

    program: Program
    constants: Constants
    inputs: Inputs
    number: int
    schedule: float
    info: StepInfo
    model: Mapping[str, torch.Tensor]
    held: torch.Tensor | None

    @cached_property
    def flat(self) -> torch.Tensor:
        """The gradient in the basis, (S, K, d)."""
        found = flat_gradient(self.program, self.info.gradient, self.constants.matrices)
        self.info = self.info._replace(gradient={})
        return found

    @property
    def vector(self) -> torch.Tensor:
        """The gradient of a single run in the basis, (d,)."""
        return self.flat.view(-1)

    @cached_property
    def values(self) -> Mapping[str, torch.Tensor]:
        """Hyperparameters, `step` and `schedule` as tensors, and what the rule needs besides."""
        values = self.program.values(self.constants, self.inputs)
        return {**values, **self.program.needs_in_basis(self.info, self.constants.matrices)}


Bound = Callable[[StepContext], None]  # the update of one carry's buffers


@dataclass(frozen=True)
class FusedUpdate:
    """A fused kernel of PyTorch for a group of a single run."""

    group: UpdateGroup
    native: Native
    values: Mapping[str, float]

    def bind(self, program: Program, carry: Carry, rotated: bool, number: int) -> Bound:
        """The update of the group of this number; `rotated` says whether there is a basis."""
        lay, stack = program.update.layout, self.group.stack
        leaf_by_leaf = stack is None and not rotated and lay.total >= ENTRIES_WORTH_A_LEAF * len(lay.shapes)
        low, high = (0, lay.total) if stack is None else (stack.start, stack.stop)

        def views(buffer: torch.Tensor) -> list[torch.Tensor]:
            return list(lay.unflatten(program.ops, buffer).values()) if leaf_by_leaf else [buffer.view(-1)]

        param = views(carry.coordinates if leaf_by_leaf else carry.coordinates[0, 0, low:high])
        state = pytree.tree_map(views, carry.state[number])

        def update(context: StepContext) -> None:
            if leaf_by_leaf:
                # Kernels pair entries by their place in memory, and a gradient may be a transposed view.
                grads = [context.info.gradient[name].contiguous() for name in lay.shapes]
            else:
                vector = context.vector
                grads = [vector if stack is None else vector[low:high]]
            rate = self.values["learning_rate"] * context.schedule
            # kernels read the number of the step where they run, in float32
            step = context.inputs.step.float()
            self.native.step(param, grads, state, {**self.values, "learning_rate": rate}, step)

        return update


@dataclass(frozen=True)
class TorchOptimUpdate:
    """A torch.optim.Optimizer for each lane, on leaves that are views of the lane's part of the buffer.

    Args:
        rule: makes the optimizers.
        values: hyperparameters by name, of each lane.
    """

    rule: TorchRule
    values: Sequence[Mapping[str, float]]

    def bind(self, program: Program, carry: Carry, rotated: bool, number: int) -> Bound:
        """The update of the whole buffer; the carry's state becomes the optimizers that step its lanes."""
        lay, ops = program.update.layout, program.ops

        def by_lane(flat: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
            arrays = lay.unflatten(ops, flat).values()
            return zip(*(array.flatten(0, 1).unbind(0) for array in arrays), strict=True)

        held: list[TorchContestant | KeptContestant] = carry.state[number]
        contestants = list[TorchContestant]()
        for lane, (views, values) in enumerate(zip(by_lane(carry.coordinates), self.values, strict=True)):
            before = held[lane] if held else None
            if isinstance(before, TorchContestant) and before.is_on(views):
                contestants.append(before)
                continue
            leaves = [view.detach().requires_grad_() for view in views]
            optimizers = self.rule.make(dict(zip(lay.shapes, leaves, strict=True)), lay.roles, values)
            made = TorchContestant(f"torch:{self.rule.source}", optimizers, leaves, self.rule.closure)
            if before is not None:
                made.take_over(before.kept())
            contestants.append(made)
        held[:] = contestants

        def update(context: StepContext) -> None:
            def evaluate() -> tuple[torch.Tensor, Sequence[torch.Tensor]]:
                assert len(contestants) == 1, "a closure evaluates the loss of one lane (runs_singly)"
                with torch.no_grad():
                    point = program.parameters(carry.coordinates, context.constants.matrices)
                    work = program.update.work_of(context.number)
                    info = program.evaluate(point, context.model, context.constants, context.inputs, work)
                    info = program.clipped(info)
                    flat = program.coordinates(info.gradient, context.constants.matrices)
                    return info.loss[0, 0], next(by_lane(flat))

            stops = [False] * len(contestants) if context.held is None else context.held.flatten().tolist()
            for contestant, grads, stopped in zip(contestants, by_lane(context.flat), stops, strict=True):
                if not stopped:
                    contestant.step(grads, context.schedule, evaluate)

        return update


@dataclass(frozen=True)
class RuleUpdate:
    """A group's update by the rule itself, written into the carry's buffers.

    Args:
        group: what is updated.
        steppers: the update, compiled or eager, with amortized work and without.
    """

    group: UpdateGroup
    steppers: Mapping[int, Stepper]

    def bind(self, program: Program, carry: Carry, rotated: bool, number: int) -> Bound:
        """The update of the group of this number."""
        param, state = self.group.take(program.ops, carry.coordinates), carry.state[number]

        def update(context: StepContext) -> None:
            taken = self.group.take(program.ops, context.flat)
            work = program.update.work_of(context.number)
            self.steppers[work](taken, state, param, context.values, context.held)

        return update


BufferUpdate = FusedUpdate | TorchOptimUpdate | RuleUpdate


def warm(loaded: Loaded, inputs: Inputs, number: int, steppers: Mapping[int, Stepper]) -> None:
    """Call a group's steppers on copies of its buffers, so that they are compiled before the first step."""
    program, carry = loaded.program, loaded.carry
    ops, group = program.ops, program.update.groups[number]
    lanes, model = carry.coordinates.shape[:2], model_of(program.update.layout)

    def on_lanes(value: Any) -> torch.Tensor:
        return ops.broadcast_to(ops.asarray(value), (*lanes, *value.shape))

    needed = {need.name: map_arrays(on_lanes, need.example(model)) for need in group.rule.needs}
    values = {**program.values(loaded.constants, step_of(inputs, 0)), **needed}
    stops = program.protocol.stop_gradient_norm is not None
    held = torch.zeros_like(carry.stopped_at, dtype=torch.bool) if stops else None
    with compiling(), never_eager(), torch.no_grad():
        zeros, matrices = torch.zeros_like(carry.coordinates), loaded.constants.matrices
        for step in steppers.values():
            param = group.take(ops, carry.coordinates.clone())
            grad = group.take(ops, flat_gradient(program, program.parameters(zeros, matrices), matrices))
            step(grad, pytree.tree_map(_own, carry.state[number]), param, values, held)


def flat_gradient(
    program: Program, gradient: Mapping[str, torch.Tensor], matrices: Sequence[Any]
) -> torch.Tensor:
    """Return the gradient in the basis as one array (S, K, d), from the arrays (S, K, ...) of the parameters.

    A compiled update accepts a view of it only where the array that is viewed has as many axes as when the
    update was compiled. So `warm` has it made by this function too.
    """
    if matrices or next(iter(gradient.values())).shape[:2].numel() > 1:
        return program.coordinates(gradient, matrices)
    # for the many leaves of a single run, this takes less time than `coordinates`
    end_to_end = flatten([gradient[name] for name in program.update.layout.shapes])
    return program.ops.cast(end_to_end.view(1, 1, -1), program.parameter_dtype)


def writable(state: Any, coordinates: torch.Tensor) -> Any:
    """State that an update can write into: what is taken over, but for copies of some leaves.

    A rule may begin with the parameters, with one array twice, or with one value broadcast.
    """
    seen = {coordinates.untyped_storage().data_ptr()}

    def owned(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if leaf.untyped_storage().data_ptr() in seen or not leaf.is_contiguous():
            leaf = _own(leaf)
        seen.add(leaf.untyped_storage().data_ptr())
        return leaf

    return pytree.tree_map(owned, state)


def _own(leaf: Any) -> Any:
    return leaf.clone(memory_format=torch.contiguous_format) if isinstance(leaf, torch.Tensor) else leaf


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
            model = select_lanes(program.ops, context.held, carry.model, model)
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
