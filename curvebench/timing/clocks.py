"""The stopwatch of all benchmarks, and the processors, threads and garbage collector of its process."""

from __future__ import annotations

import gc
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

_TASKS = Path("/proc/self/task")  # one folder a thread, on Linux
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NPROC")


def seconds_of(run: Callable[[], None], calls: int) -> float:
    """Return the mean seconds of a call over `calls` calls in a row, with the garbage collector off.

    `run` must return only when its work is done, on a device too.
    """
    with uncollected():
        start = time.perf_counter()
        for _ in range(calls):
            run()
        return (time.perf_counter() - start) / calls


def calls_for(run: Callable[[], None], seconds: float) -> int:
    """Return how many calls in a row take about `seconds`; calling for that long also warms up."""
    fastest = math.inf
    end = time.perf_counter() + seconds
    while fastest == math.inf or time.perf_counter() < end:
        fastest = min(fastest, seconds_of(run, 1))
    return max(1, math.ceil(seconds / fastest))


def one_thread_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a child process whose numerical libraries use one thread each."""
    return {**environment, **dict.fromkeys(THREAD_VARIABLES, "1")}


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one pinned processor and one thread of each numerical library until the end of the block.

    Two threads on one processor would wait for each other. Libraries that are imported inside the block
    start one thread. JAX reads the number of threads at its import, so enter the block before it.
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


def limit_threads(threads: int) -> None:
    """Hold this process to so many threads of a library.

    Call it before libraries are imported that read the number then, such as JAX.
    """
    from threadpoolctl import threadpool_limits

    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(threads)))
    threadpool_limits(threads)  # what is loaded by now, such as NumPy's linear algebra


@contextmanager
def pinned(count: int) -> Iterator[tuple[int, ...]]:
    """Hold this process to some of its processors until the end of the block, where the system can.

    All threads are held, those of libraries that were loaded before too.

    Args:
        count: how many processors, at least 1; the last ones that the process may use are taken.

    Yields:
        The numbers of the processors; none where the system cannot pin (macOS, Windows).
    """
    if not hasattr(os, "sched_setaffinity"):
        yield ()
        return
    allowed = os.sched_getaffinity(0)
    chosen = sorted(allowed)[-count:]
    before = {thread: os.sched_getaffinity(thread) for thread in _threads()}
    _hold({thread: set(chosen) for thread in before})
    try:
        yield tuple(chosen)
    finally:
        _hold({thread: before.get(thread, allowed) for thread in _threads()})


def _threads() -> list[int]:
    """The numbers of this process' threads; 0 is the calling one where the others cannot be listed."""
    return [int(task.name) for task in _TASKS.iterdir()] if _TASKS.is_dir() else [0]


def _hold(processors: dict[int, set[int]]) -> None:
    for thread, allowed in processors.items():
        with suppress(ProcessLookupError):  # it ended meanwhile
            os.sched_setaffinity(thread, allowed)


@contextmanager
def uncollected() -> Iterator[None]:
    """Keep the garbage collector off until the end of the block."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
