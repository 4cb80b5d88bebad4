"""What is evaluated of a loss at a step, mapped over lanes: gradient, what the rule needs, and metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from harness.backends.ops import Array, Ops
from harness.engine.layout import Layout, by_name, end_to_end
from optimizers.needs import LossAtPoint, Need

Function = Callable[..., Any]


class StepInfo(NamedTuple):
    """What a step learns of the loss at its point; (S, K) are seeds and settings."""

    loss: Array  # (S, K)
    gradient: dict[str, Array]  # each (S, K, *shape), in the original coordinates
    model: dict[str, Array]  # model state after the loss, each (S, K, ...)
    needs: dict[str, Array]  # what the rule needs besides, each (S, K, ...), original coordinates too


Evaluation = Callable[[Any, Any, Any, Any], StepInfo]  # of params, model, batch and noise


class Derivatives(Protocol):
    """A backend's automatic differentiation."""

    ops: Ops

    def vmap(self, function: Function, axes: tuple[int | None, ...]) -> Function:
        """The function mapped over one axis of some of its arguments."""

    def value_and_grad(self, function: Function, alone: bool) -> Function:
        """`f(params) -> ((value, others), grads)` of `function(params) -> (value, others)`.

        `alone` says that it is not mapped.
        """

    def grad(self, function: Function) -> Function:
        """The gradient of a scalar function."""

    def hessian(self, function: Function) -> Function:
        """The Hessian of a scalar function of a vector."""


def over_lanes(derivatives: Derivatives, one: Function, per_seed: bool, noise: bool) -> Function:
    """`one(params, model, batch)`, or with noise, mapped over settings and then seeds.

    Args:
        per_seed: whether the batch has a leading axis of seeds; noise always has one.
        noise: whether that is an argument.
    """
    mapped = derivatives.vmap(one, (0, 0, None, *(None,) * noise))
    return derivatives.vmap(mapped, (0, 0, 0 if per_seed else None, *(0,) * noise))


def lane_gradient(derivatives: Derivatives, loss: Function, per_seed: bool) -> Function:
    """Loss, gradient and new model state, `f(params, model, batch, noise)`, of lanes (S, K)."""

    def one(alone: bool) -> Function:
        def of_one(params: Any, model: Any, batch: Any, noise: Any) -> Any:
            def value(params: Any) -> Any:
                loss_value, new_model, _ = loss(derivatives.ops, params, model, batch, noise)
                return loss_value, new_model

            (loss_value, new_model), grads = derivatives.value_and_grad(value, alone)(params)
            return loss_value, grads, new_model

        return of_one

    mapped, single = over_lanes(derivatives, one(False), per_seed, noise=True), one(True)

    def gradient(params: Any, model: Any, batch: Any, noise: Any) -> Any:
        if next(iter(params.values())).shape[:2] != (1, 1):
            return mapped(params, model, batch, noise)
        # A single run need not pay for mapping: a mapped convolution is a grouped one, which is slower.
        batch = _at(batch, 0) if per_seed else batch
        value, grads, new_model = single(_at(params, (0, 0)), _at(model, (0, 0)), batch, _at(noise, 0))
        return value[None, None], _as_lane(grads), _as_lane(new_model)

    return gradient


def _at(arrays: Mapping[str, Array], index: Any) -> dict[str, Array]:
    return {name: array[index] for name, array in arrays.items()}


def _as_lane(arrays: Mapping[str, Array]) -> dict[str, Array]:
    return {name: array[None, None] for name, array in arrays.items()}


def step_evaluation(
    derivatives: Derivatives, loss: Function, lay: Layout, per_seed: bool, needs: Sequence[Need]
) -> Evaluation:
    """The evaluation of a step: the gradient of every lane, and what a rule needs besides."""
    ops = derivatives.ops

    def value_of(need: Need) -> Function:
        def one(flat: Any, model: Any, batch: Any, noise: Any) -> Any:
            def value(vector: Any) -> Any:
                return loss(ops, by_name(ops, lay.parameters, vector), model, batch, noise)[0]

            return need.evaluate(LossAtPoint(ops, flat, value, derivatives.grad, derivatives.hessian))

        return over_lanes(derivatives, one, per_seed, noise=True)

    gradient = lane_gradient(derivatives, loss, per_seed)
    needed = {need.name: value_of(need) for need in needs}

    def evaluate(params: Any, model: Any, batch: Any, noise: Any) -> StepInfo:
        value, grads, new_model = gradient(params, model, batch, noise)
        flat = end_to_end(ops, lay.parameters, params, 2) if needed else None
        found = {name: function(flat, model, batch, noise) for name, function in needed.items()}
        return StepInfo(value, grads, new_model, found)

    return evaluate


def lane_evaluation(derivatives: Derivatives, evaluate: Function, per_seed: bool) -> Function:
    """A workload's metrics, `f(params, model, split)`, of lanes (S, K)."""

    def one(params: Any, model: Any, split: Any) -> Any:
        return evaluate(derivatives.ops, params, model, split)

    return over_lanes(derivatives, one, per_seed, noise=False)


def sampled_gradients(derivatives: Derivatives, loss: Function, per_sample: bool) -> Function:
    """`f(params, model, batch, noise) -> grads` mapped over a leading axis of parameters and noise.

    `per_sample` says whether the batch has that axis too.
    """

    def one(params: Any, model: Any, batch: Any, noise: Any) -> Any:
        return derivatives.grad(lambda p: loss(derivatives.ops, p, model, batch, noise)[0])(params)

    return derivatives.vmap(one, (0, None, 0 if per_sample else None, 0))
