"""Methods that learn a curvature from gradients, paths of the learned curvature, and distances of matrices.

S is the learned curvature, S_0 its initial value, H the curvature of one step (g g^T for a gradient g), and B
diag(d) B^T an eigendecomposition of S. A law is a probability distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from curvebench.benchmarks.claims._matrices import OPS, orthonormal
from curvebench.benchmarks.claims._parts import Random
from curvebench.optimizers import matrix_functions as mf
from curvebench.optimizers.matrix_functions import KroneckerSpectrum, SpectralMaps, Spectrum

# Condition number of the initial curvature S_0, if the eigenvalues of S_0 are distinct.
# Distinct eigenvalues of S_0 are a geometric sequence of product 1.
SPREAD = 4.0


# A tuple and not a dataclass, so that the hash of a claim's rule includes the functions in the fields.
class CurvatureMethod(NamedTuple):
    """Method that learns a curvature S.

    Args:
        begin: `begin(spectrum)` is the initial state, from the spectrum of S_0 or of its Kronecker factors.
        step: `step(state, input, rate)` is the next state; the input is a gradient or a curvature, and the
            rate is the step size of S.
        matrix: `matrix(state)` is S, (n, n).
    """

    begin: Callable[[Any], Any]
    step: Callable[[Any, Any, float], Any]
    matrix: Callable[[Any], np.ndarray]


def path(
    method: CurvatureMethod, start: Any, given: Iterable[Any], rate: float, checkpoints: Iterable[int]
) -> np.ndarray:
    """Return S after each number of steps in `checkpoints` (ascending), with shape (checkpoints, n, n).

    S is not finite if the method has diverged.

    Args:
        method: the method that learns S.
        start: argument of `method.begin`, such as the spectrum of S_0.
        given: input of each step, a gradient or a curvature.
        rate: step size of S.
        checkpoints: numbers of steps.
    """
    state, wanted, found = method.begin(start), set(checkpoints), []
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        for number, one in enumerate(given, start=1):
            state = method.step(state, one, rate)
            if number in wanted:
                found.append(method.matrix(state))
    return np.array(found)


# --- random matrices and gradients -----------------------------------------------------------------


def spread_matrix(random: Random, size: int, condition: float) -> np.ndarray:
    """Draw a positive definite matrix with random eigenvectors and a given condition number.

    Its eigenvalues are a geometric sequence of product 1.
    """
    basis = orthonormal(random, size, size)
    return np.asarray((basis * geometric(size, condition)) @ basis.T)


def geometric(size: int, condition: float) -> np.ndarray:
    """Return `size` eigenvalues, a geometric sequence from condition^-1/2 to condition^1/2."""
    return np.geomspace(condition**-0.5, condition**0.5, size)


def distinct(random: Random, size: int) -> Spectrum:
    """Draw a spectrum with random eigenvectors and distinct eigenvalues."""
    return Spectrum(orthonormal(random, size, size), geometric(size, SPREAD))


def identity(random: Random, size: int) -> Spectrum:
    """Return the spectrum of the identity, whose eigenvalues are equal."""
    return Spectrum(np.eye(size), np.ones(size))


STARTS: Mapping[str, Callable[[Random, int], Spectrum]] = {"distinct": distinct, "the identity": identity}


def gradients_of(random: Random, covariance: np.ndarray, count: int) -> np.ndarray:
    """Draw normal gradients (count, n) with a given covariance."""
    return random.standard_normal((count, len(covariance))) @ np.linalg.cholesky(covariance).T


def off_product(random: Random, product: np.ndarray, sizes: tuple[int, int], share: float) -> np.ndarray:
    """Return a matrix whose relative distance from the nearest Kronecker product is `share`.

    The matrix is a weighted mean of `product`, a Kronecker product, and a random matrix. The weight is found
    by bisection.
    """
    other = spread_matrix(random, len(product), np.linalg.cond(product))
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        mixed = (1 - middle) * product + middle * other
        is_far = relative_frobenius(np.kron(*nearest_product(mixed, sizes)), mixed) > share
        low, high = (low, middle) if is_far else (middle, high)
    return (1 - low) * product + low * other


# --- distances of matrices -------------------------------------------------------------------------


def relative_frobenius(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Return the relative distance |found - expected|_F / |expected|_F of matrices (..., n, n)."""
    return np.asarray(
        np.linalg.norm(found - expected, axis=(-2, -1)) / np.linalg.norm(expected, axis=(-2, -1))
    )


