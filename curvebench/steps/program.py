"""One optimization step of a bundle, as pure functions that every backend shares.

A bundle is a set of lanes (runs) that advance together: S seeds x K settings. All arrays of a step have these
two axes first, written (S, K). A step is composed of three functions of `Program`: `point` returns the
parameters at which the gradient is taken, `evaluate` returns the loss and the gradient at these parameters,
and `apply` updates the parameters. JAX compiles their composition `Program.step`; PyTorch uses `point` and
`evaluate`, and applies updates in place.

The update rule works in the coordinates of a basis, given by a matrix V for each block of parameters that are
transformed together. `total` is the number of coordinates, and d the number of entries of all parameters;
without a basis, coordinates and parameters are the same. A segment is a number of consecutive steps that one
call of the device computes. Source 000 is the EGOP paper (docs/sources.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from curvebench.arrays.ops import Array, Ops
from curvebench.optimizers.arrays import map_arrays
from curvebench.steps.derivatives import Evaluation, StepInfo
from curvebench.steps.layout import by_name, end_to_end
from curvebench.steps.update import Update, Work


@dataclass(frozen=True)
class StepProtocol:
    """The keys of the training protocol (`curvebench.spec.training`) that act within a step.

    Args:
        stop_gradient_norm: a lane stops at the first step at which the norm of its gradient is smaller than
            this number; None to never stop.
        clip_gradient_norm: largest norm of the gradient that the rule receives: a longer gradient is scaled
            down to this norm; None not to clip.
        gradient_accumulation: number of equal microbatches into which a minibatch is divided. The
            microbatches are evaluated one after another, and their losses, gradients and needs are averaged.
    """

    stop_gradient_norm: float | None = None
    clip_gradient_norm: float | None = None
    gradient_accumulation: int = 1

    @classmethod
    def of(cls, training: object) -> StepProtocol:
        """Return the step protocol whose keys have the values that a training protocol gives them."""
        return cls(**{key.name: getattr(training, key.name) for key in fields(cls)})

    @property
    def accumulates(self) -> bool:
        """Whether a minibatch is divided into several microbatches."""
        return self.gradient_accumulation > 1

    @property
    def gradient_copies(self) -> int:
        """Number of gradients that a step stores in addition to the gradient that the rule receives.

        Accumulation stores the sum over microbatches, and clipping stores the gradient before it was clipped.
        """
        return self.accumulates + (self.clip_gradient_norm is not None)

    def microbatch_size(self, batch_size: int) -> int:
        """Return the number of examples in a microbatch; `batch_size` if minibatches are not divided."""
        return batch_size // self.gradient_accumulation


PLAIN = StepProtocol()  # the protocol without stopping, clipping and accumulation


class StepLosses(NamedTuple):
    """Sums over the losses of the steps since the last evaluation, to report the mean of these losses."""

    total: Array  # sum of the losses of each lane, (S, K)
    count: Array  # number of losses in the sum, (S, K); a stopped lane adds no losses
    first: Array  # loss of the first step since the last evaluation, (S, K)


class Carry(NamedTuple):
    """State of all runs of a bundle: the result of a step, and an argument of the next step."""

    # Parameters in the coordinates of the basis, (seeds S, settings K, number of coordinates).
    coordinates: Array
    state: tuple[Any, ...]  # state of the update rule, one entry per group of `Update.groups`
    model: dict[str, Array]  # state of the model, such as statistics of a normalization; shapes (S, K, ...)
    diverged_at: Array  # number of the first step whose loss was not finite, (S, K); 0 if there is none
    stopped_at: Array  # number of the step at which the lane stopped, (S, K); 0 if it has not stopped
    losses: StepLosses | None = None  # sums of the losses of steps; None if no metric uses them


class Constants(NamedTuple):
    """Arrays that every step of a bundle reads and no step changes."""

    # Training data by field: (examples, ...) if all seeds share the data, otherwise (S, examples, ...).
    # The mapping is empty for a streamed workload, whose minibatches are part of the inputs of steps.
    data: dict[str, Array]
    rows: Array | None  # index of each seed in `data`, (S, 1); None if all seeds share the data
    # Matrices V of all seeds, (S, n, r), for each block of parameters that the basis transforms.
    matrices: tuple[Array, ...]
    # Hyperparameters by name, (1, K, 1). If the lanes are padded (`engine.tiles`), the shape is (S, K, 1).
    hyper: dict[str, Array]


class Inputs(NamedTuple):
    """Arrays that differ between steps. Inputs of a segment have a leading axis of steps in each array."""

    step: Array  # number of the step, counted from 1
    schedule: Array  # multiplier of the learning rate at this step
    order: Any = None  # indices of the minibatch's examples, (S, batch_size); None for the full batch
    batch: Any = None  # minibatch of a streamed workload by field, (S, batch_size, ...); otherwise None
    noise: Any = None  # random numbers of the loss and of needs by name, (S, ...); None if none are drawn


def step_of(inputs: Inputs, index: Any) -> Inputs:
    """Return the inputs of one step, given the inputs of a segment and the step's index in the segment."""
    return map_arrays(lambda value: None if value is None else value[index], inputs)


