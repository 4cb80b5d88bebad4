"""Evaluation of a loss at one step, mapped over lanes: the gradient, the needs of a rule, and metrics."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol

from curvebench.arrays.ops import Array, Ops
from curvebench.optimizers.arrays import map_arrays
from curvebench.optimizers.needs import LossAtPoint, Model, Need
from curvebench.steps.layout import Layout, by_name, end_to_end
from curvebench.workloads.workload import Likelihood

Function = Callable[..., Any]


class StepInfo(NamedTuple):
    """Loss, gradient and needs of a step, for lanes (S, K) of S seeds and K settings."""

    loss: Array  # (S, K)
    gradient: dict[str, Array]  # each (S, K, *shape), by parameter name and in the original coordinates
    model: dict[str, Array]  # the state of the model after the loss, each (S, K, ...)
    # The values of the rule's needs by name, each (S, K, ...) or nested mappings of such arrays.
    # Coordinates are the original ones. Amortized needs are missing at steps that do not observe.
    needs: dict[str, Any]


# Called with params, model, batch, noise, and whether amortized needs are to be evaluated.
Evaluation = Callable[[Any, Any, Any, Any, bool], StepInfo]


class Derivatives(Protocol):
    """Automatic differentiation and mapping of functions by a backend.

    An argument `single` says that the function belongs to one run and is not mapped over lanes, so that a
    backend may use a faster implementation for it.
    """

    ops: Ops  # array functions for rules and needs
    model_ops: Ops  # array functions for losses and metrics, which may compute products in a lower precision
    # Array functions for losses and metrics of single runs, whose second derivatives are not taken.
    # These functions may use kernels that can be neither mapped nor differentiated twice.
    single_run_ops: Ops
    many_examples: float  # lanes with at least this number of examples are faster one after another

    def products(self) -> AbstractContextManager[Any]:
        """Return a context with the precision of a model's products, for a library with such a setting."""

    def vmap(self, function: Function, axes: tuple[int | None, ...]) -> Function:
        """Map a function over one axis of each argument that has an axis in `axes`, vectorized."""

    def sequential_map(self, function: Function, axes: tuple[int | None, ...]) -> Function:
        """Map a function over the first axis of each argument with axis 0, one element after another."""

    def value_and_grad(self, function: Function, single: bool) -> Function:
        """Differentiate `function(params, *arguments) -> (value, others)` with respect to `params`.

        Returns:
            A function `(params, *arguments) -> ((value, others), grads)`.
        """

    def unbatched(self, function: Function) -> Function:
        """Prepare a function of a single run, so that `compile_unbatched` can compile it by itself later."""

    def grad(self, function: Function) -> Function:
        """Return the gradient of a scalar function."""

    def hessian(self, function: Function) -> Function:
        """Return the Hessian of a scalar function of a vector."""

    def vjp(self, function: Function, point: Any, single: bool) -> tuple[Any, Function, Any]:
        """Return `(value, pullback, others)` for a function with `function(point) -> (value, others)`.

        `pullback` maps a cotangent of the value, which is an array, to a cotangent of `point`.
        """

    def accumulate(self, function: Function, carry: Any, parts: Any) -> tuple[Any, Any]:
        """Apply `function(carry, part) -> (carry, summand)` to successive parts, and add the summands.

        The memory that one part takes is free before the next part begins.

        Args:
            parts: nested arrays whose first axis is the part.

        Returns:
            The last carry, and the sum.
        """


