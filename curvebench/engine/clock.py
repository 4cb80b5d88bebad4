"""Seconds of a run by phase."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

PHASES = ("import", "data", "compile", "step", "evaluation")
CHECKPOINT = "checkpoint"  # a phase that tables have among the others
WAITING, BASIS = "waiting", "basis"  # parts of phases: of data for the next inputs, of step for a basis anew


class Clock:
    """Seconds by phase, on the monotonic clock; `earlier` of them in other processes.

    `parts` are seconds that a phase has too.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = dict.fromkeys((*PHASES, CHECKPOINT), 0.0)
        self.parts: dict[str, float] = dict.fromkeys((WAITING, BASIS), 0.0)
        self.earlier = 0.0

    @property
    def named(self) -> dict[str, float]:
        """The seconds of phases and of parts, by name."""
        return self.seconds | self.parts

    def take_over(self, seconds: Mapping[str, float]) -> None:
        """Go on from the seconds of a process before this one."""
        for known in (self.seconds, self.parts):
            known |= {name: known[name] + seconds.get(name, 0.0) for name in known}
        self.earlier += sum(seconds.get(name, 0.0) for name in self.seconds)

    @contextmanager
    def phase(self, name: str, part: str | None = None) -> Iterator[None]:
        """Charge what runs inside to a phase, and to a part of it where one is named."""
        start = time.perf_counter()
        try:
            yield
        finally:
            taken = time.perf_counter() - start
            self.seconds[name] += taken
            if part is not None:
                self.parts[part] += taken
