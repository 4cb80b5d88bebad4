"""Progress of a long job, printed as plain lines that are readable in a terminal and in a log file."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field

# The remaining time is printed only when at least this share of the work is done.
# Earlier, an estimate would be wrong, because start-up has taken most of the elapsed time.
MIN_SHARE = 0.1


@dataclass
class Progress:
    """Progress of a job: the share of its work that is done, printed at most once in `every` seconds.

    Args:
        title: name of the job, at the start of each line.
        total: amount of work of the whole job, in any unit.
        every: minimum number of seconds between two lines.
        even: whether equal amounts of work take about equal time. If not, the remaining time is not printed.
        done: amount of work done so far, in the unit of `total`.
        started: time at which the job started, as returned by `time.monotonic`.
        printed: time at which the last line was printed, as returned by `time.monotonic`.
    """

    title: str
    total: float
    every: float = 5.0
    even: bool = True
    done: float = 0.0
    started: float = field(default_factory=time.monotonic)
    printed: float = field(default_factory=time.monotonic)

    def advance(self, work: float, note: str = "") -> None:
        """Record that work has been done. Print a line if the last line is at least `every` seconds old.

        Args:
            work: amount of work, in the unit of `total`.
            note: text at the end of the line.
        """
        self.done += work
        now = time.monotonic()
        # The call at which the work reaches `total` prints a line even if the last line is recent.
        # Later calls, for more work than was planned, do not print such a line.
        ends = self.done - work < self.total <= self.done
        if now - self.printed < self.every and not ends:
            return
        self.printed = now
        share = min(self.done / self.total, 1.0) if self.total else 1.0
        bar = "#" * round(20 * share)
        predictable = self.even and share >= MIN_SHARE
        remaining = f", {(now - self.started) * (1 - share) / share:.0f} s left" if predictable else ""
        print(f"{self.title} [{bar:<20}] {share:4.0%}{remaining} {note}", file=sys.stderr, flush=True)
