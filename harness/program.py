"""What one step of a bundle computes, written once for every backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any, NamedTuple

from harness.backends.ops import Array, Ops
from harness.layout import Layout, Stack, by_name, end_to_end
from optimizers.names import unknown
from optimizers.options import OptionError
from optimizers.rule import Part, Rule


class Work(IntEnum):
    """The amortized work before the update of a step."""

    NONE = 0
    REFRESH = 1
    START = 2  # of the first step, where a rule begins otherwise than it goes on


@dataclass(frozen=True)
class Piece:
    """The leaves that one rule updates at once: a stack of the layout, or the whole buffer.

    Args:
        part: the rule, and what it calls its hyperparameters.
        stack: the leaves; None where the rule takes the buffer as it is.
        named: the layout by which the rule takes the whole buffer as arrays by name; None for an array.
    """

    part: Part
    stack: Stack | None
    named: Layout | None = None

    def values(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """The optimizer's hyperparameters, arrays or numbers, as they are for these leaves."""
        factors = {} if self.stack is None else dict(self.stack.factors)
        names = {self.part.names.get(name, name): factor for name, factor in factors.items()}
        return {**values, **{name: values[name] * factor for name, factor in names.items()}}

    @property
    def rule(self) -> Rule:
        """The rule."""
        return self.part.rule

    def take(self, ops: Ops, flat: Array) -> Array:
        """What the rule sees of a buffer (*lanes, total)."""
        if self.named is not None:
            return self.named.unflatten(ops, flat)
        return flat if self.stack is None else self.stack.take(ops, flat)

    def give(self, ops: Ops, seen: Array, lanes: tuple[int, ...]) -> Array:
        """The part of a buffer (*lanes, entries) that the rule sees so."""
        if self.named is not None:
            return self.named.flatten(ops, seen, len(lanes))
        return ops.reshape(seen, (*lanes, -1))


def _end_to_end(ops: Ops, flats: list[Array]) -> Array:
    return flats[0] if len(flats) == 1 else ops.concatenate(flats, -1)


def hyper_of(ops: Ops, part: Part, values: Mapping[str, Array], axes: int) -> dict[str, Array]:
    """A rule's hyperparameters, `step` and `schedule`, with so many axes and the rate scheduled.

    Args:
        part: the rule, and what the optimizer calls its hyperparameters.
        values: arrays (*lanes, 1) by the optimizer's names, `step` and `schedule` among them; and `hessian`
            (*lanes, d, d) where the rule needs it.
        axes: how many axes the rule's arrays have.
    """
    names = {name: part.names.get(name, name) for name in part.rule.hyperparameters}
    names |= {"step": "step", "schedule": "schedule"}
    names |= {"hessian": "hessian"} if part.rule.needs_hessian else {}
    given = {name: values[other] for name, other in names.items()}
    given["learning_rate"] = given["learning_rate"] * given["schedule"]
    return {
        name: ops.reshape(value, (*value.shape, *(1,) * (axes - value.ndim))) for name, value in given.items()
    }


def updated(
    ops: Ops,
    part: Part,
    grad: Array,
    state: Any,
    param: Array,
    values: Mapping[str, Array],
    refresh: int,
) -> tuple[Array, Any]:
    """A rule's update of what it sees, after its amortized work where this is a step for it."""
    hyper = hyper_of(ops, part, values, 0 if part.rule.scope == "named" else param.ndim)
    work = part.rule.start if refresh == Work.START and part.rule.start else part.rule.refresh
    if refresh and work is not None:
        state = work(ops, grad, state, hyper)
    return part.rule.update(ops, grad, state, param, hyper)


