"""Shares: the exact interval's ends, and its coverage summed exactly."""

from __future__ import annotations

import pytest
from scipy.stats import binom

from reports.statistics.shares import share_interval


def test_none_and_all_keep_their_end():
    assert share_interval(0, 10).low == 0.0
    assert share_interval(10, 10).high == 1.0
    assert share_interval(0, 10).high == pytest.approx(1 - 0.025 ** (1 / 10))


@pytest.mark.parametrize("count", [3, 10])
@pytest.mark.parametrize("chance", [0.02, 0.3, 0.5, 0.9])
def test_the_interval_covers_every_chance_at_least_as_often_as_it_says(count: int, chance: float):
    shares = [share_interval(successes, count) for successes in range(count + 1)]
    covered = sum(
        binom.pmf(share.successes, count, chance) for share in shares if share.low <= chance <= share.high
    )
    assert covered >= 0.95


def test_what_is_no_share_is_refused():
    for successes, count in ((-1, 3), (4, 3), (0, 0)):
        with pytest.raises(ValueError, match="share"):
            share_interval(successes, count)
