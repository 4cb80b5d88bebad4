"""Seconds of a run by phase."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

PHASES = ("import", "data", "compile", "step", "evaluation")
CHECKPOINT = "checkpoint"  # phase of writing and reading checkpoints, which tables count as other seconds
# Parts of phases: waiting for the inputs of a segment is in `data`, estimating a basis in a run in `step`.
WAITING, BASIS = "waiting", "basis"


class Clock:
    """Seconds of a job by phase.

    Attributes:
        seconds: seconds of each phase.
        parts: seconds of parts of a phase, which are included in the phase.
        earlier: seconds, of all phases together, that earlier processes spent on runs which this process
            resumed.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = dict.fromkeys((*PHASES, CHECKPOINT), 0.0)
        self.parts: dict[str, float] = dict.fromkeys((WAITING, BASIS), 0.0)
        self.earlier = 0.0

    @property
    def named(self) -> dict[str, float]:
        """The seconds of all phases and parts by name."""
        return self.seconds | self.parts

    def take_over(self, seconds: Mapping[str, float]) -> None:
        """Add the seconds of an earlier process, whose checkpoint this process has resumed."""
        for totals in (self.seconds, self.parts):
            totals |= {name: totals[name] + seconds.get(name, 0.0) for name in totals}
        self.earlier += sum(seconds.get(name, 0.0) for name in self.seconds)

    @contextmanager
    def phase(self, name: str, part: str | None = None) -> Iterator[None]:
        """Return a context whose duration is added to a phase, and to a part of the phase if one is named."""
        start = time.perf_counter()
        try:
            yield
        finally:
            duration = time.perf_counter() - start
            self.seconds[name] += duration
            if part is not None:
                self.parts[part] += duration
