"""What optimizers of other libraries must be given to run at all, where a study does not say otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Needed:
    """Arguments that an optimizer has unless a study gives its own, and why."""

    arguments: Mapping[str, Any]
    reason: str


ADAMW = "torch:torch.optim.AdamW"
MATRICES = Needed({"groups": {"weight": {}, "others": {"optimizer": ADAMW}}}, "takes matrices alone")
USE_MUON = Needed(
    {"groups": {"weight": {"use_muon": True}, "others": {"use_muon": False}}},
    "is told in parameter groups what to orthogonalize",
)
TWICE = Needed({"base_optimizer": "torch:torch.optim.SGD", "closure": True}, "takes two gradients a step")
VALUE = Needed({"value": True}, "needs the value of the loss")
AROUND = Needed({"optimizer": ADAMW}, "goes around another optimizer")

NEEDED: Mapping[str, Needed] = {
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
