"""Sophia and AdaHessian: momentum divided by a running mean of estimates of the diagonal of the Hessian.

In formulas, w is the vector of all d parameters, g its gradient, H the Hessian of the loss, m the running
mean of g, h the running mean of estimates of the diagonal of H, and eta the learning rate. x * y is the
entrywise product of vectors.

An estimate is the entrywise product of two vectors that change their coordinates like a gradient. Hutchinson:
z * (H z), for a random vector z with mean 0 and covariance I (Bekas et al. 2007). Gauss-Newton-Bartlett:
N s (q * q), where q is the gradient of the mean negative log-likelihood of N targets drawn from the model,
and s the factor by which the loss multiplies this mean. Its expectation is the diagonal of the Fisher matrix.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

import numpy as np

from curvebench.optimizers.arrays import Array, Hyper, Ops
from curvebench.optimizers.layer_statistics import draw_targets, sampled_residuals
from curvebench.optimizers.needs import Function, LossAtPoint, Need
from curvebench.optimizers.options import Option, Options
from curvebench.optimizers.rule import (
    LEARNING_RATE,
    WEIGHT_DECAY,
    Hyperparameter,
    Rule,
    configured,
    positive,
    share,
)
from curvebench.spec.values import choice, flag, whole

Estimator = str  # A key of PROBES, or BARTLETT.
BARTLETT = "gauss_newton_bartlett"


def _rademacher(likelihood: object, generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draw numbers that are -1 or 1 with equal probability."""
    return generator.choice([-1.0, 1.0], shape)


