"""Interleaved timing: functions are timed in turn, so that drift of the machine affects all equally.

All measurements of this project take their samples in the order of `turns`: step times of studies, ratios to
other libraries, networks on a GPU and the performance gate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from curvebench.results.intervals import MedianInterval, median_interval
from curvebench.timing.clocks import calls_for, seconds_of

# Duration of a sample. A sample measures the mean time of several calls in a row.
# The resolution of the clock and interrupts then matter little.
SAMPLE_SECONDS = 0.002


@dataclass(frozen=True)
class Ratios:
    """Comparison of the times of two functions `a` and `b`.

    Args:
        ratio: seconds of `a` divided by seconds of `b`: median over repetitions, with a distribution-free
            confidence interval.
        same: seconds of the second measurement of `a` in a repetition divided by seconds of the first: median
            with a confidence interval. The distance of this ratio from 1 shows the noise of the measurement.
        seconds: median seconds of a call of `a`, and of a call of `b`.
    """

    ratio: MedianInterval
    same: MedianInterval
    seconds: tuple[float, float]


def turns(count: int, repetitions: int) -> Iterator[tuple[int, int]]:
    """Yield pairs (repetition, contestant) in the order in which samples are taken.

    Contestants are the functions that are compared. Each repetition contains every contestant once. The order
    of three contestants is A B C, then reversed (C B A), then rotated by one and reversed again (B C A, A C
    B), and so on. Thus all contestants have the same mean position in each pair of repetitions, so that a
    linear drift cancels out. Each contestant also follows each of its two neighbours equally often. This
    matters because the caches contain the data of the function that ran before.

    Args:
        count: number of contestants.
        repetitions: number of samples of each contestant. Linear drift cancels out only if this number is
            even.
    """
    for repetition in range(repetitions):
        order = [(repetition // 2 + number) % count for number in range(count)]
        yield from ((repetition, contestant) for contestant in (order[::-1] if repetition % 2 else order))


def interleaved(a: Callable[[], None], b: Callable[[], None], repetitions: int) -> Ratios:
    """Time two functions in turn. `a` is timed twice per repetition, to measure the noise.

    Both functions must return only when their computation has finished. Call `interleaved` in the context
    `one_thread`.

    Args:
        a: first function. `a` must be compiled already; it is warmed up here.
        b: second function, which must also be compiled.
        repetitions: number of repetitions, at least 1. With 6 or more repetitions, the confidence intervals
            have a coverage of 95 %.
    """
    calls = [calls_for(run, SAMPLE_SECONDS) for run in (a, b)]
    contestants = ((a, calls[0]), (b, calls[1]), (a, calls[0]))
    samples = np.empty((repetitions, len(contestants)))
    for repetition, contestant in turns(len(contestants), repetitions):
        run, calls_per_sample = contestants[contestant]
        run()  # an untimed call, to load the function's arrays into the caches again
        samples[repetition, contestant] = seconds_of(run, calls_per_sample)
    first, second, first_again = samples.T
    return Ratios(
        ratio=median_interval(np.sqrt(first * first_again) / second),
        same=median_interval(first_again / first),
        seconds=(float(np.median(first)), float(np.median(second))),
    )
