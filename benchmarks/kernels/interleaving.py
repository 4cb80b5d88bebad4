"""Two functions timed in turn: their ratio, and what a ratio of equals looks like."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from curvebench.results.intervals import MedianInterval, median_interval

from .case import ReadyCase
from .clock import calls_for, seconds_of

SAMPLE_SECONDS = 0.002  # calls are bundled until a sample takes so long: clock and interrupts are small


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


@dataclass(frozen=True)
class Ratios:
    """How long `a` takes over how long `b` takes.

    Args:
        ratio: median over repetitions with its distribution-free interval.
        same: the same for `a` over `a` timed a second time (A/A): what no difference looks like here.
        seconds: median seconds of a call of `a` and of `b`.
    """

    ratio: MedianInterval
    same: MedianInterval
    seconds: tuple[float, float]


def interleaved(a: Callable[[], None], b: Callable[[], None], repetitions: int) -> Ratios:
    """Time two functions in turn: A B A, then the other way round, and so on.

    Each repetition takes a sample of `a`, of `b` and of `a` again, in an order that goes round, so that a
    drift of the machine falls on all alike. Both functions must return only when their work is done. Call
    inside `one_thread`.

    Args:
        a, b: the contestants, compiled; they are warmed up here.
        repetitions: samples of each, at least 1; with 6 or more the intervals have 95 % coverage.
    """
    contestants = (a, b, a)
    numbers = [calls_for(run, SAMPLE_SECONDS) for run in (a, b)]
    numbers.append(numbers[0])
    orders = itertools.cycle(itertools.permutations(range(3)))
    samples = np.empty((repetitions, 3))
    for repetition in range(repetitions):
        for place in next(orders):
            contestants[place]()  # its arrays into the caches: else who follows another starts behind
            samples[repetition, place] = seconds_of(contestants[place], numbers[place])
    first, other, again = samples.T
    return Ratios(
        ratio=median_interval(np.sqrt(first * again) / other),
        same=median_interval(again / first),
        seconds=(float(np.median(first)), float(np.median(other))),
    )


def repeated(run: Callable[[], None], calls: int) -> Callable[[], None]:
    """So many calls as one."""
    if calls == 1:
        return run

    def several() -> None:
        for _ in range(calls):
            run()

    return several
