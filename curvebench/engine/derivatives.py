"""What is evaluated of a loss at a step, mapped over lanes: gradient, what the rule needs, and metrics."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from curvebench.backends.ops import Array, Ops
from curvebench.engine.layout import Layout, by_name, end_to_end
from curvebench.optimizers.needs import LossAtPoint, Model, Need
from curvebench.workloads.workload import Likelihood

Function = Callable[..., Any]


class StepInfo(NamedTuple):
    """What a step learns of the loss at its point; (S, K) are seeds and settings."""

    loss: Array  # (S, K)
    gradient: dict[str, Array]  # each (S, K, *shape), in the original coordinates
    model: dict[str, Array]  # model state after the loss, each (S, K, ...)
    # what the rule needs besides, each (S, K, ...) or nested mappings of such, in the original coordinates
    needs: dict[str, Any]


# of params, model, batch and noise, and whether amortized needs are evaluated
Evaluation = Callable[[Any, Any, Any, Any, bool], StepInfo]


class Derivatives(Protocol):
    """A backend's automatic differentiation."""

    ops: Ops
    model_ops: Ops  # of losses and metrics, where it differs from that of rules and of what they need
    single_run_ops: Ops  # as `model_ops`, where nothing is mapped and no second derivative is taken
    many_examples: float  # of which the lanes' losses are sooner computed in turn

    def products(self) -> AbstractContextManager[Any]:
        """The precision of a model's products, where the backend has it from what surrounds them."""

    def vmap(self, function: Function, axes: tuple[int | None, ...]) -> Function:
        """The function mapped over one axis of some of its arguments."""

    def in_turn(self, function: Function, axes: tuple[int | None, ...]) -> Function:
        """As `vmap` with axes 0 or None, one element after another."""

    def value_and_grad(self, function: Function, alone: bool) -> Function:
        """`f(params, *given) -> ((value, others), grads)` of `function(params, *given) -> (value, others)`.

        `alone` says that it is not mapped.
        """

    def alone(self, function: Function) -> Function:
        """A function that is not mapped, as the backend may compile it by itself (`Engine.compile_alone`)."""

    def grad(self, function: Function) -> Function:
        """The gradient of a scalar function."""

    def hessian(self, function: Function) -> Function:
        """The Hessian of a scalar function of a vector."""

    def vjp(self, function: Function, point: Any, alone: bool) -> tuple[Any, Function, Any]:
        """`(value, pullback, others)` of `function(point) -> (value, others)`, an array and a tree of arrays.

        `alone` says that it is not mapped.
        """

    def accumulate(self, function: Function, carry: Any, parts: Any) -> tuple[Any, Any]:
        """`(carry, total)` of `function(carry, part) -> (carry, summand)` along the first axis of `parts`.

        One part after another: what a part holds on its way is given back before the next.
        """


def over_lanes(derivatives: Derivatives, one: Function, per_seed: bool, noise: bool) -> Function:
    """`one(params, model, batch)`, or with noise, mapped over settings and then seeds.

    Few examples are computed for all lanes at once, which saves overhead, and many in turn, which keeps
    what lies between layers in the processor's cache.

    Args:
        per_seed: whether the batch has a leading axis of seeds; noise always has one.
        noise: whether that is an argument.
    """

    def nested(mapping: Callable[..., Function]) -> Function:
        over_settings = mapping(one, (0, 0, None, *(None,) * noise))
        return mapping(over_settings, (0, 0, 0 if per_seed else None, *(0,) * noise))

    at_once, in_turn = nested(derivatives.vmap), nested(derivatives.in_turn)

    def mapped(params: Any, model: Any, batch: Any, *noises: Any) -> Any:
        shapes = [each.shape[per_seed:] for each in batch.values() if each.ndim > per_seed]
        # examples are more than the numbers of each; a large square matrix serves all lanes sooner at once
        examples = max((shape[0] for shape in shapes if shape[0] > math.prod(shape[1:])), default=0)
        return (in_turn if examples >= derivatives.many_examples else at_once)(params, model, batch, *noises)

    return mapped


