"""What one step of a bundle computes, written once for every backend."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from curvebench.arrays.ops import Array, Ops
from curvebench.optimizers.rule import map_arrays
from curvebench.steps.derivatives import Evaluation, StepInfo
from curvebench.steps.layout import by_name, end_to_end
from curvebench.steps.update import Update, Work


@dataclass(frozen=True)
class StepProtocol:
    """What of the training protocol (`curvebench.spec.training`) the steps of a run execute.

    Args:
        stop_gradient_norm: a lane whose gradient is shorter stops; None never stops.
        clip_gradient_norm: the norm to which a longer gradient is shortened for the rule, or None.
        gradient_accumulation: into how many equal parts a minibatch is cut, one evaluated after the other,
            whose losses, gradients and needs are averaged.
    """

    stop_gradient_norm: float | None = None
    clip_gradient_norm: float | None = None
    gradient_accumulation: int = 1

    @classmethod
    def of(cls, training: object) -> StepProtocol:
        """Return what steps execute of a training protocol, which has values of the same names."""
        return cls(**{key.name: getattr(training, key.name) for key in fields(cls)})

    @property
    def accumulates(self) -> bool:
        """Whether minibatches are cut into parts, whose gradients are summed."""
        return self.gradient_accumulation > 1

    @property
    def gradient_copies(self) -> int:
        """The gradients that a step holds besides the rule's: the sum over parts, and the one not clipped."""
        return self.accumulates + (self.clip_gradient_norm is not None)

    def microbatch_size(self, batch_size: int) -> int:
        """Return how many examples of a minibatch are evaluated at once."""
        return batch_size // self.gradient_accumulation


PLAIN = StepProtocol()  # runs do not stop, and gradients are those of whole minibatches, at any length


class StepLosses(NamedTuple):
    """What the losses of the steps since the last evaluation come to; (S, K) are seeds and settings."""

    total: Array  # (S, K)
    count: Array  # (S, K), fewer than the steps where a lane has stopped
    first: Array  # (S, K), the loss of the first of these steps


class Carry(NamedTuple):
    """What a bundle carries from step to step; (S, K) are seeds and settings."""

    coordinates: Array  # (S, K, total), the parameters in the basis
    state: tuple[Any, ...]  # the rules' state, one a piece of the update
    model: dict[str, Array]  # model state, each (S, K, ...)
    diverged_at: Array  # (S, K), the step of the first loss that is not finite; 0 means none
    stopped_at: Array  # (S, K), the step whose gradient was below the threshold; 0 means none
    losses: StepLosses | None = None  # None where no metric asks for them


class Constants(NamedTuple):
    """What a bundle reads at every step."""

    # training arrays, (examples, ...) where seeds share them, else (S, examples, ...); none where sent
    data: dict[str, Array]
    rows: Array | None  # (S, 1), the numbers of the seeds; None where seeds share the data
    matrices: tuple[Array, ...]  # V of each block of the layout, (S, n, r)
    hyper: dict[str, Array]  # each (1, K, 1), or (S, K, 1) where seeds have settings of their own


class Inputs(NamedTuple):
    """What differs from step to step; executors add a leading axis of steps."""

    step: Array  # the number of the step, from 1
    schedule: Array  # the learning rate's multiplier
    order: Any = None  # (S, batch_size) indices of the minibatch, or None for the full batch
    batch: Any = None  # the minibatch itself where it is sent, (S, batch_size, ...) by field, else None
    noise: Any = None  # what the loss draws from, (S, ...) by name, or None


def step_of(inputs: Inputs, index: Any) -> Inputs:
    """The inputs of one step out of those of several."""
    return map_arrays(lambda value: None if value is None else value[index], inputs)


def minibatch_of(constants: Constants, inputs: Inputs) -> dict[str, Array]:
    """The minibatch of each seed, (S, batch_size, ...), or all data where there is no order."""
    if inputs.batch is not None:
        return dict(inputs.batch)
    order = inputs.order
    if order is None:
        return constants.data
    if constants.rows is None:
        return {name: values[order] for name, values in constants.data.items()}
    return {name: values[constants.rows, order] for name, values in constants.data.items()}


