"""Evaluation of a loss and its derivatives at one step, and of metrics, for all lanes of a bundle.

Lanes are the runs that one program computes together: S seeds x K settings of the hyperparameters. Arrays
with a value for each lane have the leading axes (S, K). The needs of an update rule are the values that it
uses in addition to the gradient, such as a Hessian. A need is amortized if only some steps evaluate it. A
step that does so is said to observe.
"""

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
    """Results of the evaluation of a step, for all lanes (runs): S seeds x K settings."""

    loss: Array  # loss of each lane, (S, K) for S seeds and K settings
    gradient: dict[str, Array]  # gradient by parameter name in the original coordinates, (S, K, *shape)
    model: dict[str, Array]  # arrays of the model's state after the loss was evaluated, (S, K, ...)
    # Values that the rule needs besides the gradient, by name, in the original coordinates.
    # Each value is an array (S, K, ...), or a nested mapping of such arrays.
    # Values that only some steps evaluate (amortized needs) are missing at all other steps.
    needs: dict[str, Any]


# Function `(params, model, batch, noise, observes) -> StepInfo` that evaluates a step.
# If `observes` is true, the function also evaluates the amortized needs of the rule.
Evaluation = Callable[[Any, Any, Any, Any, bool], StepInfo]


class Derivatives(Protocol):
    """Automatic differentiation and mapping of functions by a backend.

    Several methods have an argument `single`. If it is true, the differentiated function belongs to one run
    and is not mapped over lanes, so that a backend may use a faster implementation.
    """

    ops: Ops  # array functions for rules and needs
    model_ops: Ops  # array functions for losses and metrics; products may have a lower precision
    # Array functions for losses and metrics of single runs.
    # The functions may use kernels that cannot be mapped over lanes or differentiated twice.
    # Therefore losses whose second derivatives are computed do not use these functions.
    single_run_ops: Ops
    # If a batch has at least this number of examples, lanes are computed one by one.
    many_examples: float

    def products(self) -> AbstractContextManager[Any]:
        """Return a context in which the library computes matrix products in the precision of the model."""

    def vmap(self, function: Function, axes: tuple[int | None, ...]) -> Function:
        """Vectorize a function over one axis of each argument, given by `axes`.

        An argument with None instead of an axis is the same for all calls.
        """

    def sequential_map(self, function: Function, axes: tuple[int | None, ...]) -> Function:
        """Map a function over the first axis of each argument whose entry in `axes` is 0.

        Unlike `vmap`, this method may call the function for one element after another.
        """

    def value_and_grad(self, function: Function, single: bool) -> Function:
        """Differentiate `function(params, *arguments) -> (value, others)` with respect to `params`.

        Returns:
            A function `(params, *arguments) -> ((value, others), grads)`.
        """

    def unbatched(self, function: Function) -> Function:
        """Prepare a function of a single run, so that `Engine.compile_unbatched` can compile it later."""

    def grad(self, function: Function) -> Function:
        """Return the gradient of a scalar function."""

    def hessian(self, function: Function) -> Function:
        """Return the Hessian of a scalar function of a vector."""

    def vjp(self, function: Function, point: Any, single: bool) -> tuple[Any, Function, Any]:
        """Return `(value, pullback, others)` for `function(point) -> (value, others)`.

        `pullback` is the vector-Jacobian product: it maps a cotangent of the array `value` to a cotangent of
        `point`.
        """

    def accumulate(self, function: Function, carry: Any, parts: Any) -> tuple[Any, Any]:
        """Call `function(carry, part) -> (carry, summand)` for each part in turn, and add the summands.

        A part is, for example, a microbatch. The memory of one part is released before the next part is
        computed.

        Args:
            carry: value that the function receives with the first part. With each later part, the function
                receives the carry that it has returned for the part before.
            parts: nested arrays whose first axis counts the parts.

        Returns:
            The carry after the last part, and the sum of the summands.
        """


@dataclass(frozen=True)
class OverLanes:
    """A function `f(params, model, batch, *noise)` of one run, mapped over the lanes of a bundle.

    If a batch has few examples, all lanes are computed at once, which saves overhead per operation. With many
    examples, lanes are computed one after another, so that the activations of a lane stay in the cache of the
    CPU. If the bundle has a single lane, the function is not mapped, since a mapped convolution becomes a
    grouped convolution, which is slower.

    Args:
        derivatives: the backend, which provides the mappings.
        mapped: the function of one run that is mapped if there are several lanes.
        single: the function of one run that is called unmapped if there is one lane.
        per_seed: whether the first axis of the batch's arrays counts seeds. The first axis of the noise's
            arrays always counts seeds.
    """

    derivatives: Derivatives
    mapped: Function
    single: Function
    per_seed: bool

    def __call__(self, params: Any, model: Any, batch: Any, *noises: Any) -> Any:
        """Call the function for all lanes. Arrays of the result have the leading axes (seeds, settings)."""
        if _first(params).shape[:2] == (1, 1):
            batch = _at(batch, 0) if self.per_seed else batch
            lane_noises = [_at(noise, 0) for noise in noises]
            result = self.single(_at(params, (0, 0)), _at(model, (0, 0)), batch, *lane_noises)
            return map_arrays(lambda array: array[None, None], result)
        shapes = [array.shape[self.per_seed :] for array in batch.values() if array.ndim > self.per_seed]
        # Ignore an array if an example has at least as many numbers as the array has examples.
        # Such an array may be one large square matrix.
        # One product of the matrix with all lanes at once is faster than a product for each lane.
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


# Key in the random numbers of a step, for the numbers that a need of the rule draws (`Need.draw`).
# A sampled Fisher matrix, for example, draws targets.
DRAWS = "drawn targets"