@dataclass(frozen=True)
class OverLanes:
    """A function `f(params, model, batch, *noise)` of lanes (S, K).

    A single run need not pay for mapping: a mapped convolution is a grouped one, which is slower.

    Args:
        mapped: over settings and then seeds.
        single: of one run.
        per_seed: whether the batch has a leading axis of seeds; noise always has one.
    """

    mapped: Function
    single: Function
    per_seed: bool

    def __call__(self, params: Any, model: Any, batch: Any, *noises: Any) -> Any:
        """What it gives, with the axes of lanes in front."""
        if _first(params).shape[:2] != (1, 1):
            return self.mapped(params, model, batch, *noises)
        batch = _at(batch, 0) if self.per_seed else batch
        own = [_at(noise, 0) for noise in noises]
        found = self.single(_at(params, (0, 0)), _at(model, (0, 0)), batch, *own)
        return map_arrays(lambda array: array[None, None], found)


def _first(params: Any) -> Array:
    return next(iter(params.values())) if isinstance(params, Mapping) else params


def _at(arrays: Any, index: Any) -> Any:
    return map_arrays(lambda array: array[index], arrays)


def map_arrays(function: Function, tree: Any, *others: Any) -> Any:
    """A function of the arrays of nested mappings and tuples, and of their like in others."""
    if isinstance(tree, Mapping):
        return {
            name: map_arrays(function, value, *(other[name] for other in others))
            for name, value in tree.items()
        }
    if isinstance(tree, tuple):
        parts = [map_arrays(function, *each) for each in zip(tree, *others, strict=True)]
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    return function(tree, *others)


def _differentiated(derivatives: Derivatives, loss: Function, alone: bool, shared: bool = False) -> Function:
    """`f(params, model, batch, noise) -> ((loss, new model state), gradient)` of one lane.

    `shared` says that what it computes is computed for a need too, and is the same there.
    """
    table = derivatives.single_run_ops if alone and not shared else derivatives.model_ops

    def value(params: Any, model: Any, batch: Any, noise: Any) -> Any:
        loss_value, new_model, _ = loss(table, params, model, batch, noise)
        return loss_value, new_model

    return derivatives.value_and_grad(value, alone)


def _gradient(derivatives: Derivatives, differentiated: Function) -> Function:
    """Loss, gradient and new model state, `f(params, model, batch, noise)`, of one lane."""

    def of_one(params: Any, model: Any, batch: Any, noise: Any) -> Any:
        with derivatives.products():
            (loss_value, new_model), grads = differentiated(params, model, batch, noise)
        return loss_value, grads, new_model

    return of_one


def lane_gradient(derivatives: Derivatives, loss: Function, per_seed: bool) -> Function:
    """Loss, gradient and new model state, `f(params, model, batch, noise)`, of lanes (S, K)."""
    mapped, single = (
        _gradient(derivatives, _differentiated(derivatives, loss, alone)) for alone in (False, True)
    )
    return OverLanes(over_lanes(derivatives, mapped, per_seed, noise=True), single, per_seed)


DRAWS = "drawn targets"  # among noise, what a need draws targets with


def model_of(lay: Layout) -> Model:
    """The parameters of a layout as a need sees them."""
    return Model(lay.parameters, lay.roles)


@dataclass(frozen=True)
class StepEvaluation:
    """The evaluation of a step; see `Evaluation` for what it is called with.

    Args:
        evaluate: that.
        loss_gradient: the backend's value and gradient of a single run's loss, which it calls.
    """

    evaluate: Evaluation
    loss_gradient: Function

    def __call__(self, params: Any, model: Any, batch: Any, noise: Any, observes: bool) -> StepInfo:
        """What a step learns of the loss."""
        return self.evaluate(params, model, batch, noise, observes)


