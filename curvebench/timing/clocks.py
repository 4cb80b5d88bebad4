"""Timing of functions, with control of the processors, threads and garbage collection of the process."""

from __future__ import annotations

import gc
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

_TASKS = Path("/proc/self/task")  # on Linux, a folder with an entry for each thread of this process
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NPROC")


def seconds_of(run: Callable[[], None], calls: int) -> float:
    """Return the mean seconds of a call over `calls` calls in a row, with the garbage collector off.

    `run` must return only when its computation has finished, also on a GPU.
    """
    with uncollected():
        start = time.perf_counter()
        for _ in range(calls):
            run()
        return (time.perf_counter() - start) / calls


def calls_for(run: Callable[[], None], seconds: float) -> int:
    """Return how many calls of `run` in a row take about `seconds`.

    This function calls `run` repeatedly for about `seconds`, and thereby also warms up `run`.
    """
    fastest = math.inf
    end = time.perf_counter() + seconds
    while fastest == math.inf or time.perf_counter() < end:
        fastest = min(fastest, seconds_of(run, 1))
    return max(1, math.ceil(seconds / fastest))


def process_seconds() -> float:
    """Return the seconds since this process started."""
    stat = Path("/proc/self/stat")
    if hasattr(time, "CLOCK_BOOTTIME") and stat.exists():
        # Subtract times since the start of the machine.
        # Dates of starts are rounded to seconds (proc(5)).
        ticks = int(stat.read_text().rpartition(")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    import psutil

    return time.time() - psutil.Process().create_time()


def one_thread_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return environment variables for a child process whose numerical libraries use one thread each."""
    return {**environment, **dict.fromkeys(THREAD_VARIABLES, "1")}


@contextmanager
def one_thread() -> Iterator[None]:
    """Return a context in which this process uses one processor, and each numerical library one thread.

    Two threads of a library on one processor would wait for each other. JAX reads the number of threads at
    its import, so enter the context before JAX is imported.
    """
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    values = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))
    torch = sys.modules.get("torch")
    threads = torch.get_num_threads() if torch else None
    if torch:
        torch.set_num_threads(1)
    try:
        with pinned(1), threadpool_limits(1):
            yield
    finally:
        for name, value in values.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        if torch:
            torch.set_num_threads(threads)


def limit_threads(threads: int) -> None:
    """Limit each numerical library of this process to a number of threads.

    Call this function before the import of libraries that read the limit only at their import, such as JAX.
    """
    from threadpoolctl import threadpool_limits

    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(threads)))
    # This call limits libraries that are already loaded, such as NumPy's linear algebra.
    threadpool_limits(threads)


@contextmanager
def pinned(count: int) -> Iterator[tuple[int, ...]]:
    """Return a context that restricts this process to some of its processors.

    All threads are restricted, including the threads that libraries have started before. If the system cannot
    restrict processes (macOS, Windows), the context does nothing.

    Args:
        count: number of processors, at least 1. The processors with the highest numbers are used.

    Yields:
        The numbers of the processors that are used; empty if the system cannot restrict processes.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield ()
        return
    allowed = os.sched_getaffinity(0)
    processors = sorted(allowed)[-count:]
    previous = {thread: os.sched_getaffinity(thread) for thread in _threads()}
    _set_affinity({thread: set(processors) for thread in previous})
    try:
        yield tuple(processors)
    finally:
        _set_affinity({thread: previous.get(thread, allowed) for thread in _threads()})


def _threads() -> list[int]:
    """Return the ids of this process's threads; [0], the calling thread, if threads cannot be listed."""
    return [int(task.name) for task in _TASKS.iterdir()] if _TASKS.is_dir() else [0]


def _set_affinity(processors: dict[int, set[int]]) -> None:
    """Restrict each thread to a set of processors."""
    for thread, allowed in processors.items():
        with suppress(ProcessLookupError):  # the thread has ended since the list was read
            os.sched_setaffinity(thread, allowed)


@contextmanager
def uncollected() -> Iterator[None]:
    """Return a context in which the garbage collector is off."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
