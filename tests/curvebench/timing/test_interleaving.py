"""The interleaved clock: seconds of a call, the order of turns, and ratios of functions timed in turn."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from curvebench.timing import clocks
from curvebench.timing.clocks import calls_for, seconds_of
from curvebench.timing.interleaving import interleaved, turns


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
    monkeypatch.setattr(clocks, "time", SimpleNamespace(perf_counter=fake.perf_counter))
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


@pytest.mark.parametrize("count", [1, 2, 3, 4, 11])
@pytest.mark.parametrize("repetitions", [2, 4, 10])
def test_the_mean_moment_of_all_contestants_is_the_same(count: int, repetitions: int):
    """And a contestant that follows another also precedes it."""
    taken = list(turns(count, repetitions))
    orders = [[place for number, place in taken if number == repetition] for repetition in range(repetitions)]
    moments = [sum(order.index(one) for order in orders) / repetitions for one in range(count)]
    assert moments == [(count - 1) / 2] * count
    pairs = {(order[place - 1], order[place]) for order in orders for place in range(1, count)}
    assert all((after, before) in pairs for before, after in pairs)
