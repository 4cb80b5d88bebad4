"""Steps of the spectral-factorized curvature for given gradients, and the preconditioners of the rules.

In citations, 003 is Lin et al. (2025), "Spectral-factorized Positive-definite Curvature Learning for NN
Training" (docs/sources.md).

S is the learned curvature: one matrix B diag(d) B^T, or alpha S_1 (x) S_2 with two Kronecker factors. g (or a
matrix G) is a gradient, and beta the step size of S.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from curvebench.benchmarks.claims._gaussians import assembled
from curvebench.benchmarks.claims._matrices import OPS
from curvebench.benchmarks.claims._moves import moves
from curvebench.benchmarks.claims._parts import Random
from curvebench.optimizers.matrix_functions import (
    KroneckerSpectrum,
    SpectralMaps,
    Spectrum,
    kronecker_spectral_step,
    spectral_step_inside,
)

# The exact exponential and Cayley maps, as in 003 Fig. 1.
EXACT_MAPS = SpectralMaps("exact", "exact")
# Options with which the rules use the exact maps of 003 Fig. 1.
PLAIN_ROTATION: Mapping[str, Any] = {"normalized": False, "tie_tolerance": 0.0, "cayley": "exact"}
RULES = {"the rule spectral_full": "spectral_full", "the rule spectral": "spectral"}
# The smallest positive floating-point number with full precision.
POSITIVE = float(np.finfo(np.float64).tiny)
# Relative tolerance of the curvature S and its factors, reconstructed from the weights of a rule.
READ = 1e-8


def lengths_of(random: Random, count: int, least: int = 1, greatest: int = 5) -> tuple[int, ...]:
    """Draw the lengths of `count` axes, whole numbers from `least` to `greatest`."""
    return tuple(int(length) for length in random.integers(least, greatest + 1, count))


def axes_curvatures(spectrum: KroneckerSpectrum, gradient: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the curvatures of the rows and of the columns of G, W^(l) / (alpha k^(l)) (003 Fig. 6, caption).

    The two curvatures are in the coordinates of the eigenvectors of S_1 and S_2, and are computed by explicit
    inverses. For axis l of G, k^(l) is the length of the other axis.
    """
    first, second = spectrum.factors
    rows = gradient @ np.linalg.inv(assembled(second)) @ gradient.T / gradient.shape[1]
    columns = gradient.T @ np.linalg.inv(assembled(first)) @ gradient / gradient.shape[0]
    return (
        first.basis.T @ rows @ first.basis / spectrum.scale,
        second.basis.T @ columns @ second.basis / spectrum.scale,
    )


def stepped(
    spectrum: Spectrum | KroneckerSpectrum,
    gradient: np.ndarray,
    rate: float,
    gamma: float,
    maps: SpectralMaps = EXACT_MAPS,
    damping: float = 0.0,
    turn: float | None = None,
) -> Any:
    """Return the spectral factorization after one step of the project's functions along g g^T.

    Args:
        spectrum: one matrix for a gradient vector, or two Kronecker factors for a gradient matrix.
        gradient: g, (n,), or G, (m, n).
        rate: beta, the step size of the curvature.
        gamma: 1 with the entropy term of 003 eq. 4, 0 without.
        maps: the maps of eigenvalues and eigenvectors.
        damping: lambda, which is added to the diagonal of the curvature in the eigenvectors' coordinates.
        turn: Frobenius norm of a normalized rotation's generator; None if rotations are not normalized.
    """
    if isinstance(spectrum, Spectrum):
        # The diagonal of B^T g g^T B is computed as squares, which rounding cannot make negative.
        coordinates = spectrum.basis.T @ gradient
        outer = np.outer(coordinates, coordinates)
        return spectral_step_inside(OPS, spectrum, outer, rate, gamma, maps, damping, turn)
    inside = axes_curvatures(spectrum, gradient)
    return kronecker_spectral_step(OPS, spectrum, inside, rate, gamma, maps, damping, turn)


def preconditioners(
    optimizer: str,
    gradients: Sequence[np.ndarray],
    hyper: Mapping[str, float],
    options: Mapping[str, Any],
) -> list[np.ndarray]:
    """Return the preconditioner S^(-1/p) of a rule after each gradient, (n, n), for row-major parameters.

    The rule updates S only in every (n + 1)-th step. In the n steps in between, the gradients are the unit
    vectors, so that the updates are the columns of the preconditioner.
    """
    shape, size = gradients[0].shape, gradients[0].size
    units = list(np.eye(size).reshape(size, *shape))
    given = [one for gradient in gradients for one in (gradient, *units)]
    options = {**options, "refresh_every": size + 1, "start": "identity", "velocity": False}
    found = -moves(optimizer, np.array(given), {"damping": 0.0, **hyper}, options)
    columns = found.reshape(len(gradients), size + 1, size)[:, 1:]
    return list(columns.swapaxes(1, 2))


def draw_gradients(random: Random, shape: tuple[int, ...], count: int) -> list[np.ndarray]:
    """Draw `count` normal gradients. The entries have different standard deviations, from 1/3 to 3."""
    return list(random.standard_normal((count, *shape)) * 3.0 ** random.uniform(-1, 1, shape))
