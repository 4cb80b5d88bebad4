"""Segments on PyTorch: the host loops over steps, and updates overwrite buffers in place.

A segment is a number of consecutive steps that one call computes. The buffers are the arrays of the carry,
the state that steps change. Lanes are the runs that are computed together, S seeds x K settings; the buffer
of their parameters has the shape (S, K, d) for d coordinates of a run. Each group of parameters is updated by
a fused kernel (`FusedUpdate`), by an optimizer of PyTorch (`TorchOptimUpdate`) or by its rule (`RuleUpdate`).
`bind` creates the views of the buffers that an update needs, once for all steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch._utils import _flatten_dense_tensors as flatten
from torch.utils import _pytree as pytree

from curvebench.arrays.ops import Ops
from curvebench.backends.torch_compiled import Stepper, compiling, never_eager
from curvebench.backends.torch_lane_optimizers import LaneOptimizers, SavedOptimizers
from curvebench.backends.torch_native import Native
from curvebench.optimizers.arrays import map_arrays
from curvebench.steps.derivatives import DRAWS, StepInfo, model_of
from curvebench.steps.program import Carry, Constants, Inputs, Loaded, Program, select_lanes, step_of
from curvebench.steps.torch_rule import TorchRule
from curvebench.steps.update import UpdateGroup, Work

# A fused kernel gets a list of single parameters if they have at least this number of entries on average.
# Copying all gradients into one buffer, and passing single tensors, is faster for smaller parameters.
MIN_MEAN_LEAF_ENTRIES = 4096


@dataclass
class StepContext:
    """The data of a step that updates need. Costly values are computed at first use.

    The field `info` has the only reference to the gradients of single parameters. Their memory is therefore
    freed as soon as `flat` has copied the gradients into one array.

    Args:
        program: the program of the run.
        constants: constants of the run.
        inputs: inputs of the step.
        number: number of the step in the run, from 1.
        schedule: multiplier of the learning rate.
        info: loss and gradient of the step, and the other values that the update rule uses (its needs).
        model: model state before the step.
        stopped: for each lane, whether it has stopped and is not updated, (seeds, settings); None if no lane
            can stop.
    """

    program: Program
    constants: Constants
    inputs: Inputs
    number: int
    schedule: float
    info: StepInfo
    model: Mapping[str, torch.Tensor]
    stopped: torch.Tensor | None

    @cached_property
    def flat(self) -> torch.Tensor:
        """The gradient in the coordinates of the basis, (seeds, settings, coordinates)."""
        flat = flat_gradient(self.program, self.info.gradient, self.constants.matrices)
        self.info = self.info._replace(gradient={})
        return flat

    @cached_property
    def values(self) -> Mapping[str, torch.Tensor]:
        """Mapping from names to the values that the rule uses besides gradient and state, as tensors.

        They are the hyperparameters, the number of the step, the multiplier of the learning rate, and the
        needs of the rule, such as a Hessian.
        """
        values = self.program.values(self.constants, self.inputs)
        return {**values, **self.program.needs_in_basis(self.info, self.constants.matrices)}


Bound = Callable[[StepContext], None]  # an update of a group, bound to the buffers of a carry


@dataclass(frozen=True)
class FusedUpdate:
    """The update of a group of parameters by a fused kernel of PyTorch, which is called once for each lane.

    Args:
        group: the parameters.
        native: the kernel.
        values: hyperparameters by the names that the rule of the group uses, for each lane.
    """

    group: UpdateGroup
    native: Native
    values: Sequence[Mapping[str, float]]

    def bind(self, program: Program, carry: Carry, rotated: bool, number: int) -> Bound:
        """Bind the update to the buffers of a carry.

        Args:
            program: the program of the run.
            carry: the carry whose buffers are updated.
            rotated: whether the parameters are in a basis.
            number: index of the group in `Update.groups`.
        """
        lay, stack, count = program.update.layout, self.group.stack, len(self.values)
        large_leaves = lay.total >= MIN_MEAN_LEAF_ENTRIES * len(lay.shapes)
        leaf_by_leaf = count == 1 and stack is None and not rotated and large_leaves
        low, high = (0, lay.total) if stack is None else (stack.start, stack.stop)

        def views(lane: int, buffer: torch.Tensor) -> list[torch.Tensor]:
            if leaf_by_leaf:
                return list(lay.unflatten(program.ops, buffer).values())
            return [buffer.view(count, -1)[lane]]

        params = [views(lane, carry.coordinates[..., low:high]) for lane in range(count)]
        states = [pytree.tree_map(partial(views, lane), carry.state[number]) for lane in range(count)]

        def update(context: StepContext) -> None:
            if leaf_by_leaf:
                # Kernels pair entries of parameter and gradient by their position in memory.
                # A gradient may be a transposed view, and must be copied.
                grads = [[context.info.gradient[name].contiguous() for name in lay.shapes]]
            else:
                flat = context.flat if stack is None else context.flat[..., low:high]
                grads = [[lane] for lane in flat.view(count, -1).unbind(0)]
            # Kernels read the number of the step from a float32 tensor on their device.
            step = context.inputs.step.float()
            for param, grad, state, values in zip(params, grads, states, self.values, strict=True):
                rate = values["learning_rate"] * context.schedule
                self.native.step(param, grad, state, {**values, "learning_rate": rate}, step)

        return update


@dataclass(frozen=True)
class TorchOptimUpdate:
    """The update by optimizers of PyTorch, one or more for each lane.

    The leaves of a lane's optimizers are views of the lane's part of the buffer.

    Args:
        rule: the rule that constructs the optimizers of a lane.
        values: for each lane, a mapping from the names of hyperparameters to their values.
    """

    rule: TorchRule
    values: Sequence[Mapping[str, float]]

    def bind(self, program: Program, carry: Carry, rotated: bool, number: int) -> Bound:
        """Bind the update to the buffers of a carry, whose state becomes a list of `LaneOptimizers`.

        If the carry's state already contains optimizers whose leaves are in the carry's buffer, these
        optimizers are used. Otherwise, new optimizers are constructed. The new optimizers resume from the
        carry's state if it is not empty.

        Args:
            program: the program of the run.
            carry: the carry whose buffers are updated.
            rotated: not used.
            number: index of the group in `Update.groups`.
        """
        lay, ops = program.update.layout, program.ops

        def by_lane(flat: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
            arrays = lay.unflatten(ops, flat).values()
            return zip(*(array.flatten(0, 1).unbind(0) for array in arrays), strict=True)

        state: list[LaneOptimizers | SavedOptimizers] = carry.state[number]
        lanes = list[LaneOptimizers]()
        for index, (views, values) in enumerate(zip(by_lane(carry.coordinates), self.values, strict=True)):
            previous = state[index] if state else None
            if isinstance(previous, LaneOptimizers) and previous.is_on(views):
                lanes.append(previous)
                continue
            leaves = [view.detach().requires_grad_() for view in views]
            optimizers = self.rule.make(dict(zip(lay.shapes, leaves, strict=True)), lay.roles, values)
            lane = LaneOptimizers(f"torch:{self.rule.source}", optimizers, leaves, self.rule.closure)
            if previous is not None:
                lane.restore(previous.saved())
            lanes.append(lane)
        state[:] = lanes

        def update(context: StepContext) -> None:
            def evaluate() -> tuple[torch.Tensor, Sequence[torch.Tensor]]:
                assert len(lanes) == 1, "a closure evaluates the loss of one lane (runs_singly)"
                with torch.no_grad():
                    point = program.parameters(carry.coordinates, context.constants.matrices)
                    work = program.update.work_of(context.number)
                    info = program.evaluate(point, context.model, context.constants, context.inputs, work)
                    info = program.clipped(info)
                    flat = program.coordinates(info.gradient, context.constants.matrices)
                    return info.loss[0, 0], next(by_lane(flat))

            def product(vectors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
                assert len(lanes) == 1, "the Hessian is of the loss of one lane (runs_singly)"
                with torch.no_grad():
                    matrices = context.constants.matrices
                    named = {name: array[None, None] for name, array in zip(lay.shapes, vectors, strict=True)}
                    probe = program.flat(lay.flatten(ops, named, 2), matrices)
                    noise = {**(context.inputs.noise or {}), DRAWS: probe}
                    inputs = context.inputs._replace(noise=noise)
                    point = program.parameters(carry.coordinates, matrices)
                    info = program.evaluate(point, context.model, context.constants, inputs, Work.OBSERVE)
                    (need,) = self.rule.needs
                    return next(by_lane(program.in_basis(info.needs[need.name][:, :, 1], matrices)))

            stops = [False] * len(lanes) if context.stopped is None else context.stopped.flatten().tolist()
            for lane, grads, stopped in zip(lanes, by_lane(context.flat), stops, strict=True):
                if not stopped:
                    lane.step(grads, context.schedule, evaluate, product if self.rule.needs else None)

        return update


@dataclass(frozen=True)
class RuleUpdate:
    """The update of a group by its rule.

    Args:
        group: the parameters.
        steppers: the function that updates the group, compiled or eager, for each combination of amortized
            work.
    """

    group: UpdateGroup
    steppers: Mapping[int, Stepper]

    def bind(self, program: Program, carry: Carry, rotated: bool, number: int) -> Bound:
        """Bind the update to the buffers of a carry.

        Args:
            program: the program of the run.
            carry: the carry whose buffers are updated.
            rotated: not used.
            number: index of the group in `Update.groups`.
        """
        param, state = self.group.take(program.ops, carry.coordinates), carry.state[number]

        def update(context: StepContext) -> None:
            grad = self.group.take(program.ops, context.flat)
            work = program.update.work_of(context.number)
            self.steppers[work](grad, state, param, context.values, context.stopped)

        return update


BufferUpdate = FusedUpdate | TorchOptimUpdate | RuleUpdate


def warm(loaded: Loaded, inputs: Inputs, number: int, steppers: Mapping[int, Stepper]) -> None:
    """Compile the updates of a group before the first step, by calling each on copies of the buffers.

    Args:
        loaded: the bundle on its device: the program, the carry before the first step, and the constants.
        inputs: inputs of the first segment.
        number: index of the group in `Update.groups`.
        steppers: functions that update the group, for each combination of amortized work.

    Raises:
        NoCompiler: when the compiler fails.
    """
    program, carry = loaded.program, loaded.carry
    ops, group = program.ops, program.update.groups[number]
    lanes, model = carry.coordinates.shape[:2], model_of(program.update.layout)

    def on_lanes(value: Any) -> torch.Tensor:
        return ops.broadcast_to(ops.asarray(value), (*lanes, *value.shape))

    needed = {need.name: map_arrays(on_lanes, need.example(model)) for need in group.rule.needs}
    values = {**program.values(loaded.constants, step_of(inputs, 0)), **needed}
    stops = program.protocol.stop_gradient_norm is not None
    stopped = torch.zeros_like(carry.stopped_at, dtype=torch.bool) if stops else None
    with compiling(), never_eager(), torch.no_grad():
        zeros, matrices = torch.zeros_like(carry.coordinates), loaded.constants.matrices
        for step in steppers.values():
            param = group.take(ops, carry.coordinates.clone())
            grad = group.take(ops, flat_gradient(program, program.parameters(zeros, matrices), matrices))
            step(grad, pytree.tree_map(_copied, carry.state[number]), param, values, stopped)


def flat_gradient(
    program: Program, gradient: Mapping[str, torch.Tensor], matrices: Sequence[Any]
) -> torch.Tensor:
    """Return the gradient in the coordinates of the basis as one array (seeds, settings, coordinates).

    A compiled update receives a view of the returned array. It accepts the view only if the viewed array has
    the same number of axes as in its compilation. Therefore `warm` calls this function as well.

    Args:
        program: the program of the run.
        gradient: the gradient by parameter name, arrays (seeds, settings, *shape).
        matrices: the matrices of the basis; empty without a basis.
    """
    if matrices or next(iter(gradient.values())).shape[:2].numel() > 1:
        return program.coordinates(gradient, matrices)
    # PyTorch's own function is faster than `program.coordinates` for a single run with many parameters.
    end_to_end = flatten([gradient[name] for name in program.update.layout.shapes])
    return program.ops.cast(end_to_end.view(1, 1, -1), program.parameter_dtype)


def writable(state: Any, coordinates: torch.Tensor) -> Any:
    """Return a state that an update can overwrite, because each tensor in the state has its own memory.

    Only tensors that share memory, or are not contiguous, are copied. The initial state of a rule may contain
    the parameters themselves, the same tensor twice, or a broadcast value.

    Args:
        state: state of the rule.
        coordinates: the buffer of the parameters.
    """
    used = {coordinates.untyped_storage().data_ptr()}

    def with_own_memory(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if leaf.untyped_storage().data_ptr() in used or not leaf.is_contiguous():
            leaf = _copied(leaf)
        used.add(leaf.untyped_storage().data_ptr())
        return leaf

    return pytree.tree_map(with_own_memory, state)


def _copied(leaf: Any) -> Any:
    """Return a contiguous copy of a tensor; other values are returned unchanged."""
    return leaf.clone(memory_format=torch.contiguous_format) if isinstance(leaf, torch.Tensor) else leaf


class TorchSegment:
    """A segment that overwrites the buffers of a carry.

    Views of the buffers are created at the first call with a carry, and reused as long as calls receive
    carries with the same buffers.

    Args:
        program: the program of the run.
        updates: the update of each group.
        compiled: whether the loss or an update is compiled.
    """

    def __init__(self, program: Program, updates: list[BufferUpdate], compiled: bool) -> None:
        self.program, self.updates, self.compiled = program, updates, compiled
        self.buffer: torch.Tensor | None = None  # buffer (S, K, d) to which the updates are bound
        self.state: tuple[Any, ...] = ()
        # Views of the parameters in the buffer, if the loss is evaluated at these parameters.
        # None if the loss is evaluated at other parameters, as in a basis or with Nesterov momentum.
        self.params: dict[str, torch.Tensor] | None = None
        self.bound: list[Bound] = []

    def __call__(self, carry: Carry, constants: Constants, inputs: Inputs) -> Carry:
        with never_eager() if self.compiled else nullcontext(), torch.no_grad():
            # Check buffer and state, because another segment may have used the same buffer with a new state.
            if self.buffer is not carry.coordinates or self.state is not carry.state:
                self._bind(carry, constants)
            carry, losses, stopped_at = carry._replace(state=self.state), [], carry.stopped_at
            numbers, multipliers = inputs.step.tolist(), inputs.schedule.tolist()
            inputs = on_device(self.program.ops, inputs)
            for number, multiplier, single in zip(numbers, multipliers, inputs_by_step(inputs), strict=True):
                carry, loss = self._step(carry, constants, single, round(number), multiplier)
                losses.append(loss)
            return self.program.with_losses(carry, stopped_at, torch.stack(losses, dim=-1), inputs.step)

    def _bind(self, carry: Carry, constants: Constants) -> None:
        """Create views of a carry's buffers, for the loss and for the updates."""
        program, rotated = self.program, bool(constants.matrices)
        self.buffer, self.state = carry.coordinates, writable(carry.state, carry.coordinates)
        carry = carry._replace(state=self.state)
        at_other_point = rotated or program.update.looks_ahead
        self.params = None if at_other_point else program.parameters(carry.coordinates, ())
        self.bound = [update.bind(program, carry, rotated, i) for i, update in enumerate(self.updates)]

    def _step(
        self, carry: Carry, constants: Constants, inputs: Inputs, number: int, schedule: float
    ) -> tuple[Carry, torch.Tensor]:
        """Take one step, and return the new carry and the loss of each lane, (seeds, settings)."""
        program = self.program
        point = program.point(carry, constants, inputs) if self.params is None else self.params
        info = program.evaluate(point, carry.model, constants, inputs, program.update.work_of(number))
        context = [StepContext(program, constants, inputs, number, schedule, info, carry.model, None)]
        loss = info.loss
        del info  # now only the context refers to the gradient, and can free it
        return self._apply(carry, context.pop()), loss

    def _apply(self, carry: Carry, context: StepContext) -> Carry:
        """Update the buffers of a carry in place.

        `Program.apply` computes the same update as new arrays.
        """
        program = self.program
        stopped_at = program.stopped_at(carry, context.info, context.inputs)
        model = context.info.model
        if program.protocol.clip_gradient_norm is not None:
            context = replace(context, info=program.clipped(context.info))
        if program.protocol.stop_gradient_norm is not None:
            context = replace(context, stopped=stopped_at > 0)
            model = select_lanes(program.ops, context.stopped, carry.model, model)
        # Copy the model state, because it may contain parameters, which the update overwrites.
        model = {name: value.clone() for name, value in model.items()}
        for update in self.bound:
            update(context)
        return carry._replace(state=self.state, model=model, stopped_at=stopped_at)


def on_device(ops: Ops, inputs: Inputs) -> Inputs:
    """Return the inputs of a segment, with the fields `step` and `schedule` copied to the device.

    The fields are copied once for the whole segment, so that no step waits for a copy.
    """
    return inputs._replace(step=ops.asarray(inputs.step), schedule=ops.asarray(inputs.schedule))


def inputs_by_step(inputs: Inputs) -> list[Inputs]:
    """Return the inputs of each step of a segment.

    `unbind` splits an array for all steps at once, in a tenth of the time that indexing for each step would
    take.
    """
    count = len(inputs.step)

    def unbound(value: Any) -> Any:
        if isinstance(value, Mapping):
            by_step = zip(*(array[:count].unbind(0) for array in value.values()), strict=True)
            return [dict(zip(value, arrays, strict=True)) for arrays in by_step]
        return [None] * count if value is None else value[:count].unbind(0)

    return [Inputs(*fields) for fields in zip(*map(unbound, inputs), strict=True)]