@dataclass(frozen=True)
class Update:
    """A rule bound to a layout: how it sees the flat buffer of shape (*lanes, total)."""

    rule: Rule
    layout: Layout

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """What is updated at once, in buffer order.

        Raises:
            OptionError: for an option that is wrong for a shape, or factors that the rule cannot take.
        """
        if self.layout.factors and self.rule.scope in ("model", "named"):
            raise OptionError(
                f"{self.rule.name}: has one set of hyperparameters for all parameters; leave factors out"
            )
        uniform = self.rule.scope == "entry" and self.rule.part is None and not self.layout.factors
        if uniform or self.rule.scope == "model":
            return (Piece(Part(self.rule), None),)
        if self.rule.scope == "named":
            return (Piece(Part(self.rule), None, self.layout),)
        whole = Part(self.rule)
        part = self.rule.part or (lambda kind, shape: whole)
        pieces = tuple(Piece(part(stack.kind, stack.shape), stack) for stack in self.layout.stacks)
        for piece, stack in zip(pieces, self.layout.stacks, strict=True):
            for name, _ in stack.factors:
                if name not in piece.rule.hyperparameters:
                    owner = f"{self.rule.name}: factors: the rule of a {stack.kind}"
                    raise OptionError(unknown(owner, "hyperparameter", name, piece.rule.hyperparameters))
        return pieces

    def check_turns(self) -> tuple[str, ...]:
        """The fields of its state that change with the coordinates like a gradient.

        Raises:
            OptionError: where its state cannot go on in other coordinates.
        """
        fields = {piece.rule.first_moments for piece in self.pieces}
        found = fields.pop() if len(fields) == 1 else None
        if found is None:
            raise OptionError(
                f"{self.rule.name}: its state cannot go on in other coordinates; set"
                " the basis's state: restarted"
            )
        return found

    def turned(self, ops: Ops, state: Sequence[Any], turn: Callable[[Array], Array]) -> tuple[Any, ...]:
        """The state in other coordinates: `turn` takes a gradient's (S, K, total) to the new ones.

        Raises:
            OptionError: where its state cannot go on in other coordinates.
        """
        states = list(state)
        for field in self.check_turns():
            seen = [getattr(held, field) for held in states]
            lanes = tuple(seen[0].shape[:2])
            flats = [piece.give(ops, one, lanes) for piece, one in zip(self.pieces, seen, strict=True)]
            turned = turn(_end_to_end(ops, flats))
            states = [
                held._replace(**{field: piece.take(ops, turned)})
                for piece, held in zip(self.pieces, states, strict=True)
            ]
        return tuple(states)

    @property
    def amortizes(self) -> bool:
        """Whether any rule has work that is not done at every step alike."""
        return any(piece.rule.refresh or piece.rule.start for piece in self.pieces)

    @property
    def cadence(self) -> frozenset[Work]:
        """The amortized work that steps differ by."""
        return frozenset(map(self.refreshes, (1, 2, 1 + (self.rule.refresh_every or 1))))

    def refreshes(self, step: int) -> Work:
        """The amortized work that is done before the update of a step, from 1."""
        every = self.rule.refresh_every
        if not self.amortizes:
            return Work.NONE
        if step == 1 and any(piece.rule.start for piece in self.pieces):
            return Work.START
        due = step == 1 if every is None else (step - 1) % every == 0
        return Work.REFRESH if due else Work.NONE

    @property
    def looks_ahead(self) -> bool:
        """Whether gradients are taken elsewhere than at the parameters."""
        return any(piece.rule.gradient_at is not None for piece in self.pieces)

    def point(self, ops: Ops, state: Sequence[Any], flat: Array, values: Mapping[str, Array]) -> Array:
        """Where the gradient is taken, (*lanes, total); `values` as in `apply`."""
        if not self.looks_ahead:
            return flat
        points = []
        for piece, held in zip(self.pieces, state, strict=True):
            param = piece.take(ops, flat)
            if piece.rule.gradient_at is not None:
                hyper = hyper_of(ops, piece.part, piece.values(values), param.ndim)
                param = piece.rule.gradient_at(ops, held, param, hyper)
            points.append(ops.reshape(param, (*flat.shape[:-1], -1)))
        return _end_to_end(ops, points)

    def init(self, ops: Ops, flat: Array) -> tuple[Any, ...]:
        """The state at the first parameters: one of its rule's for each piece."""
        return tuple(piece.rule.init(ops, piece.take(ops, flat)) for piece in self.pieces)

    def apply(
        self,
        ops: Ops,
        grad: Array,
        state: Sequence[Any],
        flat: Array,
        values: Mapping[str, Array],
        refresh: int = Work.NONE,
    ) -> tuple[Array, tuple[Any, ...]]:
        """One update; `values` as in `hyper_of`, each number (*lanes, 1)."""
        flats, states = [], []
        for piece, held in zip(self.pieces, state, strict=True):
            param, own = piece.take(ops, flat), piece.values(values)
            new, new_state = updated(ops, piece.part, piece.take(ops, grad), held, param, own, refresh)
            flats.append(piece.give(ops, new, tuple(flat.shape[:-1])))
            states.append(new_state)
        return _end_to_end(ops, flats), tuple(states)