def microbatches(ops: Ops, inputs: Inputs, parts: int) -> dict[str, Any]:
    """What of a step's inputs differs between equal parts of its minibatch, with a first axis of parts.

    Noise is cut where its axis after the seeds counts the examples; what a whole step draws, all parts see.
    """

    def cut(array: Array) -> Array:
        seeds, examples, *rest = array.shape
        return ops.swapaxes(ops.reshape(array, (seeds, parts, examples // parts, *rest)), 0, 1)

    whole = inputs.order if inputs.batch is None else next(iter(inputs.batch.values()))
    noise = {
        name: array
        for name, array in (inputs.noise or {}).items()
        if array.ndim > 1 and array.shape[1] == whole.shape[1]
    }
    given = {"order": inputs.order, "batch": inputs.batch, "noise": noise}
    return {name: map_arrays(cut, value) for name, value in given.items() if value is not None}


def select_lanes(ops: Ops, lanes: Array, one: Any, other: Any) -> Any:
    """Nested arrays of which the lanes marked in an (S, K) mask come from `one`."""

    def chosen(one: Array, other: Array) -> Array:
        return ops.where(ops.reshape(lanes, (*lanes.shape, *(1,) * (one.ndim - 2))), one, other)

    return map_arrays(chosen, one, other)


@dataclass(frozen=True)
class Program:
    """The pure functions of a bundle; a step is `point`, `evaluate` and `apply`.

    Args:
        ops: the backend's array functions.
        update: the rule on its layout.
        evaluation: `evaluation(params, model, batch, noise, observes) -> StepInfo` of lanes; a minibatch and
            noise have the seeds as their first axis.
        parameter_dtype: the precision of parameters between steps, and of their gradients.
        protocol: what of the training protocol steps execute.
        accumulate: the backend's (`Derivatives.accumulate`); None where there is one part.
        averages_losses: whether the losses of steps are averaged between evaluations.
    """

    ops: Ops
    update: Update
    evaluation: Evaluation
    parameter_dtype: str
    protocol: StepProtocol = PLAIN
    accumulate: Callable[..., tuple[Any, Any]] | None = None
    averages_losses: bool = False

    def parameters(self, coordinates: Array, matrices: Sequence[Array]) -> dict[str, Array]:
        """Named parameters (S, K, ...) from coordinates (S, K, d)."""
        return by_name(self.ops, self.update.layout.parameters, self.flat(coordinates, matrices))

    def flat(self, coordinates: Array, matrices: Sequence[Array]) -> Array:
        """Parameters end to end (S, K, d), as they are held, from coordinates."""
        return self._changed(self.update.layout.to_parameters, matrices, coordinates)

    def coordinates(self, params: Mapping[str, Array], matrices: Sequence[Array]) -> Array:
        """Coordinates (S, K, d), as they are held, from named parameters or gradients (S, K, ...)."""
        return self.in_basis(end_to_end(self.ops, self.update.layout.parameters, params, 2), matrices)

    def in_basis(self, flat: Array, matrices: Sequence[Array]) -> Array:
        """Coordinates (S, K, d), as they are held, from parameters or gradients end to end (S, K, d)."""
        return self._changed(self.update.layout.to_coordinates, matrices, flat)

    def _changed(self, change: Callable[..., Array], matrices: Sequence[Array], flat: Array) -> Array:
        wide = self.ops.astype_float(flat) if self.update.layout.blocks else flat
        return self.ops.cast(change(self.ops, matrices, wide), self.parameter_dtype)

    def start(self, params: Mapping[str, Array], model: dict[str, Array], constants: Constants) -> Carry:
        """The carry before the first step: the same point in every basis (000 Sec. 6)."""
        coordinates = self.coordinates(params, constants.matrices)
        lanes = tuple(coordinates.shape[:2])
        state = self.update.init(self.ops, coordinates)
        losses = self.no_losses(lanes) if self.averages_losses else None
        return Carry(coordinates, state, model, self.ops.zeros(lanes), self.ops.zeros(lanes), losses)

    def no_losses(self, lanes: tuple[int, ...]) -> StepLosses:
        """The losses of no step."""
        return StepLosses(*(self.ops.zeros(lanes) for _ in StepLosses._fields))

    def values(self, constants: Constants, inputs: Inputs) -> dict[str, Array]:
        """Hyperparameters as they are held, and the number of the step and the schedule, each (1, 1, 1)."""
        one = self.ops.zeros((1, 1, 1))
        return {**constants.hyper, "schedule": one + inputs.schedule, "step": one + inputs.step}

    def needs_in_basis(self, info: StepInfo, matrices: Sequence[Array]) -> dict[str, Array]:
        """What the rule needs besides the gradient, in the coordinates, by name."""
        ops, lay = self.ops, self.update.layout
        if not lay.blocks:
            return info.needs

        def to_coordinates(flat: Array) -> Array:
            return lay.to_coordinates(ops, matrices, flat)

        return {
            need.name: need.change_basis(ops, to_coordinates, info.needs[need.name])
            for need in self.update.bound.needs
            if need.change_basis is not None
        }

    def change_basis(
        self, state: Sequence[Any], old: Sequence[Array], new: Sequence[Array]
    ) -> tuple[Any, ...]:
        """The rules' state in the coordinates of new matrices: a first moment m becomes J_new^T (J_old m).

        Raises:
            OptionError: where the state cannot go on in other coordinates.
        """
        lay = self.update.layout

        def change(moment: Array) -> Array:
            return lay.to_coordinates(self.ops, new, lay.to_parameters(self.ops, old, moment))

        return self.update.change_basis(self.ops, state, change)

    def point(self, carry: Carry, constants: Constants, inputs: Inputs) -> dict[str, Array]:
        """Where a step evaluates the loss: named parameters (S, K, ...)."""
        values = self.values(constants, inputs)
        coordinates = self.update.point(self.ops, carry.state, carry.coordinates, values)
        return self.parameters(coordinates, constants.matrices)

    def evaluation_point(self, carry: Carry, constants: Constants) -> dict[str, Array]:
        """Where metrics are taken: named parameters (S, K, ...)."""
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
        """What a step learns there of the loss of its minibatch, in parts where gradients are accumulated.

        The model state goes from part to part; all else is the mean over parts.
        """

        def of(model: Mapping[str, Array], given: Inputs) -> StepInfo:
            observes = bool(work & Work.OBSERVE)
            return self.evaluation(point, model, minibatch_of(constants, given), given.noise or {}, observes)

        count = self.protocol.gradient_accumulation
        if count == 1 or self.accumulate is None:
            return of(model, inputs)
        ops = self.ops

        def of_part(model: Mapping[str, Array], part: Mapping[str, Any]) -> tuple[Any, tuple[Any, ...]]:
            noise = {**(inputs.noise or {}), **part["noise"]}
            info = of(model, inputs._replace(**{**part, "noise": noise}))
            return info.model, (info.loss, map_arrays(ops.astype_float, info.gradient), info.needs)

        parts = microbatches(ops, inputs, count)
        after, total = self.accumulate(of_part, dict(model), parts)
        loss, gradient, needs = map_arrays(lambda array: array / count, total)
        return StepInfo(loss, gradient, after, needs)

    def clipped(self, info: StepInfo) -> StepInfo:
        """The record with the gradient that the rule sees: g min(1, c / |g|) of each lane.

        |g| is the Euclidean norm over all parameters in the original coordinates, as Pascanu et al. 2013,
        Alg. 1, without overflow: entries are divided by the largest. What is not finite stays so.
        """
        if self.protocol.clip_gradient_norm is None:
            return info
        ops, shapes = self.ops, self.update.layout.parameters
        flat = ops.astype_float(end_to_end(ops, shapes, info.gradient, 2))
        largest = ops.max(ops.abs(flat), axis=-1, keepdims=True)
        largest = ops.where(largest > 0, largest, 1.0)
        relative_norm = ops.sqrt(ops.sum(ops.square(flat / largest), axis=-1, keepdims=True))
        share = (self.protocol.clip_gradient_norm / largest) / relative_norm
        share = ops.where(share < 1, share, 1.0)  # NaN, of a gradient that is not finite, is not below 1
        return info._replace(gradient=by_name(ops, shapes, flat * share))

    def apply(
        self,
        carry: Carry,
        info: StepInfo,
        constants: Constants,
        inputs: Inputs,
        work: Work = Work.NONE,
    ) -> Carry:
        """The carry after the rule's update, which a lane that stops does not take."""
        grad = self.coordinates(self.clipped(info).gradient, constants.matrices)
        values = {**self.values(constants, inputs), **self.needs_in_basis(info, constants.matrices)}
        coordinates, state = self.update.apply(self.ops, grad, carry.state, carry.coordinates, values, work)
        model, stopped_at = info.model, self.stopped_at(carry, info, inputs)
        if self.protocol.stop_gradient_norm is not None:
            held = (carry.coordinates, carry.state, carry.model)
            new = (coordinates, state, model)
            coordinates, state, model = select_lanes(self.ops, stopped_at > 0, held, new)
        return carry._replace(coordinates=coordinates, state=state, model=model, stopped_at=stopped_at)

    def norm(self, gradient: Mapping[str, Array]) -> Array:
        """The norm (S, K) of a gradient in the original coordinates, over all parameters."""
        flat = self.ops.astype_float(end_to_end(self.ops, self.update.layout.parameters, gradient, 2))
        return self.ops.sqrt(self.ops.sum(self.ops.square(flat), axis=-1))

    def stopped_at(self, carry: Carry, info: StepInfo, inputs: Inputs) -> Array:
        """(S, K), where lanes stop by a short gradient; step t begins after t - 1 updates, which it keeps."""
        if self.protocol.stop_gradient_norm is None:
            return carry.stopped_at
        is_first = (carry.stopped_at == 0) & (self.norm(info.gradient) < self.protocol.stop_gradient_norm)
        return self.ops.where(is_first, inputs.step, carry.stopped_at)

    def with_losses(self, carry: Carry, stopped_at: Array, losses: Array, steps: Array) -> Carry:
        """The carry after steps (T,) with losses (S, K, T): it diverges at the first not finite.

        Args:
            stopped_at: (S, K), as it was before these steps.
        """
        ops = self.ops
        first = -ops.max(ops.where(ops.isfinite(losses), -math.inf, -steps), axis=-1)
        is_new = (carry.diverged_at == 0) & ops.isfinite(first)
        carry = carry._replace(diverged_at=ops.where(is_new, first, carry.diverged_at))
        if carry.losses is None:
            return carry
        goes_on = (stopped_at == 0)[..., None]
        goes_on = goes_on & ((carry.stopped_at == 0)[..., None] | (steps <= carry.stopped_at[..., None]))
        count = ops.sum(ops.astype_float(goes_on), axis=-1)
        is_first = (carry.losses.count == 0) & (count > 0)
        total, counted = carry.losses.total, ops.where(goes_on, losses, 0.0)
        for step in range(len(steps)):  # one by one: a sum would round by how many steps are taken together
            total = total + counted[..., step]
        return carry._replace(
            losses=StepLosses(
                total=total,
                count=carry.losses.count + count,
                first=ops.where(is_first, losses[..., 0], carry.losses.first),
            )
        )

    def step(self, carry: Carry, constants: Constants, inputs: Inputs, work: Work = Work.NONE) -> Carry:
        """One optimization step of every lane (000 Alg. 2.1 lines 5-6 where there is a basis)."""
        info = self.evaluate(self.point(carry, constants, inputs), carry.model, constants, inputs, work)
        stepped = self.apply(carry, info, constants, inputs, work)
        return self.with_losses(stepped, carry.stopped_at, info.loss[..., None], inputs.step[None])


@dataclass(frozen=True)
class Loaded:
    """A bundle on its device: the program, what it reads, where it starts, and the splits held there."""

    program: Program
    carry: Carry
    constants: Constants
    splits: Mapping[str, Mapping[str, Any]]
