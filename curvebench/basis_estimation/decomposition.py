"""The eigenvectors of an EGOP by the device of a run."""

from __future__ import annotations

import numpy as np

from curvebench.backends.engine import engine as engine_of
from curvebench.optimizers.bases.estimators import Decomposition, leading_first
from curvebench.steps.engine import Engine


def decomposition_on(engine: Engine) -> Decomposition:
    """The decomposition by an engine's backend and device, in float64 whatever its runs compute in.

    It holds one group's gradients there, and never less than all eigenvectors of the matrix: where gradients
    are fewer than coordinates too, whose null space is then that of the backend.
    """
    exact = engine_of(engine.ops.backend, "float64", engine.device)

    def decompose(gradients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        ops = exact.ops
        with exact.context():
            g = ops.asarray(gradients)
            values, vectors = ops.eigh(ops.matrix_transpose(g) @ g / len(gradients))
            return leading_first(ops.to_numpy(values), ops.to_numpy(vectors))

    return decompose
