"""Default arguments for optimizers of other libraries that cannot run with the library's own defaults.

A study may override each of these arguments. The keys `groups`, `closure` and `value` are not arguments of a
constructor, nor is `create_graph`; they decide how curvebench calls the optimizer (docs/how-to/plug-in.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ADAMW = "torch:torch.optim.AdamW"
# For optimizers that accept only matrices: AdamW updates all other parameters.
MATRICES = {"groups": {"weight": {}, "others": {"optimizer": ADAMW}}}
# For optimizers with an option of parameter groups, `use_muon`, that orthogonalizes the group's updates.
USE_MUON = {"groups": {"weight": {"use_muon": True}, "others": {"use_muon": False}}}
# For optimizers that compute two gradients per step, and therefore call a closure.
TWICE = {"base_optimizer": "torch:torch.optim.SGD", "closure": True}
# For optimizers that differentiate the gradient.
TWICE_DIFFERENTIATED = {"create_graph": True}
# For transformations of Optax that need the value of the loss.
VALUE = {"value": True}
# For optimizers that wrap another optimizer.
AROUND = {"optimizer": ADAMW}

NEEDED: Mapping[str, Mapping[str, Any]] = {
    "torch.optim.Muon": MATRICES,
    "pytorch_optimizer.SpectralSphere": MATRICES,
    **dict.fromkeys(
        (f"pytorch_optimizer.{name}" for name in ("AdaGO", "AdaMuon", "Muon", "MuonClip", "NorMuon")),
        USE_MUON,
    ),
    **dict.fromkeys((f"pytorch_optimizer.{name}" for name in ("FriendlySAM", "LookSAM", "SAM")), TWICE),
    **dict.fromkeys(
        (f"pytorch_optimizer.{name}" for name in ("Lookahead", "OrthoGrad", "ScheduleFreeWrapper", "TRAC")),
        AROUND,
    ),
    **dict.fromkeys(("pytorch_optimizer.AdaHessian", "pytorch_optimizer.SophiaH"), TWICE_DIFFERENTIATED),
    "optax.contrib.momo": VALUE,
    "optax.contrib.momo_adam": VALUE,
}