def relative_wasserstein(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Return the relative Wasserstein-2 distance of two centred normal laws.

    The laws have the covariances `found` and `expected`, (..., n, n). Their distance is divided by the
    distance of the law of `expected` from the point mass at 0. The result is infinite if a covariance is not
    positive definite.

    The distance is the minimum of |L - M U|_F over orthogonal U, for any L and M for which L L^T and M M^T
    are the two covariances. Unlike the usual difference of traces, this formula does not suffer from
    cancellation.
    """
    found, expected = np.broadcast_arrays(found, expected)
    one, other = OPS.cholesky(found), OPS.cholesky(expected)
    are_roots = np.isfinite(one).all((-2, -1)) & np.isfinite(other).all((-2, -1))
    one, other = (np.where(are_roots[..., None, None], root, 0.0) for root in (one, other))
    left, _, right = np.linalg.svd(other.swapaxes(-1, -2) @ one)
    gap = np.linalg.norm(one - other @ left @ right, axis=(-2, -1))
    size = np.sqrt(np.trace(expected, axis1=-2, axis2=-1))
    return np.where(are_roots, gap / size, np.inf)


DISTANCES: Mapping[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "Frobenius": relative_frobenius,
    "Wasserstein": relative_wasserstein,
}


# --- Kronecker products ----------------------------------------------------------------------------


def nearest_product(matrix: np.ndarray, sizes: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return the factors of the Kronecker product that is nearest to `matrix` in Frobenius norm.

    See Van Loan and Pitsianis 1993.
    """
    rows, columns = sizes
    blocks = matrix.reshape(rows, columns, rows, columns).swapaxes(1, 2).reshape(rows**2, columns**2)
    left, values, right = np.linalg.svd(blocks, full_matrices=False)
    signed = np.sign(np.trace(left[:, 0].reshape(rows, rows)))
    return (
        signed * values[0] * left[:, 0].reshape(rows, rows),
        signed * right[0].reshape(columns, columns),
    )


def likeliest_product(
    covariance: np.ndarray, sizes: tuple[int, int], rounds: int = 200
) -> tuple[np.ndarray, np.ndarray]:
    """Return the Kronecker factors of the maximum-likelihood matrix normal law for a sample covariance.

    The factors are computed by `rounds` rounds of the flip-flop algorithm (Dutilleul 1999).
    """
    blocks = covariance.reshape(*sizes, *sizes)
    one, other = np.eye(sizes[0]), np.eye(sizes[1])
    for _ in range(rounds):
        one = np.einsum("aibj,ji->ab", blocks, np.linalg.inv(other)) / sizes[1]
        other = np.einsum("aibj,ba->ij", blocks, np.linalg.inv(one)) / sizes[0]
    return one, other


def product(factors: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Return the Kronecker products of matrices (..., m, m) and (..., n, n)."""
    one, other = factors
    size = one.shape[-1] * other.shape[-1]
    return np.einsum("...ab,...ij->...aibj", one, other).reshape(*one.shape[:-2], size, size)


# --- methods that learn a curvature ----------------------------------------------------------------


def matrix_of(spectrum: Spectrum) -> np.ndarray:
    """Return the matrix B diag(d) B^T of a spectrum."""
    return np.asarray(spectrum.basis * spectrum.values[..., None, :] @ spectrum.basis.swapaxes(-1, -2))


def inverse_root_of(spectrum: Spectrum) -> np.ndarray:
    """Return the lower triangular C with (C C^T)^-1 = S for the spectrum of S."""
    return np.linalg.cholesky(matrix_of(Spectrum(spectrum.basis, 1 / spectrum.values)))


def of_inverse_root(factor: np.ndarray) -> np.ndarray:
    """Return S = (C C^T)^-1 for a factor C = `inverse_root_of(spectrum of S)`."""
    inverse = OPS.solve(factor, np.broadcast_to(np.eye(factor.shape[-1]), factor.shape))
    return np.asarray(inverse.swapaxes(-1, -2) @ inverse)


def spectral(maps: SpectralMaps) -> CurvatureMethod:
    """Return the spectral-factorized scheme for one matrix S, whose inputs are gradients (n,)."""

    def step(state: Spectrum, gradient: np.ndarray, rate: float) -> Spectrum:
        inside = gradient @ state.basis
        return mf.spectral_step_inside(
            OPS, state, inside[..., :, None] * inside[..., None, :], rate, 1.0, maps
        )

    return CurvatureMethod(lambda start: start, step, matrix_of)


def spectral_of_curvature(maps: SpectralMaps) -> CurvatureMethod:
    """Return the spectral-factorized scheme for one matrix S and curvatures that depend on S.

    The input of a step is a function from S to a curvature.
    """

    def step(state: Spectrum, curvature: Callable[[np.ndarray], np.ndarray], rate: float) -> Spectrum:
        return mf.spectral_step(OPS, state, curvature(matrix_of(state)), rate, 0.0, maps)

    return CurvatureMethod(lambda start: start, step, matrix_of)


DEFAULT = CurvatureMethod(
    matrix_of,
    lambda state, gradient, rate: mf.default_step(OPS, state, np.outer(gradient, gradient), rate),
    np.asarray,
)
CHOLESKY = CurvatureMethod(
    inverse_root_of,
    lambda state, gradient, rate: mf.cholesky_step(OPS, state, np.outer(gradient, gradient), rate),
    of_inverse_root,
)
RETRACTION = CurvatureMethod(
    matrix_of,
    lambda state, curvature, rate: mf.retraction_step(OPS, state, curvature(state), rate),
    np.asarray,
)
CHOLESKY_OF_CURVATURE = CurvatureMethod(
    inverse_root_of,
    lambda state, curvature, rate: mf.cholesky_step(OPS, state, curvature(of_inverse_root(state)), rate, 0.0),
    of_inverse_root,
)


def kronecker_spectral(maps: SpectralMaps) -> CurvatureMethod:
    """Return the spectral-factorized scheme of two Kronecker factors, whose inputs are gradients (m, n)."""

    def begin(start: tuple[Spectrum, Spectrum]) -> KroneckerSpectrum:
        return KroneckerSpectrum(np.ones(1), start)

    def step(state: KroneckerSpectrum, gradient: np.ndarray, rate: float) -> KroneckerSpectrum:
        one, other = state.factors
        inside = one.basis.swapaxes(-1, -2) @ gradient @ other.basis
        turned, scale = inside.swapaxes(-1, -2), state.scale[..., None]
        rows, columns = gradient.shape
        means = (
            (inside / other.values[..., None, :]) @ turned / (scale * columns),
            (turned / one.values[..., None, :]) @ inside / (scale * rows),
        )
        return mf.kronecker_spectral_step(OPS, state, means, rate, 1.0, maps)

    def matrix(state: KroneckerSpectrum) -> np.ndarray:
        one, other = (matrix_of(factor) for factor in state.factors)
        return state.scale[..., None] * product((one, other))

    return CurvatureMethod(begin, step, matrix)


def _kronecker_cholesky(shares_scale: bool) -> CurvatureMethod:
    def step(state: Any, gradient: np.ndarray, rate: float) -> Any:
        return mf.kronecker_cholesky_step(OPS, state, gradient, rate, shares_scale=shares_scale)

    return CurvatureMethod(
        lambda start: tuple(inverse_root_of(one) for one in start),
        step,
        lambda state: product((of_inverse_root(state[0]), of_inverse_root(state[1]))),
    )


KRONECKER_CHOLESKY = _kronecker_cholesky(shares_scale=True)
# As printed, the update of each factor changes the common scale, so that the scale changes twice in a step.
KRONECKER_CHOLESKY_AS_PRINTED = _kronecker_cholesky(shares_scale=False)
PROJECTION = CurvatureMethod(
    lambda start: tuple(matrix_of(one) for one in start),
    lambda state, gradient, rate: mf.kronecker_projection_step(OPS, state, gradient, rate),
    product,
)
WHOLE = CurvatureMethod(
    lambda start: product((matrix_of(start[0]), matrix_of(start[1]))),
    lambda state, gradient, rate: mf.default_step(OPS, state, np.outer(gradient, gradient), rate),
    np.asarray,
)
