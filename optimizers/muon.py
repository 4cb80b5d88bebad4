"""Muon: the momentum of each weight matrix replaced by its orthogonal polar factor.

In formulas, W is the weight matrix, m x n, eta the learning rate, and U V^T the polar factor of a matrix with
the singular value decomposition U S V^T: the same matrix with all singular values set to 1.

In citations, 002 is Stratos (2026), "Adaptive Learning Methods", a set of notes (docs/sources.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from curvebench.optimizers.arrays import Array, Hyper, Ops, safe_divide
from curvebench.optimizers.gradient_descent import MOMENTUM, Momentum
from curvebench.optimizers.layers import is_matrix
from curvebench.optimizers.matrix_functions import COEFFICIENTS, newton_schulz, orthogonal_factor
from curvebench.optimizers.matrix_functions.scaling import normalized
from curvebench.optimizers.options import Option, Options
from curvebench.optimizers.others import others_option, with_fallback
from curvebench.optimizers.rule import LEARNING_RATE, Hyperparameter, ParameterRole, Rule, share
from curvebench.optimizers.state_precision import HALF, configured_with_state
from curvebench.optimizers.tensors import hyper_for_matrices
from curvebench.spec.values import choice, flag, whole

# For each value of the option `scale`: a function (m, n) -> number.
# The function returns the number by which the polar factor of an m x n matrix is multiplied.
SCALES: Mapping[str, Callable[[int, int], float]] = {
    "none": lambda rows, columns: 1.0,
    "spectral": lambda rows, columns: math.sqrt(max(1.0, rows / columns)),
    "adam": lambda rows, columns: 0.2 * math.sqrt(max(rows, columns)),
}

# Coefficients of the public record runs "modded-nanogpt" (2025) for 5 steps; in Optax they are called "dion".
NANOGPT: tuple[tuple[float, float, float], ...] = (
    (4.0848, -6.8946, 2.9270),
    (3.9505, -6.3029, 2.6377),
    (3.7418, -5.5913, 2.3037),
    (2.8769, -3.1427, 1.2046),
    (2.8366, -3.0525, 1.2012),
)
COEFFICIENT_NAMES = (*COEFFICIENTS, "nanogpt")

OPTIONS = {
    "orthogonalization": Option(
        "newton_schulz",
        "newton_schulz, a polynomial iteration, or svd, exact",
        choice("newton_schulz", "svd"),
    ),
    "coefficients": Option(
        "jordan", f"of newton_schulz: {', '.join(COEFFICIENT_NAMES)}", choice(*COEFFICIENT_NAMES)
    ),
    "steps": Option(5, "iterations of newton_schulz", whole(1)),
    "newton_schulz_precision": Option(
        "computed",
        "of the products of newton_schulz: computed, as updates are, or bfloat16, fast on a GPU",
        choice("computed", "bfloat16"),
    ),
    "nesterov": Option(True, "whether the gradient is added to the momentum once more", flag),
    "scale": Option(
        "spectral",
        "factor of an m x n update: none, spectral (sqrt(max(1, m / n))), or adam (0.2 sqrt(max(m, n)))",
        choice(*SCALES),
    ),
    "second_moment": Option(
        "none",
        "running mean of squares that divides steps: none; gradient, of the gradient's entries, before the "
        "polar factor is taken (Muon2); rows or entries, of the polar factor, which keeps its norm (NorMuon; "
        "AdaMuon)",
        choice("none", "gradient", "rows", "entries"),
    ),
    "heads": Option(
        "others",
        "the rule of the weight matrices of output layers: others, as Muon's author has it, or muon",
        choice("others", "muon"),
    ),
    "others": others_option("all but weight matrices and convolutions"),
}


def is_hidden_matrix(role: ParameterRole, order: int) -> bool:
    """Return whether a parameter is a matrix by `is_matrix` and does not belong to the output layer."""
    return role.kind != "head" and is_matrix(role, order)


class NormalizedMomentum(NamedTuple):
    velocity: Array  # v_t = g_t + mu v_{t-1}, in the shape of the parameter; it starts at 0.
    # s_t, running mean of the squares that the option `second_moment` names, which starts at 0.
    # Its shape is (..., m, n) for parameters as m x n matrices, or (..., m, 1) for row means.
    second: Array


@dataclass(frozen=True)
class _Muon:
    """Functions of the rule for parameters of `order` axes, the first of which counts outputs.

    Args:
        polar_factor: function from matrices (..., m, n) to their polar factors.
        nesterov: whether the gradient is added to the momentum once more.
        scale: `scale(m, n)`, by which the polar factor is multiplied.
        second_moment: the option `second_moment`.
    """

    order: int
    polar_factor: Callable[[Ops, Array], Array]
    nesterov: bool
    scale: Callable[[int, int], float]
    second_moment: str

    def init(self, ops: Ops, param: Array) -> Momentum | NormalizedMomentum:
        state = MOMENTUM.init(ops, param)
        if self.second_moment == "none":
            return state
        squares = self.as_matrix(ops, state.velocity)
        return NormalizedMomentum(
            state.velocity, squares[..., :1] if self.second_moment == "rows" else squares
        )

    def as_matrix(self, ops: Ops, array: Array) -> Array:
        """Reshape a convolution to a matrix, outputs x all other axes."""
        return ops.reshape(array, (*array.shape[: array.ndim - self.order + 1], -1))

    def update(
        self, ops: Ops, grad: Array, state: Any, param: Array, hyper: Hyper
    ) -> tuple[Array, Momentum | NormalizedMomentum]:
        """Do a step of Muon: W <- W - eta U V^T, with the polar factor of the momentum (002 eq. 69, Q.3)."""
        velocity = grad + hyper["momentum"] * state.velocity
        direction = grad + hyper["momentum"] * velocity if self.nesterov else velocity
        matrix = self.as_matrix(ops, direction)
        if self.second_moment == "none":
            state, factor = state._replace(velocity=velocity), self.polar_factor(ops, matrix)
        else:
            second, factor = self.normalized(ops, matrix, self.as_matrix(ops, grad), state.second, hyper)
            state = state._replace(velocity=velocity, second=second)
        factor = self.scale(*matrix.shape[-2:]) * ops.reshape(factor, param.shape)
        decayed = param * (1 - hyper["learning_rate"] * hyper["weight_decay"])
        return decayed - hyper["learning_rate"] * factor, state

    def normalized(
        self, ops: Ops, matrix: Array, grad: Array, second: Array, hyper: Hyper
    ) -> tuple[Array, Array]:
        """Return the new second moment s, and the polar factor normalized by it.

        With `gradient`, the factor is that of M / (sqrt(s) + epsilon) for the momentum M, where s is the
        running mean of G^2 (Muon2, arXiv 2604.09967). With `rows` or `entries`, it is O / (sqrt(s) +
        epsilon), scaled to the Frobenius norm of O, where O is the polar factor of M, and s is the running
        mean of O^2 or of its row means (NorMuon, arXiv 2510.05491; AdaMuon, arXiv 2507.11005, which takes the
        sign of M first). The means have no bias correction, which would cancel. The length of steps in
        both papers, 0.2 sqrt(m n), is that of `scale: adam`.
        """
        beta2, epsilon = (hyper_for_matrices(ops, hyper[name], self.order) for name in ("beta2", "epsilon"))
        factor = grad if self.second_moment == "gradient" else self.polar_factor(ops, matrix)
        squares = ops.square(factor)
        if self.second_moment == "rows":
            squares = ops.mean(squares, axis=-1, keepdims=True)
        second = beta2 * second + (1 - beta2) * squares
        scale = ops.sqrt(second) + epsilon
        if self.second_moment == "gradient":
            return second, self.polar_factor(ops, safe_divide(ops, matrix, scale))
        _, length = normalized(ops, factor, (-2, -1))
        return second, length * normalized(ops, safe_divide(ops, factor, scale), (-2, -1))[0]


def polar_factor(chosen: Options, precision: str | None = None) -> Callable[[Ops, Array], Array]:
    """Return the function that computes the polar factor of matrices (..., m, n).

    Args:
        chosen: the options `orthogonalization`, `coefficients` and `steps`.
        precision: precision of the products of newton_schulz, or None for the precision of the matrices.
    """
    polynomials, steps = {**COEFFICIENTS, "nanogpt": NANOGPT}[chosen["coefficients"]], chosen["steps"]

    def iterated(ops: Ops, matrix: Array) -> Array:
        return newton_schulz(ops, matrix, polynomials, steps, precision)

    return orthogonal_factor if chosen["orthogonalization"] == "svd" else iterated


@configured_with_state("muon", OPTIONS)
def muon(chosen: Options) -> Rule:
    """Return the update rule of Muon; options that are not given keep their defaults."""
    numbers = {
        "learning_rate": LEARNING_RATE,
        "momentum": share("the share of the momentum kept", 0.95),
        "weight_decay": Hyperparameter("lambda, multiplied by the learning rate", 0.0, 0.0),
    }

    if chosen["second_moment"] != "none":
        numbers["beta2"] = share("the share of the second moment kept", 0.95)
        numbers["epsilon"] = Hyperparameter("added to the root, outside it; 0 is legal", 1e-10, 0.0)
    precision = None if chosen["newton_schulz_precision"] == "computed" else HALF

    def rule(order: int) -> Rule:
        functions = _Muon(
            order,
            polar_factor(chosen, precision),
            chosen["nesterov"],
            SCALES[chosen["scale"]],
            chosen["second_moment"],
        )
        return Rule(
            name="muon",
            source="002 Sec. 7, eq. 69, Q.3",
            hyperparameters=numbers,
            init=functions.init,
            update=functions.update,
            scope="leaf",
        )

    takes = is_matrix if chosen["heads"] == "muon" else is_hidden_matrix
    return with_fallback(rule, takes, chosen["others"])


RULES = (muon({}),)
