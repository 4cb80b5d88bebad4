"""Matrix functions that update rules share: polar factors, inverse roots, tracked bases, spectral steps.

All are pure functions that receive a backend's array functions `ops`. The last two axes of an array are
matrices; all leading axes, written "...", are batch axes. No branch depends on values, and every loop has a
fixed length, so that programs compile as a whole. A matrix that is not finite gives a result that is not
finite.
"""

from __future__ import annotations

from curvebench.optimizers.matrix_functions.basis_tracking import (
    align_signs,
    descending_order,
    estimated_eigenvalues,
    labelled_orthogonal_iteration,
    online_orthogonal_iteration,
    orthogonal_iteration,
    power_iteration,
    reorder,
)
from curvebench.optimizers.matrix_functions.curvature_steps import (
    cholesky_step,
    default_step,
    kronecker_cholesky_step,
    kronecker_projection_step,
    retraction_step,
)
from curvebench.optimizers.matrix_functions.inverse_roots import inverse_root, inverse_root_product
from curvebench.optimizers.matrix_functions.orthogonalization import newton_schulz, orthogonal_factor
from curvebench.optimizers.matrix_functions.polynomials import COEFFICIENTS, OddPolynomial
from curvebench.optimizers.matrix_functions.scaling import rank_cutoff
from curvebench.optimizers.matrix_functions.spectral_steps import (
    CAYLEYS,
    EXPONENTIALS,
    KroneckerSpectrum,
    SpectralMaps,
    Spectrum,
    kronecker_spectral_step,
    nearer_orthogonal,
    rotated_basis,
    rotation_generator,
    spectral_growth,
    spectral_power,
    spectral_step,
    spectral_step_inside,
)
from curvebench.optimizers.matrix_functions.symmetric import gram, symmetric_product
