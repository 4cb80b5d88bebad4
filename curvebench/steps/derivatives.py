"""What is evaluated of a loss at a step, mapped over lanes: gradient, what the rule needs, and metrics."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple, Protocol

from curvebench.arrays.ops import Array, Ops
from curvebench.optimizers.needs import LossAtPoint, Model, Need
from curvebench.optimizers.rule import map_arrays
from curvebench.steps.layout import Layout, by_name, end_to_end
from curvebench.workloads.workload import Likelihood

Function = Callable[..., Any]


class StepInfo(NamedTuple):
    """The loss, its gradient and the other needs of a step, at its point; (S, K) are seeds and settings."""

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

    def sequential_map(self, function: Function, axes: tuple[int | None, ...]) -> Function:
        """As `vmap` with axes 0 or None, one element after another."""

    def value_and_grad(self, function: Function, is_single: bool) -> Function:
        """`f(params, *given) -> ((value, others), grads)` of `function(params, *given) -> (value, others)`.

        `is_single` says that it is not mapped.
        """

    def unbatched(self, function: Function) -> Function:
        """A function that is not mapped, which a backend may compile by itself (`compile_unbatched`)."""

    def grad(self, function: Function) -> Function:
        """The gradient of a scalar function."""

    def hessian(self, function: Function) -> Function:
        """The Hessian of a scalar function of a vector."""

    def vjp(self, function: Function, point: Any, is_single: bool) -> tuple[Any, Function, Any]:
        """`(value, pullback, others)` of `function(point) -> (value, others)`, an array and a tree of arrays.

        `is_single` says that it is not mapped.
        """

    def accumulate(self, function: Function, carry: Any, parts: Any) -> tuple[Any, Any]:
        """`(carry, total)` of `function(carry, part) -> (carry, summand)` along the first axis of `parts`.

        One part after another: what a part holds on its way is given back before the next.
        """


@dataclass(frozen=True)
class OverLanes:
    """A function `f(params, model, batch, *noise)` of lanes (S, K), mapped over settings and then seeds.

    Few examples are computed for all lanes at once, which saves overhead, and many in turn, which keeps
    what lies between layers in the processor's cache. A single run need not pay for mapping: a mapped
    convolution is a grouped one, which is slower.

    Args:
        derivatives: what maps it.
        mapped: the function of one run, as it is mapped.
        single: the function of one run, as it is called for a single one.
        per_seed: whether the batch has a leading axis of seeds; noise always has one.
    """

    derivatives: Derivatives
    mapped: Function
    single: Function
    per_seed: bool

    def __call__(self, params: Any, model: Any, batch: Any, *noises: Any) -> Any:
        """What it gives, with the axes of lanes in front."""
        if _first(params).shape[:2] == (1, 1):
            batch = _at(batch, 0) if self.per_seed else batch
            own = [_at(noise, 0) for noise in noises]
            found = self.single(_at(params, (0, 0)), _at(model, (0, 0)), batch, *own)
            return map_arrays(lambda array: array[None, None], found)
        shapes = [each.shape[self.per_seed :] for each in batch.values() if each.ndim > self.per_seed]
        # examples are more than the numbers of each; a large square matrix serves all lanes sooner at once
        examples = max((shape[0] for shape in shapes if shape[0] > math.prod(shape[1:])), default=0)
        in_turn = examples >= self.derivatives.many_examples
        mapping = self.derivatives.sequential_map if in_turn else self.derivatives.vmap
        over_settings = mapping(self.mapped, (0, 0, None, *(None for _ in noises)))
        over_seeds = mapping(over_settings, (0, 0, 0 if self.per_seed else None, *(0 for _ in noises)))
        return over_seeds(params, model, batch, *noises)


def _first(params: Any) -> Array:
    return next(iter(params.values())) if isinstance(params, Mapping) else params


def _at(arrays: Any, index: Any) -> Any:
    return map_arrays(lambda array: array[index], arrays)


DRAWS = "drawn targets"  # among noise, what a need draws targets with


def model_of(lay: Layout) -> Model:
    """The parameters of a layout as a need sees them."""
    return Model(lay.parameters, lay.roles)


@dataclass(frozen=True)
class StepEvaluation:
    """The evaluation of a step: the gradient of every lane, and what a rule needs besides (`Evaluation`).

    Args:
        derivatives: what differentiates.
        loss: the workload's.
        per_seed: whether a batch has a leading axis of seeds; noise always has one.
        likelihood: that of the workload, where needs ask for it.
        lay: the layout of the parameters, where there are needs.
        needs: of the rule.
    """

    derivatives: Derivatives
    loss: Function
    per_seed: bool
    likelihood: Likelihood | None = None
    lay: Layout | None = None
    needs: Sequence[Need] = ()

    def __call__(self, params: Any, model: Any, batch: Any, noise: Any, observes: bool) -> StepInfo:
        """What a step learns of the loss; amortized needs are evaluated where it `observes`."""
        due = [need for need in self.needs if observes or not need.amortized]
        mapped, single = (partial(self.of_one, is_single, due) for is_single in (False, True))
        info: StepInfo = OverLanes(self.derivatives, mapped, single, self.per_seed)(
            params, model, batch, noise
        )
        return info

    @cached_property
    def loss_gradient(self) -> Function:
        """The backend's value and gradient of a single run's loss."""
        return self._differentiated(is_single=True)

    @cached_property
    def _mapped_gradient(self) -> Function:
        return self._differentiated(is_single=False)

    def _differentiated(self, is_single: bool) -> Function:
        """`f(params, model, batch, noise) -> ((loss, new model state), gradient)` of one lane."""
        # what is computed for a need too is the same there
        table = (
            self.derivatives.single_run_ops if is_single and not self.needs else self.derivatives.model_ops
        )

        def value(params: Any, model: Any, batch: Any, noise: Any) -> Any:
            loss_value, new_model, _ = self.loss(table, params, model, batch, noise)
            return loss_value, new_model

        return self.derivatives.value_and_grad(value, is_single)

    def of_one(
        self, is_single: bool, due: Sequence[Need], params: Any, model: Any, batch: Any, noise: Any
    ) -> StepInfo:
        """Return the info of a step of one lane, with the needs that are due; `alone`: it is not mapped."""
        own = {name: value for name, value in noise.items() if name != DRAWS}
        gradient = self.loss_gradient if is_single else self._mapped_gradient
        with self.derivatives.products():
            (value, new_model), grads = gradient(params, model, batch, own)
        point = map_arrays(self.derivatives.ops.astype_float, params) if due else params
        seen = partial(self._seen, is_single, point, model, batch, own, noise.get(DRAWS))
        return StepInfo(value, grads, new_model, {need.name: need.evaluate(seen()) for need in due})

    def _seen(
        self, is_single: bool, params: Any, state: Any, batch: Any, noise: Any, draws: Any
    ) -> LossAtPoint:
        """The loss as a need sees it."""
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
            draws=draws,
            examples=next(iter(batch.values())).shape[0],
            derivatives=self.derivatives,
            alone=is_single,
        )


def lane_evaluation(derivatives: Derivatives, evaluate: Function, per_seed: bool) -> OverLanes:
    """A workload's metrics, `f(params, model, split)`, of lanes (S, K); call it inside `products`."""

    def by(table: Ops) -> Function:
        def one(params: Any, model: Any, split: Any) -> Any:
            return evaluate(table, params, model, split)

        return one

    single = derivatives.unbatched(by(derivatives.single_run_ops))
    return OverLanes(derivatives, by(derivatives.model_ops), single, per_seed)


def sampled_gradients(
    derivatives: Derivatives, loss: Function, per_sample: bool, is_single: bool
) -> Function:
    """`f(params, model, batch, noise) -> grads` of samples, a leading axis of parameters and noise.

    Args:
        derivatives, loss: what differentiates, and the workload's.
        per_sample: whether the batch has that axis too.
        is_single: whether the axis has one sample, which is not mapped.
    """
    evaluation = StepEvaluation(derivatives, loss, per_sample)

    def one(params: Any, model: Any, batch: Any, noise: Any) -> Any:
        return evaluation.of_one(is_single, (), params, model, batch, noise).gradient

    def single(params: Any, model: Any, batch: Any, noise: Any) -> Any:
        batch = _at(batch, 0) if per_sample else batch
        found = one(_at(params, 0), model, batch, _at(noise, 0))
        return map_arrays(lambda grad: grad[None], found)

    return single if is_single else derivatives.vmap(one, (0, None, 0 if per_sample else None, 0))