class Carry(NamedTuple):
    """What a bundle carries from step to step; (S, K) are seeds and settings."""

    coordinates: Array  # (S, K, total), the parameters in the basis
    state: tuple[Any, ...]  # the rules' state, one a piece of the update
    model: dict[str, Array]  # model state, each (S, K, ...)
    diverged_at: Array  # (S, K), the step of the first loss that is not finite; 0 means none
    stopped_at: Array  # (S, K), the step whose gradient was below the threshold; 0 means none


class Constants(NamedTuple):
    """What a bundle reads at every step."""

    data: dict[
        str, Array
    ]  # training arrays, (examples, ...) where seeds share them, else (S, examples, ...);
    # empty where minibatches are sent
    rows: Array | None  # (S, 1), the numbers of the seeds; None where seeds share the data
    matrices: tuple[Array, ...]  # V of each block of the layout, (S, n, r)
    hyper: dict[str, Array]  # each (1, K, 1)


class Inputs(NamedTuple):
    """What differs from step to step; executors add a leading axis of steps."""

    step: Array  # the number of the step, from 1
    schedule: Array  # the learning rate's multiplier
    order: Any = None  # (S, batch_size) indices of the minibatch, or None for the full batch
    batch: Any = None  # the minibatch itself where it is sent, (S, batch_size, ...) by field, else None
    noise: Any = None  # what the loss draws from, (S, ...) by name, or None


def step_of(inputs: Inputs, index: Any) -> Inputs:
    """The inputs of one step out of those of several."""

    def one(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: array[index] for name, array in value.items()}
        return None if value is None else value[index]

    return Inputs(*map(one, inputs))


def pick(constants: Constants, inputs: Inputs) -> dict[str, Array]:
    """The minibatch of each seed, (S, batch_size, ...), or all data where there is no order."""
    if inputs.batch is not None:
        return dict(inputs.batch)
    order = inputs.order
    if order is None:
        return constants.data
    if constants.rows is None:
        return {name: values[order] for name, values in constants.data.items()}
    return {name: values[constants.rows, order] for name, values in constants.data.items()}


def where_lanes(ops: Ops, lanes: Array, one: Any, other: Any) -> Any:
    """Nested arrays of which the lanes marked in an (S, K) mask come from `one`."""
    if isinstance(one, Mapping):
        return {name: where_lanes(ops, lanes, value, other[name]) for name, value in one.items()}
    if isinstance(one, tuple):
        parts = [where_lanes(ops, lanes, *pair) for pair in zip(one, other, strict=True)]
        return type(one)(*parts) if hasattr(one, "_fields") else tuple(parts)
    return ops.where(ops.reshape(lanes, (*lanes.shape, *(1,) * (one.ndim - 2))), one, other)


LaneGradient = Callable[..., tuple[Array, dict[str, Array], dict[str, Array]]]
LaneHessian = Callable[..., Array]


