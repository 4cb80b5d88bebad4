"""Spectral-factorized curvature: a preconditioner whose eigenvectors and eigenvalues are learned.

No matrix has to be decomposed, and any inverse root is cheap.

The update direction is S^(-1/p) g, where g is the gradient, p the root, and S = B diag(d) B^T the learned
curvature. B has the eigenvectors of S in columns, and d has the eigenvalues of S. S may be a Kronecker
product S_1 x S_2 x ... of one factor per axis, times a number alpha. In formulas, w is the parameter, v the
velocity, eta the learning rate, and mu the momentum. beta_2 is the step size of S, gamma the decay of S (1
for a running mean, 0 for a sum), and lambda the damping (in `update`, the weight decay).

In citations, 003 is Lin et al. (2025), "Spectral-factorized Positive-definite Curvature Learning for NN
Training" (docs/sources.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from curvebench.optimizers.arrays import Array, Hyper, Ops
from curvebench.optimizers.layers import is_matrix
from curvebench.optimizers.matricization import for_matrices
from curvebench.optimizers.matrix_functions import (
    CAYLEYS,
    EXPONENTIALS,
    KroneckerSpectrum,
    SpectralMaps,
    Spectrum,
    kronecker_spectral_step,
    nearer_orthogonal,
    spectral_growth,
    spectral_power,
    spectral_step_inside,
)
from curvebench.optimizers.options import Option, OptionError, Options
from curvebench.optimizers.others import others_option, with_fallback
from curvebench.optimizers.rule import LEARNING_RATE, Hyperparameter, Rule, share
from curvebench.optimizers.state_precision import configured_with_state
from curvebench.optimizers.tensors import hyper_for_matrices, multiplied, second_moment
from curvebench.spec.values import choice, flag, is_number, number, whole


class DiagonalSpectrum(NamedTuple):
    values: Array  # d of S = diag(d), (..., m, n); it starts at 1.


class SpectralState(NamedTuple):
    curvature: Any  # A KroneckerSpectrum, Spectrum or DiagonalSpectrum; it starts as the identity.
    # The velocity, in the shape of the parameter, which starts at 0. The tuple is empty without momentum.
    velocity: tuple[Array, ...]


class RefreshedSpectrum(NamedTuple):
    """State that `refresh` passes to `update` in the same step."""

    state: SpectralState  # The curvature already includes the gradient of the step.
    direction: Array  # S^(-1/p) g, with the curvature S that the option `moves_with` chooses.


class Curvature(Protocol):
    """Structure of the curvature S: Kronecker product, full or diagonal.

    An argument `inside` is a gradient in the coordinates of the eigenvectors of S, B^T g.
    """

    def init(self, ops: Ops, param: Array) -> Any:
        """Return the curvature of the start, S = I."""

    def multiplied(self, ops: Ops, curvature: Any, factor: Array) -> Any:
        """Multiply S by a factor that broadcasts against the parameter."""

    def inside(self, ops: Ops, grad: Array, curvature: Any) -> Array:
        """Return the gradient in the coordinates of the eigenvectors, B^T g."""

    def stepped(self, ops: Ops, inside: Array, curvature: Any, hyper: Hyper) -> Any:
        """Return the curvature S after one step along g g^T, where g = B `inside` is the gradient."""

    def direction(self, ops: Ops, inside: Array, curvature: Any) -> Array:
        """Return the direction S^(-1/p) g for the curvature S and the gradient g = B `inside`."""

    def corrected(self, ops: Ops, curvature: Any) -> Any:
        """Return the curvature with bases B that are corrected to be closer to orthogonal."""


# By the name of a hyperparameter, the name of the argument of `spectral_step` that it sets.
_NUMBERS_OF_A_STEP = {"curvature_rate": "rate"} | {key: key for key in ("gamma", "damping", "rotation_rate")}


def _step(hyper: Hyper) -> dict[str, Array]:
    """Return the hyperparameters as arguments of `spectral_step`."""
    return {argument: hyper[name] for name, argument in _NUMBERS_OF_A_STEP.items() if name in hyper}


@dataclass(frozen=True)
class _Kronecker:
    """Curvature of Kronecker factors, S = alpha S_1 x S_2 x ..., one for each axis of a tensor.

    Args:
        order: number of axes of a parameter.
        power: p, the root in the direction S^(-1/p) g.
        maps: maps by which a step changes eigenvalues and eigenvectors.
    """

    order: int
    power: float
    maps: SpectralMaps

    def init(self, ops: Ops, param: Array) -> KroneckerSpectrum:
        leading, shape = tuple(param.shape[: param.ndim - self.order]), param.shape[param.ndim - self.order :]
        return KroneckerSpectrum(
            scale=ops.zeros((*leading, 1)) + 1,
            factors=tuple(
                Spectrum(ops.zeros((*leading, size, size)) + ops.eye(size), ops.zeros((*leading, size)) + 1)
                for size in shape
            ),
        )

    def multiplied(self, ops: Ops, curvature: KroneckerSpectrum, factor: Array) -> KroneckerSpectrum:
        return curvature._replace(scale=curvature.scale * self.beside_values(ops, factor))

    def beside_values(self, ops: Ops, value: Array) -> Array:
        """Reshape an array that broadcasts against parameters, so that it broadcasts against alpha and d."""
        return hyper_for_matrices(ops, value, self.order)[..., 0]

    def along_axes(self, ops: Ops, values: Sequence[Array]) -> list[Array]:
        """Reshape the eigenvalues of each axis, (..., n), to broadcast against tensors."""
        return [
            ops.reshape(d, (*d.shape[:-1], *(-1 if axis == number else 1 for axis in range(self.order))))
            for number, d in enumerate(values)
        ]

    def inside(self, ops: Ops, grad: Array, curvature: KroneckerSpectrum) -> Array:
        return multiplied(ops, [ops.matrix_transpose(factor.basis) for factor in curvature.factors], grad)

    def stepped(
        self, ops: Ops, inside: Array, curvature: KroneckerSpectrum, hyper: Hyper
    ) -> KroneckerSpectrum:
        """Step the factor of each axis along G S^-1 G^T / (alpha c).

        G is the gradient matricized along the axis, c the number of its columns, and S the Kronecker product
        of the factors of all other axes. 003 Figs. 1 and 6 write W / (alpha k).
        """
        shape = inside.shape[inside.ndim - self.order :]
        roots = self.along_axes(ops, [spectral_power(ops, factor.values, 2) for factor in curvature.factors])
        scale = ops.reshape(
            spectral_power(ops, curvature.scale, 2), (*curvature.scale.shape[:-1], *(1,) * self.order)
        )
        curvatures = []
        for axis, length in enumerate(shape):
            scaled = inside * (scale / math.sqrt(math.prod(shape) / length))
            for root in roots[:axis] + roots[axis + 1 :]:
                scaled = scaled * root
            curvatures.append(second_moment(ops, scaled, self.order, axis))
        numbers = {name: self.beside_values(ops, value) for name, value in _step(hyper).items()}
        return kronecker_spectral_step(ops, curvature, tuple(curvatures), maps=self.maps, **numbers)

    def direction(self, ops: Ops, inside: Array, curvature: KroneckerSpectrum) -> Array:
        scale = spectral_power(ops, curvature.scale, self.power)
        scaled = inside * ops.reshape(scale, (*scale.shape[:-1], *(1,) * self.order))
        roots = [spectral_power(ops, factor.values, self.power) for factor in curvature.factors]
        for root in self.along_axes(ops, roots):
            scaled = scaled * root
        return multiplied(ops, [factor.basis for factor in curvature.factors], scaled)

    def corrected(self, ops: Ops, curvature: KroneckerSpectrum) -> KroneckerSpectrum:
        return curvature._replace(
            factors=tuple(s._replace(basis=nearer_orthogonal(ops, s.basis)) for s in curvature.factors)
        )


@dataclass(frozen=True)
class _Full:
    """Full curvature S = B diag(d) B^T, for parameters as vectors (..., n).

    Args:
        power: p, the root in the direction S^(-1/p) g.
        maps: maps by which a step changes eigenvalues and eigenvectors.
    """

    power: float
    maps: SpectralMaps

    def init(self, ops: Ops, param: Array) -> Spectrum:
        size = param.shape[-1]
        return Spectrum(ops.zeros((*param.shape, size)) + ops.eye(size), ops.zeros_like(param) + 1)

    def multiplied(self, ops: Ops, curvature: Spectrum, factor: Array) -> Spectrum:
        return curvature._replace(values=curvature.values * factor)

    def inside(self, ops: Ops, grad: Array, curvature: Spectrum) -> Array:
        return (grad[..., None, :] @ curvature.basis)[..., 0, :]

    def stepped(self, ops: Ops, inside: Array, curvature: Spectrum, hyper: Hyper) -> Spectrum:
        outer = inside[..., :, None] * inside[..., None, :]
        return spectral_step_inside(ops, curvature, outer, maps=self.maps, **_step(hyper))

    def direction(self, ops: Ops, inside: Array, curvature: Spectrum) -> Array:
        scaled = inside * spectral_power(ops, curvature.values, self.power)
        return (curvature.basis @ scaled[..., None])[..., 0]

    def corrected(self, ops: Ops, curvature: Spectrum) -> Spectrum:
        return curvature._replace(basis=nearer_orthogonal(ops, curvature.basis))


@dataclass(frozen=True)
class _Diagonal:
    """Diagonal curvature S = diag(d), for matrices (..., m, n), with eigenvectors B = I (003 Sec. 3.2).

    Args:
        power: p, the root in the direction S^(-1/p) g.
        exponential: map by which a step changes d, a key of EXPONENTIALS.
    """

    power: float
    exponential: str

    def init(self, ops: Ops, param: Array) -> DiagonalSpectrum:
        return DiagonalSpectrum(ops.zeros_like(param) + 1)

    def multiplied(self, ops: Ops, curvature: DiagonalSpectrum, factor: Array) -> DiagonalSpectrum:
        return DiagonalSpectrum(curvature.values * factor)

    def inside(self, ops: Ops, grad: Array, curvature: DiagonalSpectrum) -> Array:
        return grad

    def stepped(self, ops: Ops, inside: Array, curvature: DiagonalSpectrum, hyper: Hyper) -> DiagonalSpectrum:
        """Return d e^x, or d (1 + x), for x = beta_2 (g^2 + lambda - gamma d) / d (003 eq. 12)."""
        added = ops.square(inside) + hyper["damping"]
        growth = spectral_growth(curvature.values, added, hyper["curvature_rate"], hyper["gamma"])
        return DiagonalSpectrum(curvature.values * EXPONENTIALS[self.exponential](ops, *growth))

    def direction(self, ops: Ops, inside: Array, curvature: DiagonalSpectrum) -> Array:
        return inside * spectral_power(ops, curvature.values, self.power)

    def corrected(self, ops: Ops, curvature: DiagonalSpectrum) -> DiagonalSpectrum:
        return curvature


@dataclass(frozen=True)
class _Moves:
    """Functions of the update rule, for a curvature of any structure.

    Args:
        curvature: the structure of S.
        axes: number of axes of a parameter; all axes before them are batch axes.
        velocity: whether steps have momentum.
        clipping: maximum root mean square of a parameter's direction; None for no maximum.
        moves_with_new: whether the direction is computed with the curvature that includes the gradient of the
            step; otherwise with the curvature before the step.
    """

    curvature: Curvature
    axes: int
    velocity: bool
    clipping: float | None
    moves_with_new: bool

    def init(self, ops: Ops, param: Array) -> SpectralState:
        velocity = (ops.zeros_like(param),) if self.velocity else ()
        return SpectralState(self.curvature.init(ops, param), velocity)

    def start(self, ops: Ops, grad: Array, state: SpectralState, hyper: Hyper) -> RefreshedSpectrum:
        """Start with S = mean(g^2) I for the first gradient g of each parameter, or with I if g is 0."""
        square = self.mean_square(ops, grad)
        square = ops.where(square == 0, ops.ones_like(square), square)
        curvature = self.curvature.multiplied(ops, state.curvature, square)
        return self.refresh(ops, grad, state._replace(curvature=curvature), hyper)

    def correct(self, ops: Ops, grad: Array, state: SpectralState, hyper: Hyper) -> SpectralState:
        """Correct rounding errors of the bases B, so that they are closer to orthogonal."""
        return state._replace(curvature=self.curvature.corrected(ops, state.curvature))

    def refresh(self, ops: Ops, grad: Array, state: SpectralState, hyper: Hyper) -> RefreshedSpectrum:
        """Update the curvature with this step's gradient, and compute the direction.

        With the new curvature, the direction needs the product B^T g for the new B. With the old curvature,
        no further product is needed, because the update of the curvature has already computed B^T g for the
        old B.
        """
        old, form = state.curvature, self.curvature
        inside = form.inside(ops, grad, old)
        new = form.stepped(ops, inside, old, hyper)
        if self.moves_with_new:
            direction = form.direction(ops, form.inside(ops, grad, new), new)
        else:
            direction = form.direction(ops, inside, old)
        return RefreshedSpectrum(state._replace(curvature=new), direction)

    def update(
        self, ops: Ops, grad: Array, state: SpectralState | RefreshedSpectrum, param: Array, hyper: Hyper
    ) -> tuple[Array, SpectralState]:
        """Do a step: v <- mu v + S^(-1/p) g, then w <- (1 - eta lambda) w - eta v (003 Figs. 1 and 6)."""
        if isinstance(state, RefreshedSpectrum):
            direction, state = state.direction, state.state
        else:
            inside = self.curvature.inside(ops, grad, state.curvature)
            direction = self.curvature.direction(ops, inside, state.curvature)
        if self.clipping is not None:
            excess = ops.sqrt(self.mean_square(ops, direction)) / self.clipping
            direction = direction / ops.maximum(excess, 1.0)
        if self.velocity:
            direction = hyper["momentum"] * state.velocity[0] + direction
            state = state._replace(velocity=(direction,))
        shrinkage = 1 - hyper["learning_rate"] * hyper["weight_decay"]
        return shrinkage * param - hyper["learning_rate"] * direction, state

    def mean_square(self, ops: Ops, array: Array) -> Array:
        """Return the mean square of the entries of each parameter, with length 1 along all its axes."""
        return ops.mean(ops.square(array), axis=tuple(range(-self.axes, 0)), keepdims=True)


def _positive(value: Any) -> float:
    return float(number(0.0, low_open=True)(value))


def _positive_or_none(value: Any) -> float | None:
    if value is not None and not (is_number(value) and 0 < value < math.inf):
        raise OptionError("is not a number above 0, or null (directions are not clipped)")
    return None if value is None else float(value)


def _tolerance(value: Any) -> float:
    return float(number(0.0, 1.0, high_open=True)(value))


OPTIONS_OF_DIAGONALS = {
    "power": Option(2.0, "p of S^(-1/p): 1 for natural gradients, 2 for Adagrad and RMSprop", _positive),
    "exponential": Option(
        "first_order",
        "the map of the eigenvalues: exact, which overflows for gradients far above those before, or its"
        " first_order, which stays positive for outer products of gradients",
        choice(*EXPONENTIALS),
    ),
    "refresh_every": Option(1, "steps between two updates of the curvature", whole(1)),
    "start": Option(
        "gradient",
        "the curvature before the first step: identity, or gradient, I times its mean square",
        choice("identity", "gradient"),
    ),
    "velocity": Option(True, "whether steps have momentum, which keeps a number for each entry", flag),
    "clipping": Option(
        None, "the largest root mean square of a leaf's direction; null: any", _positive_or_none
    ),
    "moves_with": Option(
        "new",
        "the curvature that parameters move with: new, with the step's gradient, or old, without it",
        choice("new", "old"),
    ),
}
OPTIONS_OF_MATRICES = {
    **OPTIONS_OF_DIAGONALS,
    "cayley": Option(
        "exact", "the map of a basis: exact, one solve, or truncated, products alone", choice(*CAYLEYS)
    ),
    "normalized": Option(
        True, "whether a basis turns by rotation_rate, or by what curvature_rate gives it", flag
    ),
    "tie_tolerance": Option(
        1e-2,
        "relative gap of two eigenvalues up to which they count as equal, and are not rotated; 0 is legal",
        _tolerance,
    ),
    "orthogonalize_every": Option(
        None,
        "steps between two corrections of the bases by a Newton-Schulz iteration; null: none",
        whole(1, "none"),
    ),
}
OPTIONS = {**OPTIONS_OF_MATRICES, "others": others_option("all but weight matrices and convolutions")}


def _hyperparameters(chosen: Options) -> dict[str, Hyperparameter]:
    numbers = {
        "learning_rate": LEARNING_RATE,
        "curvature_rate": Hyperparameter(
            "beta_2, the share of the gradient's outer product that is added", 0.05, 0.0, 1.0, low_open=True
        ),
        "gamma": Hyperparameter(
            "1 for a running mean as in RMSprop, 0 for a sum as in Adagrad", 1.0, 0.0, 1.0
        ),
        # Damping is positive, because a step multiplies d: an eigenvalue of 0 would stay 0.
        "damping": Hyperparameter(
            "lambda, times I: added to the outer product; 0 is legal, and NaN once d is 0: with "
            "curvature_rate and gamma 1 at a gradient of 0, else after long without a gradient",
            1e-8,
            0.0,
        ),
        "weight_decay": Hyperparameter(
            "share of the parameters taken away, times the learning rate", 0.0, 0.0
        ),
    }
    if chosen["velocity"]:
        numbers["momentum"] = share("mu, the share of the velocity kept", 0.9)
    if chosen.get("normalized"):
        numbers["rotation_rate"] = Hyperparameter(
            "bar beta_2, the Frobenius norm of a basis's turn", 0.05, 0.0, 2.0, low_open=True, high_open=True
        )
    return numbers


def _rule(name: str, source: str, chosen: Options, curvature: Curvature, axes: int, scope: Any) -> Rule:
    """Return the update rule for a curvature S of one structure.

    Args:
        chosen: values of OPTIONS_OF_DIAGONALS or OPTIONS_OF_MATRICES.
        curvature: structure of S.
        axes: number of axes of a parameter.
        scope: scope of the rule.
    """
    moves = _Moves(curvature, axes, chosen["velocity"], chosen["clipping"], chosen["moves_with"] == "new")
    every = chosen.get("orthogonalize_every")
    return Rule(
        name=name,
        source=source,
        hyperparameters=_hyperparameters(chosen),
        init=moves.init,
        update=moves.update,
        scope=scope,
        start=moves.start if chosen["start"] == "gradient" else None,
        refresh=moves.refresh,
        refresh_every=chosen["refresh_every"],
        observe=None if every is None else moves.correct,
        observe_every=every or 1,
    )


def _maps(chosen: Options) -> SpectralMaps:
    names = ("exponential", "cayley", "normalized", "tie_tolerance")
    return SpectralMaps(**{name: chosen[name] for name in names})


@configured_with_state("spectral", OPTIONS)
def spectral(chosen: Options) -> Rule:
    """Return the update rule with a Kronecker product S; options that are not given keep their defaults.

    S is a Kronecker product with a factor for each axis of a weight or convolution. The rule of 003 for two
    factors is generalized to k factors. Each factor moves by the gradient's outer product, averaged over all
    other axes. The change of log alpha is the sum over all factors of the changes of scale, divided by k.

    The state has m^2 + n^2 + m + n + 1 numbers for an m x n matrix, and m n more with momentum.
    """

    def rule(order: int) -> Rule:
        curvature = _Kronecker(order, chosen["power"], _maps(chosen))
        return _rule("spectral", "003 Fig. 1, Fig. 6, Sec. 3.4", chosen, curvature, order, "leaf")

    return with_fallback(rule, is_matrix, chosen["others"])


@configured_with_state("spectral_full", OPTIONS_OF_MATRICES)
def spectral_full(chosen: Options) -> Rule:
    """Return the update rule with one full matrix S; options that are not given keep their defaults.

    All parameters form one vector of n entries, which counts as one parameter for the start of S and for
    clipping.

    The state has n^2 + n numbers, and n more with momentum.
    """
    curvature = _Full(chosen["power"], _maps(chosen))
    return _rule("spectral_full", "003 Fig. 1, Fig. 5, Sec. 3.4", chosen, curvature, 1, "model")


@configured_with_state("spectral_diagonal", OPTIONS_OF_DIAGONALS)
def spectral_diagonal(chosen: Options) -> Rule:
    """Return the update rule with a diagonal S; options that are not given keep their defaults.

    With the options `exponential: first_order` and `start: identity`, the rule is Adagrad (gamma 0) or
    RMSprop (gamma 1) with the root p and an accumulator that starts at 1.

    The state has n numbers for n entries, and n more with momentum.
    """
    curvature = _Diagonal(chosen["power"], chosen["exponential"])
    return for_matrices(
        lambda order: _rule("spectral_diagonal", "003 Sec. 3.2, eq. 12", chosen, curvature, 2, "leaf")
    )


RULES = (spectral({}), spectral_full({}), spectral_diagonal({}))
