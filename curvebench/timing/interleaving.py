"""The one interleaved clock: code that is compared in speed is timed in turn, so that a drift falls on all.

Step times of studies, ratios to other libraries, networks on a GPU and the gate take their samples in the
order of `turns`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from curvebench.results.intervals import MedianInterval, median_interval
from curvebench.timing.clocks import calls_for, seconds_of

# Calls are bundled until a sample takes this long, so that the clock's resolution and interrupts are small.
SAMPLE_SECONDS = 0.002


@dataclass(frozen=True)
class Ratios:
    """Ratio of the seconds of `a` to the seconds of `b`.

    Args:
        ratio: median over repetitions with its distribution-free interval.
        same: the same for `a` over `a` timed a second time (A/A), which shows what no difference looks like.
        seconds: median seconds of a call of `a` and of `b`.
    """

    ratio: MedianInterval
    same: MedianInterval
    seconds: tuple[float, float]


def turns(count: int, repetitions: int) -> Iterator[tuple[int, int]]:
    """Yield (repetition, contestant) in the order in which samples are taken.

    A repetition takes each contestant once. Orders go forth and back (A B C, C B A), and then forth and back
    from the next contestant on (B C A, A C B, ...). So the mean moment of all contestants is the same in each
    two repetitions, and each follows the others as often as it precedes them, which is what caches call for.

    Args:
        count: number of contestants.
        repetitions: samples of each; an even number lets a linear drift cancel.
    """
    for repetition in range(repetitions):
        order = [(repetition // 2 + place) % count for place in range(count)]
        yield from ((repetition, contestant) for contestant in (order[::-1] if repetition % 2 else order))


def interleaved(a: Callable[[], None], b: Callable[[], None], repetitions: int) -> Ratios:
    """Time two functions in turn, `a` twice as often, so that equal functions are seen too.

    Both functions must return only when their work is done. Call inside `one_thread`.

    Args:
        a, b: the contestants, compiled; they are warmed up here.
        repetitions: samples of each, at least 1; with 6 or more the intervals have 95 % coverage.
    """
    calls = [calls_for(run, SAMPLE_SECONDS) for run in (a, b)]
    contestants = ((a, calls[0]), (b, calls[1]), (a, calls[0]))
    samples = np.empty((repetitions, len(contestants)))
    for repetition, place in turns(len(contestants), repetitions):
        run, number = contestants[place]
        run()  # brings its arrays into the caches: a function that follows another would start without them
        samples[repetition, place] = seconds_of(run, number)
    first, other, again = samples.T
    return Ratios(
        ratio=median_interval(np.sqrt(first * again) / other),
        same=median_interval(again / first),
        seconds=(float(np.median(first)), float(np.median(other))),
    )
