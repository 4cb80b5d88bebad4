"""What one step of a bundle computes, written once for every backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from harness.backends.ops import Array, Ops
from harness.layout import Layout
from optimizers.rule import Rule

TO_PARAMETERS = "sij,skj->ski"  # theta = V theta~, one V a seed (s), any number of settings (k)
TO_COORDINATES = "sij,ski->skj"  # theta~ = V^T theta, and the same for gradients


@dataclass(frozen=True)
class Update:
    """A rule bound to a layout: how it sees the flat buffer of shape (*lanes, total)."""

    rule: Rule
    layout: Layout

    def init(self, ops: Ops, flat: Array) -> Any:
        """The rule's state at the first parameters."""
        if self.rule.elementwise:
            return self.rule.init(ops, flat)
        return {name: self.rule.init(ops, leaf) for name, leaf in self.layout.unflatten(ops, flat).items()}

    def apply(
        self, ops: Ops, grad: Array, state: Any, flat: Array, hyper: Mapping[str, Array]
    ) -> tuple[Array, Any]:
        """One update; hyperparameters have the buffer's number of axes, the last of length 1."""
        if self.rule.elementwise:
            return self.rule.update(ops, grad, state, flat, hyper)
        grads, leaves = self.layout.unflatten(ops, grad), self.layout.unflatten(ops, flat)
        lanes = flat.ndim - 1
        new_leaves, new_state = {}, {}
        for name, leaf in leaves.items():
            extra = (1,) * (leaf.ndim - lanes - 1)
            shaped = {key: ops.reshape(value, (*value.shape, *extra)) for key, value in hyper.items()}
            new_leaves[name], new_state[name] = self.rule.update(ops, grads[name], state[name], leaf, shaped)
        return self.layout.flatten(ops, new_leaves, lanes), new_state


class Carry(NamedTuple):
    """What a bundle carries from step to step; (S, K) are seeds and settings."""

    coordinates: Array  # (S, K, d), the parameters in the basis
    state: Any  # the rule's state
    model: dict[str, Array]  # model state, each (S, K, ...)
    diverged_at: Array  # (S, K), the step of the first loss that is not finite; 0 means none
    stopped_at: Array  # (S, K), the step whose gradient was below the threshold; 0 means none


class Constants(NamedTuple):
    """What a bundle reads at every step."""

    data: dict[str, Array]  # training arrays, (examples, ...) where seeds share them, else (S, examples, ...)
    rows: Array | None  # (S, 1), the numbers of the seeds; None where seeds share the data
    matrices: tuple[Array, ...]  # one (S, block, block) basis a block
    hyper: dict[str, Array]  # each (1, K, 1)


class Inputs(NamedTuple):
    """What differs from step to step; executors add a leading axis of steps."""

    step: Array  # the number of the step, from 1
    schedule: Array  # the learning rate's multiplier
    order: Any  # (S, batch_size) indices of the minibatch, or None for the full batch


def pick(constants: Constants, order: Array | None) -> dict[str, Array]:
    """The minibatch of each seed, (S, batch_size, ...), or all data where there is no order."""
    if order is None:
        return constants.data
    if constants.rows is None:
        return {name: values[order] for name, values in constants.data.items()}
    return {name: values[constants.rows, order] for name, values in constants.data.items()}


def _where(ops: Ops, lanes: Array, one: Any, other: Any) -> Any:
    """Nested arrays of which the lanes marked in an (S, K) mask come from `one`."""
    if isinstance(one, Mapping):
        return {name: _where(ops, lanes, value, other[name]) for name, value in one.items()}
    if isinstance(one, tuple):
        parts = [_where(ops, lanes, *pair) for pair in zip(one, other, strict=True)]
        return type(one)(*parts) if hasattr(one, "_fields") else tuple(parts)
    return ops.where(ops.reshape(lanes, (*lanes.shape, *(1,) * (one.ndim - 2))), one, other)


LaneGradient = Callable[..., tuple[Array, dict[str, Array], dict[str, Array]]]


@dataclass(frozen=True)
class Program:
    """The pure functions of a bundle.

    Args:
        ops: the backend's array functions.
        update: the rule on its layout.
        gradient: `gradient(params, model, batch) -> (loss, grads, model)`, mapped over lanes by the
            backend; a minibatch has the seeds as its first axis.
        stop_gradient_norm: a lane whose gradient is shorter stops; None never stops.
    """

    ops: Ops
    update: Update
    gradient: LaneGradient
    stop_gradient_norm: float | None

    def parameters(self, coordinates: Array, matrices: Sequence[Array]) -> dict[str, Array]:
        """Named parameters (S, K, ...) from coordinates (S, K, d)."""
        layout = self.update.layout
        return layout.unflatten(self.ops, layout.rotate(self.ops, matrices, coordinates, TO_PARAMETERS))

    def coordinates(self, params: Mapping[str, Array], matrices: Sequence[Array]) -> Array:
        """Coordinates (S, K, d) from named parameters or gradients (S, K, ...)."""
        layout = self.update.layout
        flat = layout.flatten(self.ops, params, 2)
        return layout.rotate(self.ops, matrices, flat, TO_COORDINATES)

    def start(self, params: Mapping[str, Array], model: dict[str, Array], constants: Constants) -> Carry:
        """The carry before the first step: the same point in every basis (000 Sec. 6)."""
        coordinates = self.coordinates(params, constants.matrices)
        lanes = tuple(coordinates.shape[:2])
        state = self.update.init(self.ops, coordinates)
        return Carry(coordinates, state, model, self.ops.zeros(lanes), self.ops.zeros(lanes))

    def move(
        self, coordinates: Array, state: Any, grads: Mapping[str, Array], constants: Constants, inputs: Inputs
    ) -> tuple[Array, Any]:
        """Coordinates and state after the rule's update by gradients in the original coordinates."""
        ops = self.ops
        hyper = dict(constants.hyper)
        hyper["learning_rate"] = hyper["learning_rate"] * inputs.schedule
        hyper["schedule"] = ops.zeros((1, 1, 1)) + inputs.schedule
        hyper["step"] = ops.zeros((1, 1, 1)) + inputs.step
        grad = self.coordinates(grads, constants.matrices)
        return self.update.apply(ops, grad, state, coordinates, hyper)

    def step(self, carry: Carry, constants: Constants, inputs: Inputs) -> Carry:
        """One optimization step of every lane (000 Alg. 2.1 lines 5-6 where there is a basis)."""
        ops = self.ops
        params = self.parameters(carry.coordinates, constants.matrices)
        batch = pick(constants, inputs.order)
        loss, grads, model = self.gradient(params, carry.model, batch)
        coordinates, state = self.move(carry.coordinates, carry.state, grads, constants, inputs)
        failed = (carry.diverged_at == 0) & ~ops.isfinite(loss)
        diverged_at = ops.where(failed, inputs.step, carry.diverged_at)
        stopped_at = carry.stopped_at
        if self.stop_gradient_norm is not None:
            flat = self.update.layout.flatten(ops, grads, 2)
            short = ops.sqrt(ops.sum(ops.square(flat), axis=-1)) < self.stop_gradient_norm
            # Step t begins after t - 1 updates; a lane that stops keeps those.
            stopped_at = ops.where((stopped_at == 0) & short, inputs.step, stopped_at)
            held = (carry.coordinates, carry.state, carry.model)
            coordinates, state, model = _where(ops, stopped_at > 0, held, (coordinates, state, model))
        return Carry(coordinates, state, model, diverged_at, stopped_at)
