"""Progress of a long job as plain lines, which read well in a terminal and in a log."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field

BASIS = 0.1  # the share of the work from which the rest is estimated: before it, most is start-up


@dataclass
class Progress:
    """Prints what share of a job's work is done, at most once in `every` seconds.

    Args:
        title: what the job is.
        total: its work, in any unit.
        every: seconds between lines.
        even: whether equal work takes about equal time; if not, no time is told that is left, as of too
            small a share (`BASIS`).
    """

    title: str
    total: float
    every: float = 5.0
    even: bool = True
    done: float = 0.0
    started: float = field(default_factory=time.monotonic)
    printed: float = field(default_factory=time.monotonic)

    def advance(self, work: float, what: str = "") -> None:
        """Count work as done, and say so when it is time."""
        self.done += work
        now = time.monotonic()
        ends = self.done - work < self.total <= self.done  # once: more may be done than was planned
        if now - self.printed < self.every and not ends:
            return
        self.printed = now
        share = min(self.done / self.total, 1.0) if self.total else 1.0
        bar = "#" * round(20 * share)
        known = self.even and share >= BASIS
        left = f", {(now - self.started) * (1 - share) / share:.0f} s left" if known else ""
        print(f"{self.title} [{bar:<20}] {share:4.0%}{left} {what}", file=sys.stderr, flush=True)
