"""Scion: steps to the extreme point of a ball, in a norm that depends on the role of the parameter.

Pethick et al. 2025, "Training Deep Learning Models with Norm-Constrained LMOs" (arXiv 2502.07529). For a mean
D of gradients, the extreme point is the matrix of norm 1 with the greatest inner product with D, for the norm
of the role. In formulas, W is the parameter, a matrix of m outputs and n inputs, G its gradient, eta the
learning rate, and mu the momentum.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from curvebench.optimizers.arrays import Array, Hyper, Ops, entry_signs
from curvebench.optimizers.matricization import seeing_matrices
from curvebench.optimizers.matrix_functions.scaling import normalized
from curvebench.optimizers.muon import OPTIONS as OPTIONS_OF_MUON
from curvebench.optimizers.muon import is_hidden_matrix, polar_factor
from curvebench.optimizers.options import Options
from curvebench.optimizers.rule import (
    LEARNING_RATE,
    Hyperparameter,
    ParameterRole,
    Part,
    Rule,
    configured,
    positive,
    share,
)

Extreme = Callable[[Ops, Array], Array]


class MeanGradient(NamedTuple):
    mean: Array  # D_t, running mean of gradients, as matrices (..., m, n); it starts at 0.


def _signs(ops: Ops, mean: Array) -> Array:
    """Return sign(D) / n, for output layers."""
    return entry_signs(ops, mean) / mean.shape[-1]


def _rows(ops: Ops, mean: Array) -> Array:
    """Return D with rows of root mean square 1, for embeddings; rows of zeros stay."""
    return math.sqrt(mean.shape[-1]) * normalized(ops, mean, -1)[0]


def _whole(ops: Ops, mean: Array) -> Array:
    """Return D scaled to root mean square 1, for biases and all other parameters that are no matrices."""
    return math.sqrt(mean.shape[-2] * mean.shape[-1]) * normalized(ops, mean, (-2, -1))[0]


OPTIONS = {name: OPTIONS_OF_MUON[name] for name in ("orthogonalization", "coefficients", "steps")}


@configured("scion", OPTIONS)
def scion(chosen: Options) -> Rule:
    """Return the update rule of Scion; options that are not given keep their defaults.

    Hidden weights have the spectral norm, O = sqrt(m / n) U V^T, divided by the number of positions of a
    kernel. Output layers have sign(D) / n, embeddings rows of root mean square 1, and all other parameters
    the root mean square 1. The state has one number per parameter.

    Without weight decay, the rule is the unconstrained variant of the paper. The constrained variant, which
    keeps W in the ball of a radius rho, is the rule with the weight decay 1 / rho.
    """
    polar = polar_factor(chosen)

    def rule(extreme: Extreme, is_head: bool) -> Rule:
        def update(
            ops: Ops, grad: Array, state: MeanGradient, param: Array, hyper: Hyper
        ) -> tuple[Array, MeanGradient]:
            """Do a step W <- (1 - eta lambda) W - eta r O, for the mean D <- mu D + (1 - mu) G.

            O is the extreme point of D. The radius r is `head_radius` for output layers, and 1 for all other
            parameters (Algs. 1 and 2).
            """
            mean = hyper["momentum"] * state.mean + (1 - hyper["momentum"]) * grad
            step = hyper["learning_rate"] * extreme(ops, mean)
            step = step * hyper["head_radius"] if is_head else step
            decayed = param * (1 - hyper["learning_rate"] * hyper["weight_decay"])
            return decayed - step, MeanGradient(mean)

        return Rule(
            name="scion",
            source="Pethick et al. 2025 (arXiv 2502.07529), Algs. 1 and 2, Tables 2 to 4",
            hyperparameters={
                "learning_rate": LEARNING_RATE,
                "momentum": share("mu, the share of the mean gradient kept", 0.9),
                "head_radius": positive("radius of output layers, divided by that of others", 1.0),
                "weight_decay": Hyperparameter("lambda, multiplied by the learning rate", 0.0, 0.0),
            },
            init=lambda ops, param: MeanGradient(ops.zeros_like(param)),
            update=update,
            scope="leaf",
        )

    @cache
    def part(kind: str, order: int, positions: int) -> Part:
        def spectral(ops: Ops, mean: Array) -> Array:
            rows, columns = mean.shape[-2:]
            return math.sqrt(rows / (columns * positions)) * polar(ops, mean)

        extremes = {"hidden": spectral, "head": _signs, "embedding": _rows, "": _whole}
        return Part(seeing_matrices(rule(extremes[kind], kind == "head"), order))

    def part_of(role: ParameterRole, shape: tuple[int, ...]) -> Part:
        order = len(shape)
        if is_hidden_matrix(role, order):
            return part("hidden", order, math.prod(shape[2:]))
        has_rows = order > 1 and role.kind in ("head", "embedding")
        return part(role.kind if has_rows else "", order, 1)

    return replace(part("hidden", 2, 1).rule, part=part_of)


RULES = (scion({}),)
