"""A random orthogonal basis: what any rotation does, without a gradient."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from optimizers.bases.basis import Basis, Estimator, Group, Shapes
from optimizers.bases.egop import EGOP
from optimizers.options import Options


class _Haar:
    """A uniformly random orthonormal V: the Q of a Gaussian matrix whose R has a positive diagonal."""

    def __init__(self, size: int, random: np.random.Generator) -> None:
        self.size, self.random = size, random

    def add(self, gradients: np.ndarray) -> None:
        """Gradients play no part."""

    def result(self) -> tuple[np.ndarray, np.ndarray]:
        """V (n, n), and that its eigenvalues (n,) are not known."""
        orthonormal, upper = np.linalg.qr(self.random.standard_normal((self.size, self.size)))
        return orthonormal * np.sign(np.diag(upper)), np.full(self.size, np.nan)


def _groups(options: Options, shapes: Shapes, kinds: Mapping[str, str]) -> tuple[Group, ...]:
    return EGOP.groups(EGOP.complete(options), shapes, kinds)


def _estimator(options: Options, group: Group, random: np.random.Generator) -> Estimator:
    return _Haar(group.size, random)


RANDOM_ORTHOGONAL = Basis(
    name="random_orthogonal",
    source="none",
    description="a uniformly random rotation of the blocks of egop, which costs no gradients",
    options={name: EGOP.options[name] for name in ("blocks", "filters", "rows")},
    groups=_groups,
    estimator=_estimator,
)

BASES = (RANDOM_ORTHOGONAL,)