@dataclass(frozen=True)
class OverLanes:
    """A function `f(params, model, batch, *noise)` of one run, mapped over lanes: settings, then seeds.

    With few examples, all lanes are computed at once, which saves overhead per operation. With many examples,
    lanes are computed one after another, so that the activations of a lane stay in the cache of the CPU. One
    lane is not mapped at all, since a mapped convolution becomes a grouped convolution, which is slower.

    Args:
        derivatives: the backend's mapping.
        mapped: the function of one run, for several lanes.
        single: the function of one run, for a bundle with one lane.
        per_seed: whether the batch has the axis of seeds first; noise always has it.
    """

    derivatives: Derivatives
    mapped: Function
    single: Function
    per_seed: bool

    def __call__(self, params: Any, model: Any, batch: Any, *noises: Any) -> Any:
        """Call the function for all lanes; its result gets the axes (S, K) first."""
        if _first(params).shape[:2] == (1, 1):
            batch = _at(batch, 0) if self.per_seed else batch
            lane_noises = [_at(noise, 0) for noise in noises]
            result = self.single(_at(params, (0, 0)), _at(model, (0, 0)), batch, *lane_noises)
            return map_arrays(lambda array: array[None, None], result)
        shapes = [array.shape[self.per_seed :] for array in batch.values() if array.ndim > self.per_seed]
        # Only arrays with more examples than numbers per example count.
        # A large square matrix is faster to multiply with all lanes at once.
        examples = max((shape[0] for shape in shapes if shape[0] > math.prod(shape[1:])), default=0)
        is_sequential = examples >= self.derivatives.many_examples
        mapping = self.derivatives.sequential_map if is_sequential else self.derivatives.vmap
        over_settings = mapping(self.mapped, (0, 0, None, *(None for _ in noises)))
        over_seeds = mapping(over_settings, (0, 0, 0 if self.per_seed else None, *(0 for _ in noises)))
        return over_seeds(params, model, batch, *noises)


def _first(params: Any) -> Array:
    return next(iter(params.values())) if isinstance(params, Mapping) else params


def _at(arrays: Any, index: Any) -> Any:
    return map_arrays(lambda array: array[index], arrays)


# Key, in the noise of a step, of the random numbers from which a need samples targets.
DRAWS = "drawn targets"


def model_of(lay: Layout) -> Model:
    """Return the shapes and roles of a layout's parameters, as the functions of a need expect them."""
    return Model(lay.parameters, lay.roles)