def model_of(lay: Layout) -> Model:
    """Return the shapes and roles of a layout's parameters, the description that a `Need` expects."""
    return Model(lay.parameters, lay.roles)


@dataclass(frozen=True)
class StepEvaluation:
    """Function that evaluates the loss, the gradient and what else the rule needs in a step, for all lanes.

    A call returns an `Evaluation`.

    Args:
        derivatives: the backend's automatic differentiation.
        loss: the loss of the workload.
        per_seed: whether the first axis of a batch's arrays counts seeds. The first axis of the noise's
            arrays always counts seeds.
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
        """Evaluate a step of all lanes. Amortized needs are evaluated only if `observes` is true."""
        due = [need for need in self.needs if observes or not need.amortized]
        mapped, unmapped = (partial(self.of_one, single, due) for single in (False, True))
        over_lanes = OverLanes(self.derivatives, mapped, unmapped, self.per_seed)
        return over_lanes(params, model, batch, noise)

    @cached_property
    def loss_gradient(self) -> Function:
        """The function `(params, model, batch, noise) -> ((loss, new model), grads)` of a single run.

        A backend may compile this function separately (`Engine.compile_unbatched`).
        """
        return self._differentiated(single=True)

    @cached_property
    def _mapped_gradient(self) -> Function:
        return self._differentiated(single=False)

    def _differentiated(self, single: bool) -> Function:
        # Needs are computed with `ops`, and not with the fused functions of `single_run_ops`.
        # If there are needs, the gradient must come from the same functions as the needs.
        # Only the precision of products may differ.
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
            single: true if this call is not mapped over lanes.
            due: the needs to evaluate.
            params, model, batch, noise: arrays of one run, without axes of seeds or settings.
        """
        loss_noise = {name: value for name, value in noise.items() if name != DRAWS}
        gradient = self.loss_gradient if single else self._mapped_gradient
        with self.derivatives.products():
            (value, new_model), grads = gradient(params, model, batch, loss_noise)
        point = map_arrays(self.derivatives.ops.astype_float, params) if due else params
        at_point = partial(self._point, single, point, model, batch, loss_noise, noise.get(DRAWS))
        return StepInfo(value, grads, new_model, {need.name: need.evaluate(at_point()) for need in due})

    def _point(self, single: bool, params: Any, state: Any, batch: Any, noise: Any, draw: Any) -> LossAtPoint:
        """Return the loss of one run as `Need.evaluate` expects it, to compute the needs at `params`."""
        ops, lay, likelihood = self.derivatives.ops, self.lay, self.likelihood
        assert lay is not None, "given where there are needs"

        def loss_by(table: Ops, params: Any) -> Any:
            return self.loss(table, params, state, batch, noise)[0]

        def outputs(table: Ops, params: Any) -> Any:
            assert likelihood is not None, "given only where there is one"
            return likelihood.outputs(table, params, state, batch, noise)

        def residuals(params: Any, examples: Any) -> Any:
            assert likelihood is not None, "given only where there is one"
            return likelihood.outputs(ops, params, state, examples, noise) - likelihood.targets(ops, examples)

        return LossAtPoint(
            ops=ops,
            model=model_of(lay),
            point=end_to_end(ops, lay.parameters, params, 0),
            parameters=params,
            loss=lambda vector: loss_by(ops, by_name(ops, lay.parameters, vector)),
            loss_by=loss_by,
            outputs=outputs if likelihood else None,
            residuals=residuals if likelihood and likelihood.family == "gaussian" else None,
            batch=batch,
            likelihood=likelihood,
            draws=draw,
            examples=next(iter(batch.values())).shape[0],
            derivatives=self.derivatives,
            unbatched=single,
        )


def lane_evaluation(derivatives: Derivatives, evaluate: Function, per_seed: bool) -> OverLanes:
    """Map the metrics of a workload over lanes.

    Args:
        derivatives: the backend, which provides the mappings.
        evaluate: `evaluate(ops, params, model, split)` of the workload.
        per_seed: whether the first axis of a split's arrays counts seeds.

    Returns:
        A function `(params, model, split) -> values`, whose result is a mapping from metric names to values
        of shape (seeds, settings). Call it in the context `Derivatives.products`.
    """

    def with_table(table: Ops) -> Function:
        def evaluate_run(params: Any, model: Any, split: Any) -> Any:
            return evaluate(table, params, model, split)

        return evaluate_run

    single = derivatives.unbatched(with_table(derivatives.single_run_ops))
    return OverLanes(derivatives, with_table(derivatives.model_ops), single, per_seed)


def sampled_gradients(derivatives: Derivatives, loss: Function, per_sample: bool, single: bool) -> Function:
    """Return `f(params, model, batch, noise) -> grads` for several parameter samples at once.

    The first axis of the arrays of parameters, noise and gradients counts samples.

    Args:
        derivatives: the backend's automatic differentiation.
        loss: the loss of the workload.
        per_sample: whether each sample has a minibatch of its own, so that the first axis of the batch's
            arrays counts samples, too.
        single: whether there is only one sample, so that the gradient is computed without a mapping over
            samples.
    """
    evaluation = StepEvaluation(derivatives, loss, per_sample)

    def gradient(params: Any, model: Any, batch: Any, noise: Any) -> Any:
        return evaluation.of_one(single, (), params, model, batch, noise).gradient

    def single_gradient(params: Any, model: Any, batch: Any, noise: Any) -> Any:
        batch = _at(batch, 0) if per_sample else batch
        grads = gradient(_at(params, 0), model, batch, _at(noise, 0))
        return map_arrays(lambda grad: grad[None], grads)

    return single_gradient if single else derivatives.vmap(gradient, (0, None, 0 if per_sample else None, 0))
