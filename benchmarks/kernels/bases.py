"""Kernels of a change of basis: the EGOP matrix, its eigendecomposition, and the rotation of lanes.

EGOP is the expected gradient outer product, the mean of g g^T over gradients g. A basis V has the
eigenvectors of the EGOP matrix in columns. Lanes are the runs of a batch, seeds times settings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from curvebench.optimizers.bases.estimators import egop_matrix, eigenbasis
from curvebench.steps.layout import layout
from curvebench.workloads.workload import Role

from .case import KernelCase, ReadyCase, on_backend, representable

# Number of gradients, and number of entries of a gradient.
SAMPLES, DIMENSION = 512, 384
# Numbers of seeds, of settings per seed, and of parameters in the block that is rotated.
SEEDS, SETTINGS, BLOCK = 4, 8, 384


def _gradients() -> np.ndarray:
    return representable(np.random.default_rng(1), (SAMPLES, DIMENSION))


def _on_the_host(function: Callable[[np.ndarray], Any], extract: Callable[[Any], np.ndarray]) -> ReadyCase:
    gradients = _gradients()
    results: list[Any] = []

    def run() -> None:
        results[:] = [function(gradients)]

    return ReadyCase(run, lambda: extract(results[0]))


def _outer_products() -> np.ndarray:
    """Return the mean of g g^T over the gradients, one gradient added at a time."""
    total = np.zeros((DIMENSION, DIMENSION))
    for gradient in _gradients():
        total += np.outer(gradient, gradient)
    return total / SAMPLES


def _rebuilt(basis: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Return V diag(eigenvalues) V^T, which does not depend on the signs and the order of eigenvectors."""
    vectors, values = basis
    return (vectors * values) @ vectors.T


def _rotation(backend: str, dtype: str) -> ReadyCase:
    lay = layout({"theta": (BLOCK,)}, {"theta": Role("vector")}, (("theta",),))
    return on_backend(
        backend, dtype, lambda ops, matrix, lanes: lay.to_parameters(ops, (matrix,), lanes), _lanes()
    )


def _lanes() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(2)
    matrices = [np.linalg.qr(generator.standard_normal((BLOCK, BLOCK)))[0] for _ in range(SEEDS)]
    rounded = np.stack(matrices).astype(np.float32).astype(np.float64)
    return rounded, representable(generator, (SEEDS, SETTINGS, BLOCK))


def _rotated() -> np.ndarray:
    matrices, flat = _lanes()
    return np.stack([[matrix @ lane for lane in lanes] for matrix, lanes in zip(matrices, flat, strict=True)])


def basis_cases() -> tuple[KernelCase, ...]:
    """Return three cases: the EGOP matrix and its eigenbasis, on the host, and the rotation of lanes."""
    sizes = {"samples": SAMPLES, "dimension": DIMENSION}
    return (
        KernelCase(
            name="basis.egop_accumulation",
            sizes=sizes,
            prepare=lambda backend, dtype: _on_the_host(egop_matrix, lambda matrix: matrix),
            reference=_outer_products,
            tolerance={"float64": 1e-13},
            backends=("numpy",),
            dtypes=("float64",),
        ),
        KernelCase(
            name="basis.egop_eigenbasis",
            sizes=sizes,
            prepare=lambda backend, dtype: _on_the_host(eigenbasis, _rebuilt),
            reference=_outer_products,
            tolerance={"float64": 1e-12},
            backends=("numpy",),
            dtypes=("float64",),
        ),
        KernelCase(
            name="basis.rotation",
            sizes={"seeds": SEEDS, "settings": SETTINGS, "block": BLOCK},
            prepare=_rotation,
            reference=_rotated,
            tolerance={"float64": 1e-13, "float32": 2e-6},
        ),
    )