@dataclass(frozen=True)
class Program:
    """The pure functions of a bundle.

    Args:
        ops: the backend's array functions.
        update: the rule on its layout.
        gradient: `gradient(params, model, batch, noise) -> (loss, grads, model)`, mapped over lanes by the
            backend; a minibatch and noise have the seeds as their first axis.
        stop_gradient_norm: a lane whose gradient is shorter stops; None never stops.
        hessian: `hessian(flat, model, batch, noise) -> (S, K, d, d)` for parameters (S, K, d), mapped
            likewise; None where the rule needs none.
    """

    ops: Ops
    update: Update
    gradient: LaneGradient
    stop_gradient_norm: float | None
    hessian: LaneHessian | None = None

    def parameters(self, coordinates: Array, matrices: Sequence[Array]) -> dict[str, Array]:
        """Named parameters (S, K, ...) from coordinates (S, K, d)."""
        return by_name(self.ops, self.update.layout.parameters, self.flat(coordinates, matrices))

    def flat(self, coordinates: Array, matrices: Sequence[Array]) -> Array:
        """Parameters end to end (S, K, d) from coordinates."""
        return self.update.layout.to_parameters(self.ops, matrices, coordinates)

    def coordinates(self, params: Mapping[str, Array], matrices: Sequence[Array]) -> Array:
        """Coordinates (S, K, d) from named parameters or gradients (S, K, ...)."""
        lay = self.update.layout
        return lay.to_coordinates(self.ops, matrices, end_to_end(self.ops, lay.parameters, params, 2))

    def start(self, params: Mapping[str, Array], model: dict[str, Array], constants: Constants) -> Carry:
        """The carry before the first step: the same point in every basis (000 Sec. 6)."""
        coordinates = self.coordinates(params, constants.matrices)
        lanes = tuple(coordinates.shape[:2])
        state = self.update.init(self.ops, coordinates)
        return Carry(coordinates, state, model, self.ops.zeros(lanes), self.ops.zeros(lanes))

    def values(self, constants: Constants, inputs: Inputs) -> dict[str, Array]:
        """Hyperparameters as given, the number of the step and the schedule, each (1, K, 1) or (1, 1, 1)."""
        one = self.ops.zeros((1, 1, 1))
        return {**constants.hyper, "schedule": one + inputs.schedule, "step": one + inputs.step}

    def move(
        self,
        coordinates: Array,
        state: tuple[Any, ...],
        grads: Mapping[str, Array],
        constants: Constants,
        inputs: Inputs,
        hessian: Array | None = None,
        refresh: int = Work.NONE,
    ) -> tuple[Array, tuple[Any, ...]]:
        """Coordinates and state after the rule's update by gradients in the original coordinates.

        The Hessian, where there is one, is (S, K, d, d) in the layout's order, original coordinates too.
        """
        grad = self.coordinates(grads, constants.matrices)
        values = self.values(constants, inputs)
        if hessian is not None:
            values["hessian"] = self.rotated(hessian, constants.matrices)
        return self.update.apply(self.ops, grad, state, coordinates, values, refresh)

    def turned(self, state: Sequence[Any], old: Sequence[Array], new: Sequence[Array]) -> tuple[Any, ...]:
        """The rules' state in the coordinates of new matrices: a first moment m becomes J_new^T (J_old m).

        Raises:
            OptionError: where the state cannot go on in other coordinates.
        """
        lay = self.update.layout

        def turn(moment: Array) -> Array:
            return lay.to_coordinates(self.ops, new, lay.to_parameters(self.ops, old, moment))

        return self.update.turned(self.ops, state, turn)

    def rotated(self, hessian: Array, matrices: Sequence[Array]) -> Array:
        """J^T H J, one row and column a coordinate, of (S, K, d, d); J is V for a rotation."""
        ops, lay = self.ops, self.update.layout
        for _ in range(2):
            seeds, settings, rows, size = hessian.shape
            turned = lay.to_coordinates(ops, matrices, ops.reshape(hessian, (seeds, settings * rows, size)))
            hessian = ops.swapaxes(ops.reshape(turned, (seeds, settings, rows, -1)), -1, -2)
        return hessian

    def curvature(
        self, point: Array, model: dict[str, Array], constants: Constants, inputs: Inputs
    ) -> Array | None:
        """The Hessian (S, K, d, d) of the minibatch's loss at coordinates (S, K, d), where it is needed."""
        if self.hessian is None:
            return None
        flat = self.flat(point, constants.matrices)
        return self.hessian(flat, model, pick(constants, inputs), inputs.noise or {})

    def is_short(self, grads: Mapping[str, Array]) -> Array:
        """Lanes (S, K) whose gradient is below the threshold."""
        assert self.stop_gradient_norm is not None
        flat = end_to_end(self.ops, self.update.layout.parameters, grads, 2)
        return self.ops.sqrt(self.ops.sum(self.ops.square(flat), axis=-1)) < self.stop_gradient_norm

    def step(self, carry: Carry, constants: Constants, inputs: Inputs, refresh: int = Work.NONE) -> Carry:
        """One optimization step of every lane (000 Alg. 2.1 lines 5-6 where there is a basis)."""
        ops = self.ops
        point = self.update.point(ops, carry.state, carry.coordinates, self.values(constants, inputs))
        params = self.parameters(point, constants.matrices)
        loss, grads, model = self.gradient(params, carry.model, pick(constants, inputs), inputs.noise or {})
        hessian = self.curvature(point, carry.model, constants, inputs)
        coordinates, state = self.move(
            carry.coordinates, carry.state, grads, constants, inputs, hessian, refresh
        )
        failed = (carry.diverged_at == 0) & ~ops.isfinite(loss)
        diverged_at = ops.where(failed, inputs.step, carry.diverged_at)
        stopped_at = carry.stopped_at
        if self.stop_gradient_norm is not None:
            # Step t begins after t - 1 updates; a lane that stops keeps those.
            stopped_at = ops.where((stopped_at == 0) & self.is_short(grads), inputs.step, stopped_at)
            held = (carry.coordinates, carry.state, carry.model)
            coordinates, state, model = where_lanes(ops, stopped_at > 0, held, (coordinates, state, model))
        return Carry(coordinates, state, model, diverged_at, stopped_at)