def _gaussian(likelihood: object, generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return generator.standard_normal(shape)


PROBES = {"rademacher": _rademacher, "gaussian": _gaussian}


def _hutchinson(at: LossAtPoint) -> Array:
    """Return z and H z as an array (2, d). H z is the gradient of the inner product of g and z."""
    assert at.draws is not None, "the need draws a probe"
    (probe,) = at.draws
    gradient = at.derivatives.grad(at.loss)
    product = at.derivatives.grad(lambda vector: at.ops.sum(gradient(vector) * probe))(at.point)
    return at.ops.stack([probe, product], 0)


def _averaged_over_filters(at: LossAtPoint) -> Array:
    """Return a vector of ones and the Hutchinson estimate as an array (2, d), with an averaged estimate.

    In every filter of a convolution, each entry of the estimate is replaced by the mean over the filter
    (AdaHessian eq. 10, with the filter as block).
    """
    ops, start, parts = at.ops, 0, []
    factors = _hutchinson(at)
    for shape in at.model.shapes.values():
        stop = start + math.prod(shape)
        part, start = (factors[0] * factors[1])[start:stop], stop
        if len(shape) == 4:
            filters = ops.reshape(part, (*shape[:2], -1))
            part = ops.zeros_like(filters) + ops.mean(filters, axis=-1, keepdims=True)
        parts.append(ops.reshape(part, (-1,)))
    return ops.stack([ops.ones_like(factors[0]), ops.concatenate(parts, 0)], 0)


def _bartlett(at: LossAtPoint) -> Array:
    """Return q and N s q as an array (2, d) (Sophia Alg. 2)."""
    ops, outputs, likelihood = at.ops, at.outputs, at.likelihood
    assert outputs is not None, "the need requires a likelihood"
    assert likelihood is not None
    values, pullback, _ = at.derivatives.vjp(lambda w: (outputs(ops, w), {}), at.parameters, at.unbatched)
    residuals = sampled_residuals(ops, likelihood, values, at.draws) / at.examples
    gradients = pullback(residuals)
    gradient = ops.concatenate([ops.reshape(gradients[name], (-1,)) for name in at.model.shapes], 0)
    return ops.stack([gradient, at.examples * likelihood.scale * gradient], 0)


def _change_rows(ops: Ops, to_coordinates: Function, values: Array) -> Array:
    """Transform both vectors of all runs, (seeds, settings, 2, d)."""
    seeds, settings, rows, size = values.shape
    changed = to_coordinates(ops.reshape(values, (seeds, settings * rows, size)))
    return ops.reshape(changed, (seeds, settings, rows, -1))


@cache
def diagonal_need(estimator: Estimator, averages_filters: bool = False) -> Need:
    """Return the need for two vectors (2, d) whose product estimates the diagonal of the Hessian.

    The function `observe` of a rule reads the vectors as `hyper["diagonal_factors"]`.

    Args:
        estimator: distribution of the vector z of Hutchinson's estimate, `rademacher` or `gaussian`; or
            `gauss_newton_bartlett`.
        averages_filters: whether Hutchinson's estimate is averaged over each filter of a convolution. The
            estimate then belongs to the original coordinates.
    """
    is_probe = estimator in PROBES
    return Need(
        name="diagonal_factors",
        description="an estimate of the diagonal of the Hessian",
        evaluate=(_averaged_over_filters if averages_filters else _hutchinson) if is_probe else _bartlett,
        # H z is a backward pass through the computation of a gradient, which takes twice the time of a
        # gradient. The gradient of drawn targets takes the time of a gradient.
        gradient_evaluations=lambda model: 2 if is_probe else 1,
        entries=lambda model: 2 * model.dimension,
        # Large, so that Sophia does not limit all entries of a step; near 0 steps would amplify rounding.
        example=lambda model: (
            100.0 * np.stack([np.resize([-1.0, -0.5, 0.5, 1.0], model.dimension), np.ones(model.dimension)])
        ),
        change_basis=None if averages_filters else _change_rows,
        amortized=True,
        draw=PROBES[estimator] if is_probe else draw_targets,
        is_probe=is_probe,
        of_likelihood="" if is_probe else "the estimate by drawn targets (sophia_h does without)",
        # The products of means over microbatches are not means of products.
        is_mean=is_probe,
    )


# --- Sophia -------------------------------------------------------------------------------------


class SophiaState(NamedTuple):
    first: Array  # m, running mean of g, (..., d); it starts at 0.
    diagonal: Array  # h, running mean of estimates of the diagonal of H, (..., d); it starts at 0.


def _observe_sophia(ops: Ops, grad: Array, state: SophiaState, hyper: Hyper) -> SophiaState:
    """Compute h <- beta_2 h + (1 - beta_2) times the estimate (Sophia Alg. 3)."""
    estimate = hyper["diagonal_factors"][..., 0, :] * hyper["diagonal_factors"][..., 1, :]
    diagonal = hyper["beta2"] * state.diagonal + (1 - hyper["beta2"]) * estimate
    return state._replace(diagonal=diagonal)


def _update_sophia(
    ops: Ops, grad: Array, state: SophiaState, param: Array, hyper: Hyper
) -> tuple[Array, SophiaState]:
    """Do a step of Sophia: w <- w - eta clip(m / max(gamma h, epsilon), 1) (Sophia Alg. 3).

    Here m has no bias correction, and clip(x, 1) limits each entry of x to [-1, 1]. Where h is not positive,
    the step is the step of sign descent. Weight decay multiplies w by 1 - eta lambda first.
    """
    rate = hyper["learning_rate"]
    first = hyper["beta1"] * state.first + (1 - hyper["beta1"]) * grad
    ratio = first / ops.maximum(hyper["gamma"] * state.diagonal, hyper["epsilon"])
    param = param * (1 - rate * hyper["weight_decay"]) - rate * ops.clip(ratio, -1.0, 1.0)
    return param, state._replace(first=first)


def _starts_at_zero(ops: Ops, param: Array) -> SophiaState:
    return SophiaState(ops.zeros_like(param), ops.zeros_like(param))


def _every(steps: int) -> Option:
    return Option(steps, "steps between two estimates of the diagonal", whole(1))


def _probe(default: str) -> Option:
    description = "distribution of the entries of z: rademacher (-1 or 1), or gaussian"
    return Option(default, description, choice(*PROBES))


def _sophia(name: str, estimator: Estimator, every: int, beta1: float, gamma: float) -> Rule:
    return Rule(
        name=name,
        source="Liu et al. 2023 (arXiv 2305.14342), Alg. 3",
        hyperparameters={
            "learning_rate": LEARNING_RATE,
            "beta1": share("the share of the first moment kept", beta1),
            "beta2": share("the share of the diagonal kept at an estimate", 0.99),
            "gamma": positive("factor of the diagonal; a smaller one clips more entries", gamma),
            "epsilon": positive("the smallest denominator", 1e-12),
            "weight_decay": WEIGHT_DECAY,
        },
        init=_starts_at_zero,
        update=_update_sophia,
        observe=_observe_sophia,
        observe_every=every,
        scope="model",
        needs=(diagonal_need(estimator),),
    )


@configured("sophia_h", {"hessian_every": _every(10), "probe": _probe("gaussian")})
def sophia_h(chosen: Options) -> Rule:
    """Return Sophia-H, with Hutchinson's estimates; options that are not given keep their defaults.

    The paper's weight decay is 0.2 for language models.
    """
    return _sophia("sophia_h", chosen["probe"], chosen["hessian_every"], 0.96, 0.01)


@configured("sophia_g", {"hessian_every": _every(10)})
def sophia_g(chosen: Options) -> Rule:
    """Return Sophia-G, with Gauss-Newton-Bartlett estimates, for workloads with a likelihood."""
    return _sophia("sophia_g", BARTLETT, chosen["hessian_every"], 0.965, 0.05)


# --- AdaHessian -----------------------------------------------------------------------------------


class AdaHessianState(NamedTuple):
    first: Array  # m, running mean of g, (..., d); it starts at 0.
    square: Array  # v, running mean of squared estimates of the diagonal of H, (..., d); it starts at 0.
    # Total weight of the estimates in v, (..., 1), which starts at 0.
    share: Array


def _init_adahessian(ops: Ops, param: Array) -> AdaHessianState:
    return AdaHessianState(ops.zeros_like(param), ops.zeros_like(param), ops.zeros_like(param[..., :1]))


def _observe_adahessian(ops: Ops, grad: Array, state: AdaHessianState, hyper: Hyper) -> AdaHessianState:
    """Compute v <- beta_2 v + (1 - beta_2) D * D for the estimate D (AdaHessian eq. 9)."""
    decay, factors = hyper["beta2"], hyper["diagonal_factors"]
    square = decay * state.square + (1 - decay) * ops.square(factors[..., 0, :] * factors[..., 1, :])
    return state._replace(square=square, share=decay * state.share + (1 - decay))


def _update_adahessian(
    ops: Ops, grad: Array, state: AdaHessianState, param: Array, hyper: Hyper
) -> tuple[Array, AdaHessianState]:
    """Do a step of AdaHessian: w <- w - eta m / (v^(k / 2) + epsilon), with bias-corrected m and v.

    k is the Hessian power (AdaHessian Alg. 1, eqs. 9-12). If the diagonal is estimated only every few steps,
    the correction of v counts the estimates and not the steps. Weight decay multiplies w by 1 - eta lambda
    first.
    """
    rate, beta1 = hyper["learning_rate"], hyper["beta1"]
    first = beta1 * state.first + (1 - beta1) * grad
    mean = first / (1 - beta1 ** hyper["step"])
    scale = ops.power(state.square / state.share, hyper["hessian_power"] / 2) + hyper["epsilon"]
    return param * (1 - rate * hyper["weight_decay"]) - rate * mean / scale, state._replace(first=first)


OPTIONS: Mapping[str, Option] = {
    "hessian_every": _every(1),
    "probe": _probe("rademacher"),
    "spatial_averaging": Option(
        False, "whether the diagonal is averaged over each filter of a convolution; allows no basis", flag
    ),
}


@configured("adahessian", OPTIONS)
def adahessian(chosen: Options) -> Rule:
    """Return the update rule of AdaHessian; options that are not given keep their defaults."""
    return Rule(
        name="adahessian",
        source="Yao et al. 2021 (arXiv 2006.00719), Alg. 1, eqs. 9-12",
        hyperparameters={
            "learning_rate": LEARNING_RATE,
            "beta1": share("the share of the first moment kept", 0.9),
            "beta2": share("the share of the squared diagonal kept at an estimate", 0.999),
            "hessian_power": Hyperparameter(
                "k; the gradient is divided by the k-th power of the diagonal", 1.0, 0.0, 1.0
            ),
            "epsilon": positive("added to the denominator", 1e-4),
            "weight_decay": WEIGHT_DECAY,
        },
        init=_init_adahessian,
        update=_update_adahessian,
        observe=_observe_adahessian,
        observe_every=chosen["hessian_every"],
        scope="model",
        needs=(diagonal_need(chosen["probe"], chosen["spatial_averaging"]),),
    )


RULES = (sophia_h({}), sophia_g({}), adahessian({}))
