"""Interleaved timing: functions that are compared are timed in turn, so that drift affects all.

Step times of studies, ratios to other libraries, networks on a GPU and the performance gate take their
samples in the order of `turns`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from curvebench.results.intervals import MedianInterval, median_interval
from curvebench.timing.clocks import calls_for, seconds_of

# A sample consists of as many calls as take this long, so that clock resolution and interrupts matter little.
SAMPLE_SECONDS = 0.002


@dataclass(frozen=True)
class Ratios:
    """Ratio of the seconds of `a` to the seconds of `b`.

    ratio: median over repetitions, with a distribution-free confidence interval.
    same: the same for `a` divided by `a` timed a second time (A/A), which shows the noise of the
        measurement.
    seconds: median seconds of a call of `a` and of `b`.
    """

    ratio: MedianInterval
    same: MedianInterval
    seconds: tuple[float, float]


def turns(count: int, repetitions: int) -> Iterator[tuple[int, int]]:
    """Yield (repetition, contestant) in the order in which samples are taken.

    Each repetition contains every contestant once. The order is A B C, then reversed (C B A), then rotated by
    one and reversed again (B C A, A C B), and so on. Thus the mean time of measurement of all contestants is
    equal in each pair of repetitions, and each contestant follows and precedes the others equally often,
    because what runs before it determines the contents of the caches.

    Args:
        count: number of contestants.
        repetitions: samples of each contestant; with an even number a linear drift cancels out.
    """
    for repetition in range(repetitions):
        order = [(repetition // 2 + number) % count for number in range(count)]
        yield from ((repetition, contestant) for contestant in (order[::-1] if repetition % 2 else order))


def interleaved(a: Callable[[], None], b: Callable[[], None], repetitions: int) -> Ratios:
    """Time two functions in turn, and the first one twice per repetition, to see how equal functions compare.

    Both functions must return only when their work is done. Call this inside `one_thread`.

    Args:
        a: first function, compiled; it is warmed up here.
        b: second function, likewise.
        repetitions: samples of each, at least 1; with 6 or more the intervals have 95 % coverage.
    """
    calls = [calls_for(run, SAMPLE_SECONDS) for run in (a, b)]
    contestants = ((a, calls[0]), (b, calls[1]), (a, calls[0]))
    samples = np.empty((repetitions, len(contestants)))
    for repetition, contestant in turns(len(contestants), repetitions):
        run, calls_per_sample = contestants[contestant]
        run()  # loads its arrays into the caches, from which the function before it has removed them
        samples[repetition, contestant] = seconds_of(run, calls_per_sample)
    first, second, first_again = samples.T
    return Ratios(
        ratio=median_interval(np.sqrt(first * first_again) / second),
        same=median_interval(first_again / first),
        seconds=(float(np.median(first)), float(np.median(second))),
    )
