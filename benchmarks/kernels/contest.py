"""Our step and another one that are timed in turn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .case import ReadyCase


@dataclass(frozen=True)
class Contest:
    """Two steps that are timed in turn.

    Args:
        step: what is taken; behind its shapes stands what it is beside where that is another computation.
        backend, precision: of ours.
        peer: whose the other is.
        ours, theirs: prepare them.
        calls: how many in a row are one sample.
        steps: how many these are together.
    """

    step: str
    backend: str
    precision: str
    peer: str
    ours: Callable[[], ReadyCase]
    theirs: Callable[[], ReadyCase]
    calls: int = 1
    steps: int = 1

    @property
    def label(self) -> str:
        """Step, backend and precision, as in tables."""
        return f"{self.step} {self.backend} {self.precision}"
