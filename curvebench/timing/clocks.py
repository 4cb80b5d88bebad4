"""What a clock asks of its process: processors and threads that stay the same, and no garbage collection."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_TASKS = Path("/proc/self/task")  # one folder a thread, on Linux


def limit_threads(threads: int) -> None:
    """Hold this process to so many threads of a library; JAX reads the number when it is imported."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    os.environ["OMP_NUM_THREADS"] = os.environ["NPROC"] = str(threads)
    threadpool_limits(threads)  # NumPy's linear algebra, loaded by now


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
