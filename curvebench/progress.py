"""Progress of a long job, printed as plain lines that are readable in a terminal and in a log file."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field

# The remaining time is estimated once this share of the work is done; before, most of the time was start-up.
MIN_SHARE = 0.1


@dataclass
class Progress:
    """Prints the share of a job's work that is done, at most once in `every` seconds.

    Args:
        title: name of the job, at the start of each line.
        total: amount of work, in any unit.
        every: seconds between two lines.
        even: whether equal amounts of work take about equal time. If not, the remaining time is not printed.
        done: amount of work done so far.
        started: time at which the job started, as of `time.monotonic`.
        printed: time of the last line.
    """

    title: str
    total: float
    every: float = 5.0
    even: bool = True
    done: float = 0.0
    started: float = field(default_factory=time.monotonic)
    printed: float = field(default_factory=time.monotonic)

    def advance(self, work: float, note: str = "") -> None:
        """Add to the work that is done, and print a line, which ends with `note`, if it is time for one."""
        self.done += work
        now = time.monotonic()
        # The line for 100 % is printed once, although more work may be done than was planned.
        ends = self.done - work < self.total <= self.done
        if now - self.printed < self.every and not ends:
            return
        self.printed = now
        share = min(self.done / self.total, 1.0) if self.total else 1.0
        bar = "#" * round(20 * share)
        predictable = self.even and share >= MIN_SHARE
        remaining = f", {(now - self.started) * (1 - share) / share:.0f} s left" if predictable else ""
        print(f"{self.title} [{bar:<20}] {share:4.0%}{remaining} {note}", file=sys.stderr, flush=True)
