"""The clocks: one thread that is given back, and ratios of functions timed in turn."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from curvebench.benchmarks.kernels import clock
from curvebench.benchmarks.kernels.clock import THREAD_VARIABLES, calls_for, one_thread, seconds_of
from curvebench.benchmarks.kernels.interleaving import interleaved


class FakeTime:
    """A clock that only its functions move, and a machine that becomes slower and slower."""

    def __init__(self) -> None:
        self.now, self.drift = 0.0, 0.0

    def perf_counter(self) -> float:
        return self.now

    def taking(self, seconds: float) -> Callable[[], None]:
        def run() -> None:
            self.now += seconds * (1 + self.drift * self.now)

        return run


@pytest.fixture
def fake_time(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    fake = FakeTime()
    monkeypatch.setattr(clock, "time", SimpleNamespace(perf_counter=fake.perf_counter))
    return fake


def test_seconds_are_those_of_one_call(fake_time: FakeTime):
    assert seconds_of(fake_time.taking(0.25), 4) == 0.25
    assert calls_for(fake_time.taking(0.25), 1.0) == 4


def test_a_ratio_is_that_of_the_seconds(fake_time: FakeTime):
    found = interleaved(fake_time.taking(0.003), fake_time.taking(0.002), 7)
    assert found.ratio.median == pytest.approx(1.5)
    assert (found.ratio.low, found.ratio.high) == pytest.approx((1.5, 1.5))
    assert found.same.median == pytest.approx(1.0)
    assert found.seconds == pytest.approx((0.003, 0.002))
    assert found.ratio.count == found.same.count == 7


def test_a_drift_falls_on_both_alike(fake_time: FakeTime):
    fake_time.drift = 0.2
    found = interleaved(fake_time.taking(0.003), fake_time.taking(0.003), 12)
    assert found.ratio.low <= 1 <= found.ratio.high
    assert found.same.low <= 1 <= found.same.high
    assert found.ratio.median == pytest.approx(1.0, abs=1e-3)


def test_who_follows_another_does_not_start_behind(fake_time: FakeTime) -> None:
    ran: list[str] = []

    def cached(name: str) -> Callable[[], None]:
        warm, cold = fake_time.taking(0.003), fake_time.taking(0.013)

        def run() -> None:
            (warm if ran[-1:] == [name] else cold)()
            ran.append(name)

        return run

    found = interleaved(cached("a"), cached("b"), 12)
    assert (found.ratio.low, found.ratio.high) == pytest.approx((1, 1))
    assert found.seconds == pytest.approx((0.003, 0.003))


def test_one_thread_is_given_back():
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
