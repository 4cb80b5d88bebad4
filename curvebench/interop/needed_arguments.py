"""What optimizers of other libraries must be given to run at all, where a study does not say otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ADAMW = "torch:torch.optim.AdamW"
# Takes matrices alone.
MATRICES = {"groups": {"weight": {}, "others": {"optimizer": ADAMW}}}
# Is told in parameter groups what to orthogonalize.
USE_MUON = {"groups": {"weight": {"use_muon": True}, "others": {"use_muon": False}}}
# Takes two gradients a step.
TWICE = {"base_optimizer": "torch:torch.optim.SGD", "closure": True}
# Needs the value of the loss.
VALUE = {"value": True}
# Goes around another optimizer.
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
    "optax.contrib.momo": VALUE,
    "optax.contrib.momo_adam": VALUE,
}
