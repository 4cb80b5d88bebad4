"""The identity basis: the optimizer runs in the original coordinates of the parameters."""

from __future__ import annotations

from curvebench.optimizers.bases.basis import Basis

IDENTITY = Basis(name="identity", source="none", description="the original coordinates; nothing is rotated")

BASES = (IDENTITY,)
