"""Steps of spectral-factorized curvature on gradients that are given, and what rules make of them."""

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

EXACT_MAPS = SpectralMaps("exact", "exact")  # of 003 Fig. 1
PLAIN_ROTATION: Mapping[str, Any] = {"normalized": False, "tie_tolerance": 0.0, "cayley": "exact"}  # likewise
RULES = {"the rule spectral_full": "spectral_full", "the rule spectral": "spectral"}
POSITIVE = float(np.finfo(np.float64).tiny)  # the least that is not denormal
READ = 1e-8  # of preconditioners that are read off a rule's weights


def lengths_of(random: Random, count: int, least: int = 1, greatest: int = 5) -> tuple[int, ...]:
    """Some lengths of axes."""
    return tuple(int(length) for length in random.integers(least, greatest + 1, count))


def axes_curvatures(spectrum: KroneckerSpectrum, gradient: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """W^(l) / (alpha k^(l)) for the rows and columns of G, from whole inverses (003 Fig. 6, caption)."""
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
    """The project's step along g g^T: of one matrix for a vector, of two factors for a matrix G."""
    if isinstance(spectrum, Spectrum):
        coordinates = spectrum.basis.T @ gradient  # whose squares no rounding makes negative
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
    """S^(-1/p) of a rule after each gradient, (n, n), of parameters raveled in row-major order.

    The rule refreshes S at every (n + 1)-th step alone; unit vectors at the n steps between read it off.
    """
    shape, size = gradients[0].shape, gradients[0].size
    units = list(np.eye(size).reshape(size, *shape))
    given = [one for gradient in gradients for one in (gradient, *units)]
    options = {**options, "refresh_every": size + 1, "start": "identity", "velocity": False}
    found = -moves(optimizer, np.array(given), {"damping": 0.0, **hyper}, options)
    columns = found.reshape(len(gradients), size + 1, size)[:, 1:]
    return list(columns.swapaxes(1, 2))


def draw_gradients(random: Random, shape: tuple[int, ...], count: int) -> list[np.ndarray]:
    """Normal, each entry with a deviation of its own from 1/3 to 3."""
    return list(random.standard_normal((count, *shape)) * 3.0 ** random.uniform(-1, 1, shape))
