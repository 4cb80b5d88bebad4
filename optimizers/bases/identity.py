"""The identity basis: original coordinates."""

from __future__ import annotations

from curvebench.optimizers.bases.basis import Basis

IDENTITY = Basis(name="identity", source="none", description="the original coordinates; nothing is rotated")

BASES = (IDENTITY,)