@dataclass(frozen=True)
class StepEvaluation:
    """Evaluation of a step for all lanes: loss, gradient and the needs of a rule (see `Evaluation`).

    Args:
        derivatives: the backend's automatic differentiation.
        loss: the loss of the workload.
        per_seed: whether a batch has the axis of seeds first; noise always has it.
        likelihood: the likelihood of the workload, for needs that require it.
        lay: the layout of the parameters; None only if there are no needs.
        needs: the needs of the rule.
    """

    derivatives: Derivatives
    loss: Function
    per_seed: bool
    likelihood: Likelihood | None = None
    lay: Layout | None = None
    needs: Sequence[Need] = ()

    def __call__(self, params: Any, model: Any, batch: Any, noise: Any, observes: bool) -> StepInfo:
        """Evaluate a step. Amortized needs are evaluated only if the step `observes`."""
        due = [need for need in self.needs if observes or not need.amortized]
        mapped, unmapped = (partial(self.of_one, single, due) for single in (False, True))
        over_lanes = OverLanes(self.derivatives, mapped, unmapped, self.per_seed)
        return over_lanes(params, model, batch, noise)

    @cached_property
    def loss_gradient(self) -> Function:
        """The function `(params, model, batch, noise) -> ((loss, new model), grads)` of a single run.

        A backend may compile it by itself (`Engine.compile_unbatched`).
        """
        return self._differentiated(single=True)

    @cached_property
    def _mapped_gradient(self) -> Function:
        return self._differentiated(single=False)

    def _differentiated(self, single: bool) -> Function:
        # A need computes with `model_ops`, and its arrays must be the same as those of the gradient.
        table = self.derivatives.single_run_ops if single and not self.needs else self.derivatives.model_ops

        def value(params: Any, model: Any, batch: Any, noise: Any) -> Any:
            loss_value, new_model, _ = self.loss(table, params, model, batch, noise)
            return loss_value, new_model

        return self.derivatives.value_and_grad(value, single)

    def of_one(
        self, single: bool, due: Sequence[Need], params: Any, model: Any, batch: Any, noise: Any
    ) -> StepInfo:
        """Evaluate a step of one run.

        Args:
            single: whether this call is not mapped over lanes.
            due: the needs to evaluate.
            params, model, batch, noise: arrays of one run, without the axes of lanes.
        """
        loss_noise = {name: value for name, value in noise.items() if name != DRAWS}
        gradient = self.loss_gradient if single else self._mapped_gradient
        with self.derivatives.products():
            (value, new_model), grads = gradient(params, model, batch, loss_noise)
        point = map_arrays(self.derivatives.ops.astype_float, params) if due else params
        at_point = partial(self._point, single, point, model, batch, loss_noise, noise.get(DRAWS))
        return StepInfo(value, grads, new_model, {need.name: need.evaluate(at_point()) for need in due})

    def _point(self, single: bool, params: Any, state: Any, batch: Any, noise: Any, draw: Any) -> LossAtPoint:
        """Return the loss as a function of the parameters of a run, which needs evaluate at `params`."""
        ops, lay, likelihood = self.derivatives.ops, self.lay, self.likelihood
        assert lay is not None, "given where there are needs"

        def loss_by(table: Ops, params: Any) -> Any:
            return self.loss(table, params, state, batch, noise)[0]

        def outputs(table: Ops, params: Any) -> Any:
            assert likelihood is not None, "given only where there is one"
            return likelihood.outputs(table, params, state, batch, noise)

        return LossAtPoint(
            ops=ops,
            model=model_of(lay),
            point=end_to_end(ops, lay.parameters, params, 0),
            parameters=params,
            loss=lambda vector: loss_by(ops, by_name(ops, lay.parameters, vector)),
            loss_by=loss_by,
            outputs=outputs if likelihood else None,
            likelihood=likelihood,
            draws=draw,
            examples=next(iter(batch.values())).shape[0],
            derivatives=self.derivatives,
            alone=single,
        )


def lane_evaluation(derivatives: Derivatives, evaluate: Function, per_seed: bool) -> OverLanes:
    """Map the metrics of a workload over lanes: `f(params, model, split) -> values by name`, each (S, K).

    Call the result in the context `Derivatives.products`.

    Args:
        evaluate: `evaluate(ops, params, model, split)` of the workload.
        per_seed: whether a split has the axis of seeds first.
    """

    def with_table(table: Ops) -> Function:
        def evaluate_run(params: Any, model: Any, split: Any) -> Any:
            return evaluate(table, params, model, split)

        return evaluate_run

    single = derivatives.unbatched(with_table(derivatives.single_run_ops))
    return OverLanes(derivatives, with_table(derivatives.model_ops), single, per_seed)


def sampled_gradients(derivatives: Derivatives, loss: Function, per_sample: bool, single: bool) -> Function:
    """Return `f(params, model, batch, noise) -> grads` for several parameter samples at once.

    Parameters, noise and the result have an axis of samples first.

    Args:
        derivatives: the backend's automatic differentiation.
        loss: the loss of the workload.
        per_sample: whether the batch has the axis of samples, too.
        single: whether that axis has length 1, so that nothing need be mapped.
    """
    evaluation = StepEvaluation(derivatives, loss, per_sample)

    def gradient(params: Any, model: Any, batch: Any, noise: Any) -> Any:
        return evaluation.of_one(single, (), params, model, batch, noise).gradient

    def single_gradient(params: Any, model: Any, batch: Any, noise: Any) -> Any:
        batch = _at(batch, 0) if per_sample else batch
        grads = gradient(_at(params, 0), model, batch, _at(noise, 0))
        return map_arrays(lambda grad: grad[None], grads)

    return single_gradient if single else derivatives.vmap(gradient, (0, None, 0 if per_sample else None, 0))
