"""A random orthogonal basis, as a control: a uniformly random rotation or some columns of a rotation."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from curvebench.optimizers.bases.basis import ROTATION_NUMBER, Basis, Estimator, Group, Shapes
from curvebench.optimizers.bases.egop import EGOP, rank_of
from curvebench.optimizers.options import Option, Options
from curvebench.spec.values import whole


class _Haar:
    """Estimator that returns uniformly random orthonormal columns and ignores all gradients.

    The columns are the factor Q in the QR decomposition of a Gaussian matrix. Their signs are chosen such
    that the diagonal of R is positive.
    """

    def __init__(self, size: int, columns: int, random: np.random.Generator) -> None:
        self.size, self.columns, self.random = size, columns, random

    def add(self, gradients: np.ndarray) -> None:
        """Ignore the gradients."""

    def result(self) -> tuple[np.ndarray, np.ndarray]:
        """Return V (n, r) with orthonormal columns, and NaN for its r eigenvalues, since there is no EGOP."""
        orthonormal, upper = np.linalg.qr(self.random.standard_normal((self.size, self.columns)))
        return orthonormal * np.sign(np.diag(upper)), np.full(self.columns, np.nan)


def _groups(options: Options, shapes: Shapes, kinds: Mapping[str, str]) -> tuple[Group, ...]:
    of_egop = {name: value for name, value in options.items() if name != ROTATION_NUMBER}
    return EGOP.groups(EGOP.complete(of_egop), shapes, kinds)


def _estimator(options: Options, group: Group, random: np.random.Generator, *unused: object) -> Estimator:
    return _Haar(group.size, rank_of(options, group) if group.change.leading else group.size, random)


RANDOM_ORTHOGONAL = Basis(
    name="random_orthogonal",
    source="none",
    description="uniformly random columns in place of those of egop, which cost no gradients",
    options={
        **{name: EGOP.options[name] for name in ("blocks", "filters", "rows", "rank", "complement")},
        ROTATION_NUMBER: Option(
            0,
            "number of the rotation: different numbers give independent rotations; by default, the random "
            "bases of a study are numbered in their order",
            whole(0),
        ),
    },
    groups=_groups,
    estimator=_estimator,
)

BASES = (RANDOM_ORTHOGONAL,)
