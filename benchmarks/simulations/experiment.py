"""What a simulation is: an experiment on a statistic, its results, and the table that shows them."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np

from reports.statistics.shares import Share, share_interval

MONTE_CARLO_LEVEL = 0.999  # of the intervals that judge: hundreds of shares are judged together
COVERAGE = (0.93, 0.97)  # asked of an interval of nominally 95 %
LEVEL = 0.05  # of the tests, the most false positives that are asked for


@dataclass(frozen=True)
class Result:
    """A share of simulated studies.

    Args:
        quantity: what it is the share of: "coverage", "false positives", "power" or other.
        setting: of which studies; what stands behind the last "; " becomes a column of the table.
        value: the share, from 0 to 1.
        trials: the number of studies.
        low, high: what is asked of it; None where nothing is.
    """

    quantity: str
    setting: str
    value: float
    trials: int
    low: float | None = None
    high: float | None = None

    @property
    def error(self) -> Share:
        """The Monte Carlo interval of the share."""
        return share_interval(round(self.value * self.trials), self.trials, MONTE_CARLO_LEVEL)

    @property
    def outside(self) -> bool:
        """Whether it lies outside what is asked."""
        below = self.low is not None and self.value < self.low
        return below or (self.high is not None and self.value > self.high)

    @property
    def misses(self) -> bool:
        """Whether it lies outside what is asked by more than chance explains."""
        below = self.low is not None and self.error.high < self.low
        return below or (self.high is not None and self.error.low > self.high)

    @property
    def conservative(self) -> bool:
        """Whether it is coverage, and not too little of it."""
        return self.quantity == "coverage" and (self.low is None or self.value >= self.low)


@dataclass(frozen=True)
class Experiment:
    """A simulation that checks one statistic.

    Args:
        name: a heading, unique.
        statistic: the dotted name of what is checked.
        about: one or two sentences: what is drawn, what is counted, what is asked.
        run: from a source of chance and a number of trials to results.
    """

    name: str
    statistic: str
    about: str
    run: Callable[[np.random.Generator, int], Iterable[Result]]

    def results(self, trials: int) -> list[Result]:
        """The results of so many trials; the same each time."""
        return list(self.run(np.random.default_rng(crc32(self.name.encode())), trials))


def experiments() -> list[Experiment]:
    """Those of every module of this package, in the order of the modules' names."""
    package = importlib.import_module("benchmarks.simulations")
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    modules = [importlib.import_module(f"{package.__name__}.{name}") for name in names if name[0] != "_"]
    return [experiment for module in modules for experiment in getattr(module, "EXPERIMENTS", ())]


def table(experiment: Experiment, results: Sequence[Result]) -> str:
    """A heading and a Markdown table: what is outside is bold, and italic too if it only covers too much."""
    columns = list(dict.fromkeys(_split(result)[1] for result in results))
    rows: dict[tuple[str, str, str], dict[str, Result]] = {}
    for result in results:
        setting, column = _split(result)
        rows.setdefault((result.quantity, setting, _asked(result)), {})[column] = result
    lines = [
        f"### {experiment.name}",
        "",
        f"`{experiment.statistic}`. {experiment.about}",
        "",
        f"| | | asked | {' | '.join(columns)} | trials | error |",
        f"| --- | --- | --- |{' ---: |' * len(columns)} ---: | ---: |",
    ]
    for (quantity, setting, asked), cells in rows.items():
        shown = [_shown(cells[column]) if column in cells else "" for column in columns]
        fewest = min(result.trials for result in cells.values())
        error = max((result.error.high - result.error.low) / 2 for result in cells.values())
        lines.append(f"| {quantity} | {setting} | {asked} | {' | '.join(shown)} | {fewest:,} | {error:.3f} |")
    return "\n".join(lines) + "\n"


def _split(result: Result) -> tuple[str, str]:
    setting, _, column = result.setting.rpartition("; ")
    return (setting, column) if setting else (column, "share")


def _asked(result: Result) -> str:
    if result.low is None and result.high is None:
        return ""
    if result.low is None or result.high is None or result.high == 1:
        return f"≤ {result.high:g}" if result.low is None else f"≥ {result.low:g}"
    return f"{result.low:g} to {result.high:g}"


def _shown(result: Result) -> str:
    shown = f"{result.value:.3f}"
    if not result.outside:
        return shown
    return f"**_{shown}_**" if result.conservative else f"**{shown}**"