def step_evaluation(
    derivatives: Derivatives,
    loss: Function,
    likelihood: Likelihood | None,
    lay: Layout,
    per_seed: bool,
    needs: Sequence[Need],
) -> StepEvaluation:
    """The evaluation of a step: the gradient of every lane, and what a rule needs besides."""
    ops = derivatives.ops

    def needed(need: Need, alone: bool, params: Any, state: Any, batch: Any, noise: Any, draws: Any) -> Any:
        params = map_arrays(ops.astype_float, params)

        def loss_by(table: Ops, params: Any) -> Any:
            return loss(table, params, state, batch, noise)[0]

        def outputs(table: Ops, params: Any) -> Any:
            assert likelihood is not None, "given only where there is one"
            return likelihood.outputs(table, params, state, batch, noise)

        return need.evaluate(
            LossAtPoint(
                ops=ops,
                model=model_of(lay),
                point=end_to_end(ops, lay.parameters, params, 0),
                parameters=params,
                loss=lambda vector: loss_by(ops, by_name(ops, lay.parameters, vector)),
                loss_by=loss_by,
                outputs=outputs if likelihood else None,
                likelihood=likelihood,
                draws=draws,
                examples=next(iter(batch.values())).shape[0],
                derivatives=derivatives,
                alone=alone,
            )
        )

    mapped, single = (
        _differentiated(derivatives, loss, alone, shared=bool(needs)) for alone in (False, True)
    )

    def evaluation(due: Sequence[Need]) -> Function:
        def one(alone: bool) -> Function:
            gradient = _gradient(derivatives, single if alone else mapped)

            def of_one(params: Any, model: Any, batch: Any, noise: Any) -> StepInfo:
                own = {name: value for name, value in noise.items() if name != DRAWS}
                value, grads, new_model = gradient(params, model, batch, own)
                draws = noise.get(DRAWS)
                found = {need.name: needed(need, alone, params, model, batch, own, draws) for need in due}
                return StepInfo(value, grads, new_model, found)

            return of_one

        return OverLanes(over_lanes(derivatives, one(False), per_seed, noise=True), one(True), per_seed)

    always, observing = evaluation([need for need in needs if not need.amortized]), evaluation(needs)

    def evaluate(params: Any, model: Any, batch: Any, noise: Any, observes: bool) -> StepInfo:
        return (observing if observes else always)(params, model, batch, noise)

    return StepEvaluation(evaluate, single)


def lane_evaluation(derivatives: Derivatives, evaluate: Function, per_seed: bool) -> OverLanes:
    """A workload's metrics, `f(params, model, split)`, of lanes (S, K); call it inside `products`."""

    def by(table: Ops) -> Function:
        def one(params: Any, model: Any, split: Any) -> Any:
            return evaluate(table, params, model, split)

        return one

    mapped = over_lanes(derivatives, by(derivatives.model_ops), per_seed, noise=False)
    return OverLanes(mapped, derivatives.alone(by(derivatives.single_run_ops)), per_seed)


def sampled_gradients(derivatives: Derivatives, loss: Function, per_sample: bool, alone: bool) -> Function:
    """`f(params, model, batch, noise) -> grads` of samples, a leading axis of parameters and noise.

    Args:
        derivatives, loss: what differentiates, and the workload's.
        per_sample: whether the batch has that axis too.
        alone: whether the axis has one sample, which is not mapped.
    """
    gradient = _gradient(derivatives, _differentiated(derivatives, loss, alone))

    def one(params: Any, model: Any, batch: Any, noise: Any) -> Any:
        return gradient(params, model, batch, noise)[1]

    def single(params: Any, model: Any, batch: Any, noise: Any) -> Any:
        batch = _at(batch, 0) if per_sample else batch
        found = one(_at(params, 0), model, batch, _at(noise, 0))
        return map_arrays(lambda grad: grad[None], found)

    return single if alone else derivatives.vmap(one, (0, None, 0 if per_sample else None, 0))
