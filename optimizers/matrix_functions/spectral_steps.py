"""Steps of a spectral factorization S = B diag(d) B^T for any symmetric curvature, without decompositions.

S is the learned curvature, whose inverse root preconditions gradients. B has the eigenvectors of S in
columns, and d has the eigenvalues of S. H is the curvature measured at one step, such as g g^T for the
gradient g. beta_2 is the step size of S, gamma the decay of S (1 for a running mean, 0 for a sum), and lambda
the damping.

In citations, 003 is Lin et al. (2025), "Spectral-factorized Positive-definite Curvature Learning for NN
Training" (docs/sources.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from curvebench.optimizers.matrix_functions.scaling import normalized
from curvebench.optimizers.matrix_functions.symmetric import gram, symmetric_product


class Spectrum(NamedTuple):
    basis: Any  # B, (..., n, n), orthogonal, with the eigenvectors of S in columns.
    values: Any  # d, (..., n), the eigenvalues of S, above 0.


class KroneckerSpectrum(NamedTuple):
    """Product S = alpha S_1 x S_2 x ... of factors with determinant 1, one for each axis (003 Claim 5)."""

    scale: Any  # alpha, (..., 1), above 0, by which the product of the factors is multiplied.
    factors: tuple[Spectrum, ...]  # Spectral factorization of the factor of each axis of a parameter.


# Functions of (ops, gained, lost) with x = gained - lost. They return the factor e^x, or 1 + x (first order).
# The functions take two numbers instead of x, because a small gain would be rounded away in x for lost = 1.
EXPONENTIALS: Mapping[str, Callable[[Any, Any, Any], Any]] = {
    "exact": lambda ops, gained, lost: ops.exp(gained - lost),
    "first_order": lambda ops, gained, lost: (1 - lost) + gained,
}
LOGARITHMS_OF_EXPONENTIALS: Mapping[str, Callable[[Any, Any, Any], Any]] = {
    "exact": lambda ops, gained, lost: gained - lost,
    "first_order": lambda ops, gained, lost: ops.log((1 - lost) + gained),
}


def exact_cayley(ops: Any, basis: Any, skew: Any) -> Any:
    """Return B Cayley(X) = B (I + X) (I - X)^-1 = 2 B (I - X)^-1 - B by one solve (003 Sec. 3, Notations).

    Args:
        basis: B, (..., n, n).
        skew: X, (..., n, n), skew-symmetric, so that I - X has an inverse (003 Claim 9).
    """
    # Because X^T = -X, the transpose of B (I - X)^-1 is (I + X)^-1 B^T.
    rows = ops.solve(ops.eye(skew.shape[-1]) + skew, ops.matrix_transpose(basis))
    return 2 * ops.matrix_transpose(rows) - basis


def truncated_cayley(ops: Any, basis: Any, skew: Any) -> Any:
    """Return B (I + X)^2 (I + X^2) (I + X^4), without the inverse that 003 Sec. 3.4 prints in the product.

    The result is computed as B + B E with E = 2 (X + X^2 + ... + X^7) + X^8, so that rounding affects only
    the small term B E.

    Args:
        basis: B, (..., n, n).
        skew: X, (..., n, n), skew-symmetric. Its Frobenius norm must be below 1; otherwise the result is far
            from Cayley(X).
    """
    square = symmetric_product(ops, skew, skew)
    fourth = symmetric_product(ops, square, square)
    low = skew + square + square @ skew
    return basis + basis @ (2 * (low + fourth) + fourth @ (2 * low + fourth))


CAYLEYS: Mapping[str, Callable[[Any, Any, Any], Any]] = {"exact": exact_cayley, "truncated": truncated_cayley}


@dataclass(frozen=True)
class SpectralMaps:
    """Maps by which a step changes d (an exponential) and B (a Cayley map).

    Args:
        exponential: map of d, a key of EXPONENTIALS.
        cayley: map of B, a key of CAYLEYS.
        normalized: whether the rotation of B has the size `rotation_rate` of the step, instead of a size that
            follows from the curvature (003 Sec. 3.4).
        tie_tolerance: two eigenvalues whose difference is at most this share of the larger count as equal,
            and their eigenvectors are not rotated (003 App. E). With 0, this holds for exact equality only.
    """

    exponential: str = "exact"
    cayley: str = "exact"
    normalized: bool = False
    tie_tolerance: float = 0.0


def spectral_step(
    ops: Any,
    spectrum: Spectrum,
    curvature: Any,
    rate: Any,
    gamma: Any = 1.0,
    maps: SpectralMaps = SpectralMaps(),
    damping: Any = 0.0,
    rotation_rate: Any = None,
) -> Spectrum:
    """Return B and d after a step along a curvature H (003 Fig. 1, top; Fig. 5 for a truncated exponential).

    To first order in the rate, S <- (1 - rate gamma) S + rate (H + damping I), the default update (003 eq.
    3), if the eigenvalues d are distinct (003 Claim 2).

    Args:
        spectrum: B and d of S = B diag(d) B^T.
        curvature: H, (..., n, n), symmetric: g g^T, a Hessian, or a Euclidean gradient in S^-1.
        rate: beta_2, a number or (..., 1).
        gamma: 1 if S decays, 0 if it is a sum; a number or (..., 1).
        maps: maps by which d and B change.
        damping: lambda, a number or (..., 1).
        rotation_rate: bar beta_2, the Frobenius norm of a normalized rotation's generator.

    Returns:
        B and d after the step. They are not finite where the exponential overflows, or where its first order
        is not positive.

    Raises:
        ValueError: if `maps.normalized` is set and `rotation_rate` is None.
    """
    inside = ops.matrix_transpose(spectrum.basis) @ curvature @ spectrum.basis
    return spectral_step_inside(ops, spectrum, inside, rate, gamma, maps, damping, rotation_rate)


def spectral_step_inside(
    ops: Any,
    spectrum: Spectrum,
    inside: Any,
    rate: Any,
    gamma: Any = 1.0,
    maps: SpectralMaps = SpectralMaps(),
    damping: Any = 0.0,
    rotation_rate: Any = None,
) -> Spectrum:
    """Return the result of `spectral_step` for a curvature given as `inside` = B^T H B, (..., n, n)."""
    growth = spectral_growth(spectrum.values, ops.diagonal(inside) + damping, rate, gamma)
    values = spectrum.values * EXPONENTIALS[maps.exponential](ops, *growth)
    return Spectrum(rotated_basis(ops, spectrum, inside, rate, maps, rotation_rate), values)


def kronecker_spectral_step(
    ops: Any,
    spectrum: KroneckerSpectrum,
    inside: tuple[Any, ...],
    rate: Any,
    gamma: Any = 1.0,
    maps: SpectralMaps = SpectralMaps(),
    damping: Any = 0.0,
    rotation_rate: Any = None,
) -> KroneckerSpectrum:
    """Return all factors of S = alpha S_1 x S_2 x ... after a step (003 Fig. 1, bottom; Fig. 6, right).

    The factors keep determinant 1. The change of the mean of log d goes into alpha instead, with a share 1 /
    k for each of k axes. The damping adds lambda I to H. In the step of one axis, this adds lambda / alpha
    times the means of 1 / d of all other axes (second form in Fig. 6).

    Args:
        spectrum: alpha, and B and d of each axis.
        inside: for each axis l, B_l^T M_l B_l, (..., n, n). M_l is the mean of the curvature over the
            other axes, relative to S on these axes (W / (alpha k) in Fig. 1). For a matrix gradient G of m
            rows and n columns, M_1 = G S_2^-1 G^T / (alpha n) and M_2 = G^T S_1^-1 G / (alpha m).
        rate, gamma, damping: beta_2, gamma (1 if S decays, 0 if it is a sum) and lambda.
        maps: maps by which d and B change.
        rotation_rate: bar beta_2, the Frobenius norm of a normalized rotation's generator.

    Raises:
        ValueError: if `maps.normalized` is set and `rotation_rate` is None.
    """
    inverses = [ops.mean(1 / factor.values, axis=-1, keepdims=True) for factor in spectrum.factors]
    moved, logarithms = [], []
    for axis, (factor, curvature) in enumerate(zip(spectrum.factors, inside, strict=True)):
        added = damping / spectrum.scale
        for inverse in inverses[:axis] + inverses[axis + 1 :]:
            added = added * inverse
        parts = spectral_growth(factor.values, ops.diagonal(curvature) + added, rate, gamma)
        growth = LOGARITHMS_OF_EXPONENTIALS[maps.exponential](ops, *parts)
        # Before the step, the mean of log d is 0 up to rounding errors.
        # Subtracting the mean after the step removes the rounding errors of log d, too.
        mean = ops.mean(ops.log(factor.values) + growth, axis=-1, keepdims=True)
        basis = rotated_basis(ops, factor, curvature, rate, maps, rotation_rate)
        moved.append(Spectrum(basis, factor.values * ops.exp(growth - mean)))
        logarithms.append(mean)
    total = sum(logarithms[1:], logarithms[0])
    return KroneckerSpectrum(spectrum.scale * ops.exp(total / len(moved)), tuple(moved))


def rotated_basis(
    ops: Any, spectrum: Spectrum, inside: Any, rate: Any, maps: SpectralMaps, rotation_rate: Any = None
) -> Any:
    """Return B Cayley(rate / 2 N), or B Cayley(rotation_rate / 2 N / |N|_F) if normalized (003 Sec. 3.4).

    N is the skew-symmetric generator of the rotation of B.

    Args:
        spectrum: B and d.
        rate: beta_2, a number or (..., 1).
        maps: maps by which d and B change.
        rotation_rate: bar beta_2, the Frobenius norm of a normalized rotation's generator.
        inside: B^T H B, (..., n, n).

    Raises:
        ValueError: if `maps.normalized` is set and `rotation_rate` is None.
    """
    skew = rotation_generator(ops, spectrum.values, inside, maps.tie_tolerance)
    if maps.normalized:
        if rotation_rate is None:
            raise ValueError("a normalized rotation needs its rotation_rate")
        skew, rate = normalized(ops, skew, (-2, -1))[0], rotation_rate
    return CAYLEYS[maps.cayley](ops, spectrum.basis, _for_matrices(rate) / 2 * skew)


def rotation_generator(ops: Any, values: Any, inside: Any, tie_tolerance: float = 0.0) -> Any:
    """Return N = Tril(U) - Tril(U)^T, where Tril is the lower triangle (003 App. E, G, K).

    U_ij is -[B^T H B]_ij / (d_i - d_j), or 0 if d_i and d_j are tied.

    Args:
        values: d, (..., n).
        inside: B^T H B, (..., n, n).
        tie_tolerance: d_i and d_j are tied if |d_i - d_j| is at most this share of the larger.

    Returns:
        (..., n, n), exactly skew-symmetric.
    """
    d_i, d_j = values[..., :, None], values[..., None, :]
    gaps = d_i - d_j
    is_tied = ops.abs(gaps) <= tie_tolerance * ops.maximum(d_i, d_j)
    entries = -inside / ops.where(is_tied, ops.ones_like(gaps), gaps)
    lower = ops.tril(ops.where(is_tied, ops.zeros_like(entries), entries))
    return lower - ops.matrix_transpose(lower)


def spectral_power(ops: Any, values: Any, power: float) -> Any:
    """Return the eigenvalues d^(-1/p) of the inverse root, entry by entry.

    The result is NaN where d is infinite, because the limit 0 would hide the overflow.

    Args:
        values: d, of any shape, above 0.
        power: p, above 0.
    """
    return ops.power(ops.where(ops.isfinite(values), values, float("nan")), -1 / power)


def nearer_orthogonal(ops: Any, basis: Any) -> Any:
    """Return B + B (I - B^T B) / 2, a basis closer to orthogonal by one Newton-Schulz iteration.

    The error |B^T B - I| becomes 3/4 of its square.

    Args:
        basis: B, (..., n, n), with |B^T B - I| well below 1.
    """
    defect = ops.eye(basis.shape[-1]) - gram(ops, ops.matrix_transpose(basis))
    return basis + basis @ defect / 2


def spectral_growth(values: Any, diagonal: Any, rate: Any, gamma: Any) -> tuple[Any, Any]:
    """Return beta_2 diag(B^T H B + lambda I) / d and beta_2 gamma, the gain and the loss of log d in a step.

    Args:
        values: d, of any shape, above 0.
        diagonal: diag(B^T H B + lambda I), in the same shape.
        rate, gamma: beta_2 and gamma, numbers or arrays that broadcast against the values.
    """
    return rate * (diagonal / values), rate * gamma


def _for_matrices(rate: Any) -> Any:
    """Return `rate` unchanged if it is a number; otherwise reshape (..., 1) to broadcast against matrices."""
    return rate if isinstance(rate, float | int) else rate[..., None]
