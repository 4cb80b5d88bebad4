"""Clocks for kernels: one pinned thread, and the seconds of a call."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from curvebench.timing.clocks import pinned, uncollected

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NPROC")


def one_thread_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of a process whose numerical libraries use one thread."""
    return {**environment, **dict.fromkeys(THREAD_VARIABLES, "1")}


@contextmanager
def one_thread() -> Iterator[None]:
    """One pinned processor and one thread of each numerical library, until the end of the block.

    Two threads on one processor would wait for each other. Libraries that are imported inside the block
    start one thread; jax reads the number at its import, so enter before it.
    """
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))
    torch = sys.modules.get("torch")
    threads = torch.get_num_threads() if torch else None
    if torch:
        torch.set_num_threads(1)
    try:
        with pinned(1), threadpool_limits(1):
            yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        if torch:
            torch.set_num_threads(threads)


def seconds_of(run: Callable[[], None], number: int) -> float:
    """Seconds of a call, the mean of `number`, with the garbage collector off."""
    with uncollected():
        start = time.perf_counter()
        for _ in range(number):
            run()
        return (time.perf_counter() - start) / number


def calls_for(run: Callable[[], None], seconds: float) -> int:
    """How many calls take about so long; it warms up by calling for as long too."""
    once = math.inf
    end = time.perf_counter() + seconds
    while once == math.inf or time.perf_counter() < end:
        once = min(once, seconds_of(run, 1))
    return max(1, math.ceil(seconds / once))
