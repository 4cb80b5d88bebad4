"""Measurement of the seconds that a job spends in each phase, such as compilation or steps."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

PHASES = ("import", "data", "compile", "step", "evaluation")
CHECKPOINT = "checkpoint"  # phase of writing and reading checkpoints; tables report it as other seconds
# Subdivision of the phase `data`: WAITING is the time of waiting for the inputs of the next steps.
# Subdivision of the phase `step`: BASIS is the time of estimating a basis again during a run.
WAITING, BASIS = "waiting", "basis"


class Clock:
    """Seconds of a job by phase.

    Attributes:
        seconds: seconds of each phase.
        parts: seconds of the subdivisions WAITING and BASIS. They are included in the seconds of their
            phases.
        earlier: seconds in all phases together that earlier processes spent on runs that this process has
            resumed.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = dict.fromkeys((*PHASES, CHECKPOINT), 0.0)
        self.parts: dict[str, float] = dict.fromkeys((WAITING, BASIS), 0.0)
        self.earlier = 0.0

    @property
    def named(self) -> dict[str, float]:
        """Mapping from the names of all phases and of their subdivisions to seconds."""
        return self.seconds | self.parts

    def take_over(self, seconds: Mapping[str, float]) -> None:
        """Add the seconds of an earlier process, from whose checkpoint this process resumes a run.

        The argument is a mapping from the names of phases and subdivisions to seconds.
        """
        for totals in (self.seconds, self.parts):
            totals |= {name: totals[name] + seconds.get(name, 0.0) for name in totals}
        self.earlier += sum(seconds.get(name, 0.0) for name in self.seconds)

    @contextmanager
    def phase(self, name: str, part: str | None = None) -> Iterator[None]:
        """Return a context whose duration is added to the phase `name`, and to its subdivision `part`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            duration = time.perf_counter() - start
            self.seconds[name] += duration
            if part is not None:
                self.parts[part] += duration
