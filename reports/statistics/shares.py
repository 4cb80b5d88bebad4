"""Shares of runs (diverged, reached the target) with exact intervals."""

from __future__ import annotations

from dataclasses import dataclass

from reports.statistics.medians import LEVEL


@dataclass(frozen=True)
class Share:
    """`successes` of `count`, and an interval of the chance behind them."""

    successes: int
    count: int
    low: float
    high: float
    level: float

    @property
    def value(self) -> float:
        """The share itself, from 0 to 1."""
        return self.successes / self.count


def share_interval(successes: int, count: int, level: float = LEVEL) -> Share:
    """Clopper and Pearson's interval (Biometrika 26, 1934): at least `level` for independent trials.

    Raises:
        ValueError: unless 0 <= successes <= count and count >= 1.
    """
    if not 0 <= successes <= count or count < 1:
        raise ValueError(f"a share of {successes} in {count} is none")
    low, high = clopper_pearson(successes, count, level)
    return Share(successes, count, low, high, level)


def clopper_pearson(successes: float, count: float, level: float) -> tuple[float, float]:
    """The ends of the interval of `share_interval`; neither number need be whole: ties count half."""
    from scipy.special import betaincinv

    tail = (1 - level) / 2
    low = 0.0 if successes <= 0 else float(betaincinv(successes, count - successes + 1, tail))
    high = 1.0 if successes >= count else float(betaincinv(successes + 1, count - successes, 1 - tail))
    return low, high