def minibatch_of(constants: Constants, inputs: Inputs) -> dict[str, Array]:
    """Return the minibatches of all seeds: for each field, an array (seeds, batch_size, ...).

    If steps use the full batch, return all training data.
    """
    if inputs.batch is not None:
        return dict(inputs.batch)
    order = inputs.order
    if order is None:
        return constants.data
    if constants.rows is None:
        return {name: values[order] for name, values in constants.data.items()}
    return {name: values[constants.rows, order] for name, values in constants.data.items()}


def microbatches(ops: Ops, inputs: Inputs, count: int) -> dict[str, Any]:
    """Divide the inputs of a step into `count` microbatches, which become a new first axis.

    Args:
        ops: array functions.
        inputs: the inputs of a step.
        count: number of microbatches, which must divide the number of examples.

    Returns:
        A mapping from the names `order`, `batch` and `noise` to these fields of `Inputs`, with only the
        arrays that differ between microbatches. An array of noise is divided if its second axis has the
        length of the minibatch; otherwise it belongs to the whole step, and all microbatches use the same
        array.
    """

    def divide(array: Array) -> Array:
        seeds, examples, *shape = array.shape
        return ops.swapaxes(ops.reshape(array, (seeds, count, examples // count, *shape)), 0, 1)

    minibatch = inputs.order if inputs.batch is None else next(iter(inputs.batch.values()))
    noise = {
        name: array
        for name, array in (inputs.noise or {}).items()
        if array.ndim > 1 and array.shape[1] == minibatch.shape[1]
    }
    divisible = {"order": inputs.order, "batch": inputs.batch, "noise": noise}
    return {name: map_arrays(divide, value) for name, value in divisible.items() if value is not None}


def select_lanes(ops: Ops, mask: Array, if_true: Any, if_false: Any) -> Any:
    """Select the arrays of each lane: from `if_true` where the mask (S, K) is true, else from `if_false`.

    Args:
        ops: array functions.
        mask: one truth value per lane.
        if_true, if_false: two nested structures of arrays (S, K, ...) with equal shapes.
    """

    def select(true: Array, false: Array) -> Array:
        return ops.where(ops.reshape(mask, (*mask.shape, *(1,) * (true.ndim - 2))), true, false)

    return map_arrays(select, if_true, if_false)


@dataclass(frozen=True)
class Program:
    """The functions of which a step of a bundle is composed. A program contains no arrays.

    Args:
        ops: array functions of the backend.
        update: the rule bound to the layout of the parameters.
        evaluation: `evaluation(params, model, batch, noise, observes) -> StepInfo`. Arrays of parameters and
            model have the leading axes (S, K), and arrays of batch and noise the leading axis S.
        parameter_dtype: precision in which parameters and their gradients are stored between steps.
        protocol: the keys of the training protocol that act within a step.
        accumulate: `Derivatives.accumulate` of the backend; None if minibatches are not divided.
        averages_losses: whether to sum the losses of steps between evaluations, for a metric that is their
            mean.
    """

    ops: Ops
    update: Update
    evaluation: Evaluation
    parameter_dtype: str
    protocol: StepProtocol = PLAIN
    accumulate: Callable[..., tuple[Any, Any]] | None = None
    averages_losses: bool = False

    def parameters(self, coordinates: Array, matrices: Sequence[Array]) -> dict[str, Array]:
        """Compute each parameter, (seeds, settings, *shape), from the buffer of coordinates."""
        return by_name(self.ops, self.update.layout.parameters, self.flat(coordinates, matrices))

    def flat(self, coordinates: Array, matrices: Sequence[Array]) -> Array:
        """Compute the flat buffer of parameters from coordinates; both are (seeds, settings, length)."""
        return self._transformed(self.update.layout.to_parameters, matrices, coordinates)

    def coordinates(self, params: Mapping[str, Array], matrices: Sequence[Array]) -> Array:
        """Compute coordinates (seeds, settings, total) from named parameters or from a named gradient."""
        return self.in_basis(end_to_end(self.ops, self.update.layout.parameters, params, 2), matrices)

    def in_basis(self, flat: Array, matrices: Sequence[Array]) -> Array:
        """Compute coordinates (seeds, settings, total) from a flat buffer of parameters or of a gradient."""
        return self._transformed(self.update.layout.to_coordinates, matrices, flat)

    def _transformed(self, transform: Callable[..., Array], matrices: Sequence[Array], flat: Array) -> Array:
        """Apply a change of coordinates in the precision of computation, and round to `parameter_dtype`."""
        wide = self.ops.astype_float(flat) if self.update.layout.blocks else flat
        return self.ops.cast(transform(self.ops, matrices, wide), self.parameter_dtype)

    def start(self, params: Mapping[str, Array], model: dict[str, Array], constants: Constants) -> Carry:
        """Return the carry before the first step.

        Whatever the basis, the run starts at the parameters `params` (000 Sec. 6).
        """
        coordinates = self.coordinates(params, constants.matrices)
        lanes = tuple(coordinates.shape[:2])
        state = self.update.init(self.ops, coordinates)
        losses = self.no_losses(lanes) if self.averages_losses else None
        return Carry(coordinates, state, model, self.ops.zeros(lanes), self.ops.zeros(lanes), losses)

    def no_losses(self, lanes: tuple[int, ...]) -> StepLosses:
        """Return the sums of losses after an evaluation, when no step has been taken since: all are 0."""
        return StepLosses(*(self.ops.zeros(lanes) for _ in StepLosses._fields))

    def values(self, constants: Constants, inputs: Inputs) -> dict[str, Array]:
        """Return the values that a step uses, by name.

        They are the hyperparameters, the number of the step (`step`), and the multiplier of the learning rate
        (`schedule`). The last two are arrays of shape (1, 1, 1).
        """
        zero = self.ops.zeros((1, 1, 1))
        return {**constants.hyper, "schedule": zero + inputs.schedule, "step": zero + inputs.step}

    def needs_in_basis(self, info: StepInfo, matrices: Sequence[Array]) -> dict[str, Array]:
        """Return the needs of the rule, such as a Hessian, in the coordinates of the basis.

        Needs are values that a rule uses in addition to the gradient.
        """
        ops, lay = self.ops, self.update.layout
        if not lay.blocks:
            return info.needs

        def to_coordinates(flat: Array) -> Array:
            return lay.to_coordinates(ops, matrices, flat)

        return {
            need.name: need.change_basis(ops, to_coordinates, info.needs[need.name])
            for need in self.update.bound.needs
            if need.change_basis is not None and need.name in info.needs
        }

    def change_basis(
        self, state: Sequence[Any], old: Sequence[Array], new: Sequence[Array]
    ) -> tuple[Any, ...]:
        """Express the state of the rule in a new basis.

        Let J_old and J_new be the matrices that map the old and the new coordinates to parameters
        (`curvebench.optimizers.bases.change`). A first moment m in the old coordinates becomes J_new^T (J_old
        m) in the new coordinates.

        Args:
            state: `Carry.state`.
            old, new: the matrices V of all blocks, before and after the basis is estimated again.

        Raises:
            OptionError: if the rule has state that cannot be expressed in other coordinates.
        """
        lay = self.update.layout

        def change(moment: Array) -> Array:
            return lay.to_coordinates(self.ops, new, lay.to_parameters(self.ops, old, moment))

        return self.update.change_basis(self.ops, state, change)

    def point(self, carry: Carry, constants: Constants, inputs: Inputs) -> dict[str, Array]:
        """Return the parameters at which the step evaluates the loss: named arrays (S, K, ...).

        These parameters differ from the current parameters for rules that look ahead, such as Nesterov
        momentum.
        """
        values = self.values(constants, inputs)
        coordinates = self.update.point(self.ops, carry.state, carry.coordinates, values)
        return self.parameters(coordinates, constants.matrices)

    def evaluation_point(self, carry: Carry, constants: Constants) -> dict[str, Array]:
        """Return the parameters at which metrics are evaluated: named arrays (S, K, ...).

        S is the number of seeds, K the number of settings. The returned parameters differ from the current
        parameters for rules whose result is another point, such as an average of all iterates.
        """
        coordinates = self.update.evaluation_point(self.ops, carry.state, carry.coordinates)
        return self.parameters(coordinates, constants.matrices)

    def evaluate(
        self,
        point: Mapping[str, Array],
        model: Mapping[str, Array],
        constants: Constants,
        inputs: Inputs,
        work: Work,
    ) -> StepInfo:
        """Evaluate loss, gradient and needs at `point` on the minibatch of a step.

        With gradient accumulation, microbatches are evaluated one after another. Each evaluation receives the
        model state that the evaluation before has returned. Loss, gradient and needs are means over the
        microbatches.

        Args:
            point: a mapping from names to parameters, as `Program.point` returns it.
            model: state of the model before the step.
            constants, inputs: arrays of the bundle and of the step.
            work: the amortized work of the step. Amortized needs are evaluated only if the work includes
                OBSERVE.
        """

        def evaluate_batch(model: Mapping[str, Array], batch_inputs: Inputs) -> StepInfo:
            observes, batch = bool(work & Work.OBSERVE), minibatch_of(constants, batch_inputs)
            return self.evaluation(point, model, batch, batch_inputs.noise or {}, observes)

        count = self.protocol.gradient_accumulation
        if count == 1 or self.accumulate is None:
            return evaluate_batch(model, inputs)
        ops = self.ops

        def summand(model: Mapping[str, Array], part: Mapping[str, Any]) -> tuple[Any, tuple[Any, ...]]:
            noise = {**(inputs.noise or {}), **part["noise"]}
            info = evaluate_batch(model, inputs._replace(**{**part, "noise": noise}))
            return info.model, (info.loss, map_arrays(ops.astype_float, info.gradient), info.needs)

        parts = microbatches(ops, inputs, count)
        new_model, total = self.accumulate(summand, dict(model), parts)
        loss, gradient, needs = map_arrays(lambda array: array / count, total)
        return StepInfo(loss, gradient, new_model, needs)

    def clipped(self, info: StepInfo) -> StepInfo:
        """Clip the gradient of each lane to the norm `protocol.clip_gradient_norm` (Pascanu et al. 2013).

        A gradient g becomes g min(1, c / |g|), where c is `clip_gradient_norm` and |g| the Euclidean norm
        over all parameters in the original coordinates (Alg. 1). The entries of g are divided by the largest
        absolute value of an entry before they are squared, so that the sum of squares does not overflow. A
        gradient that is not finite is not scaled.
        """
        if self.protocol.clip_gradient_norm is None:
            return info
        ops, shapes = self.ops, self.update.layout.parameters
        flat = ops.astype_float(end_to_end(ops, shapes, info.gradient, 2))
        largest = ops.max(ops.abs(flat), axis=-1, keepdims=True)
        largest = ops.where(largest > 0, largest, 1.0)
        relative_norm = ops.sqrt(ops.sum(ops.square(flat / largest), axis=-1, keepdims=True))
        factor = (self.protocol.clip_gradient_norm / largest) / relative_norm
        # A gradient that is not finite has the factor NaN, which is not less than 1, and is not scaled.
        factor = ops.where(factor < 1, factor, 1.0)
        return info._replace(gradient=by_name(ops, shapes, flat * factor))

    def apply(
        self, carry: Carry, info: StepInfo, constants: Constants, inputs: Inputs, work: Work = Work.NONE
    ) -> Carry:
        """Return the carry after the update of the rule. Lanes that have stopped do not change."""
        grad = self.coordinates(self.clipped(info).gradient, constants.matrices)
        values = {**self.values(constants, inputs), **self.needs_in_basis(info, constants.matrices)}
        coordinates, state = self.update.apply(self.ops, grad, carry.state, carry.coordinates, values, work)
        model, stopped_at = info.model, self.stopped_at(carry, info, inputs)
        if self.protocol.stop_gradient_norm is not None:
            old = (carry.coordinates, carry.state, carry.model)
            new = (coordinates, state, model)
            coordinates, state, model = select_lanes(self.ops, stopped_at > 0, old, new)
        return carry._replace(coordinates=coordinates, state=state, model=model, stopped_at=stopped_at)

    def norm(self, gradient: Mapping[str, Array]) -> Array:
        """Compute the Euclidean norm of each lane's gradient over all parameters, (seeds, settings)."""
        flat = self.ops.astype_float(end_to_end(self.ops, self.update.layout.parameters, gradient, 2))
        return self.ops.sqrt(self.ops.sum(self.ops.square(flat), axis=-1))

    def stopped_at(self, carry: Carry, info: StepInfo, inputs: Inputs) -> Array:
        """Return `Carry.stopped_at` after a step.

        A lane stops if the norm of its gradient is below `protocol.stop_gradient_norm`. A lane that stops at
        step t has made t - 1 updates, since the update of step t is discarded.
        """
        if self.protocol.stop_gradient_norm is None:
            return carry.stopped_at
        is_first = (carry.stopped_at == 0) & (self.norm(info.gradient) < self.protocol.stop_gradient_norm)
        return self.ops.where(is_first, inputs.step, carry.stopped_at)

    def with_losses(self, carry: Carry, stopped_at: Array, losses: Array, steps: Array) -> Carry:
        """Add the losses of T steps to the carry, and record the first step whose loss is not finite.

        Args:
            carry: the carry after the T steps, in which the losses of the T steps are not counted yet.
            stopped_at: `Carry.stopped_at` before the T steps, (seeds, settings).
            losses: the losses, (seeds, settings, T).
            steps: numbers of the T steps, (T,).
        """
        ops = self.ops
        first = -ops.max(ops.where(ops.isfinite(losses), -math.inf, -steps), axis=-1)
        # A line search rejects a trial whose loss is not finite; such a trial is no divergence.
        is_marked = not self.update.rule.compares_losses
        is_new = (carry.diverged_at == 0) & ops.isfinite(first) & is_marked
        carry = carry._replace(diverged_at=ops.where(is_new, first, carry.diverged_at))
        if carry.losses is None:
            return carry
        active = (stopped_at == 0)[..., None]
        active = active & ((carry.stopped_at == 0)[..., None] | (steps <= carry.stopped_at[..., None]))
        count = ops.sum(ops.astype_float(active), axis=-1)
        is_first = (carry.losses.count == 0) & (count > 0)
        total, counted = carry.losses.total, ops.where(active, losses, 0.0)
        # Add the losses one by one: a sum's rounding would depend on how the run is divided into segments.
        for step in range(len(steps)):
            total = total + counted[..., step]
        return carry._replace(
            losses=StepLosses(
                total=total,
                count=carry.losses.count + count,
                first=ops.where(is_first, losses[..., 0], carry.losses.first),
            )
        )

    def step(self, carry: Carry, constants: Constants, inputs: Inputs, work: Work = Work.NONE) -> Carry:
        """Take one optimization step of every lane.

        In a basis, such a step is lines 5-6 of 000 Alg. 2.1.
        """
        info = self.evaluate(self.point(carry, constants, inputs), carry.model, constants, inputs, work)
        stepped = self.apply(carry, info, constants, inputs, work)
        return self.with_losses(stepped, carry.stopped_at, info.loss[..., None], inputs.step[None])


@dataclass(frozen=True)
class Loaded:
    """A bundle on its device.

    Args:
        program: the functions of the bundle's steps.
        carry: the state before the first step.
        constants: the arrays that steps read.
        splits: data that stay on the device for evaluations: for each split, such as `test`, its arrays by
            field.
    """

    program: Program
    carry: Carry
    constants: Constants
    splits: Mapping[str, Mapping[str, Any]]
