"""Conditions of measurements: the process keeps to some processors, and collects no garbage; both end with
the measurement.
"""

from __future__ import annotations

import gc
import os
import threading

import pytest

from curvebench.timing.clocks import THREAD_VARIABLES, one_thread, pinned, uncollected

CAN_PIN = hasattr(os, "sched_setaffinity")


@pytest.mark.skipif(not CAN_PIN, reason="the system cannot pin")
@pytest.mark.parametrize("count", [1, 2])
def test_all_threads_are_held_to_the_last_processors_and_given_back(count: int) -> None:
    allowed = os.sched_getaffinity(0)
    asked, answered = threading.Event(), threading.Event()
    seen: list[set[int]] = []

    def look() -> None:
        for _ in range(2):
            asked.wait()
            asked.clear()
            seen.append(os.sched_getaffinity(0))
            answered.set()

    def ask() -> None:
        asked.set()
        answered.wait()
        answered.clear()

    older = threading.Thread(target=look)  # a thread such as a loaded library has
    older.start()
    with pinned(count) as processors:
        assert list(processors) == sorted(allowed)[-count:]
        assert os.sched_getaffinity(0) == set(processors)
        ask()
        younger = threading.Thread(target=lambda: seen.append(os.sched_getaffinity(0)))
        younger.start()
        younger.join()
    ask()
    older.join()
    assert seen == [set(processors), set(processors), allowed]
    assert os.sched_getaffinity(0) == allowed


def test_a_system_that_cannot_pin_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    with pinned(1) as processors:
        assert processors == ()


def test_the_collector_is_off_inside_and_as_before_afterwards() -> None:
    assert gc.isenabled()
    with uncollected():
        assert not gc.isenabled()
        with uncollected():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_one_thread_is_given_back() -> None:
    import torch

    def settings():
        variables = {name: os.environ.get(name) for name in THREAD_VARIABLES}
        return os.sched_getaffinity(0), torch.get_num_threads(), variables

    before = settings()
    with one_thread():
        assert len(os.sched_getaffinity(0)) == 1
        assert torch.get_num_threads() == 1
        assert {os.environ[name] for name in THREAD_VARIABLES} == {"1"}
    assert settings() == before
