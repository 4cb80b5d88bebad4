"""How tuning judges settings: the one that is taken, those that tie, and those that chance would take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import nan

import numpy as np
import polars as pl

from documents.document import Direction
from documents.tuning import TieCriterion, Tuning
from results.outcomes import failed, missing
from results.reading import named

EQUAL_TO_ROUNDING = 1e-12  # relative; results of tuning that differ by less are a tie
RESAMPLES = 1000  # of the tuning seeds
DRAWN_AT_ONCE = 100_000  # seeds, for the sake of memory
COVERED = 0.99  # of them, those whose choices are run
Setting = tuple[float, ...]  # the values of the tuned hyperparameters, the learning rate first


def worst(direction: Direction) -> float:
    """The value of a run that diverged: infinitely bad, whichever way the metric counts."""
    return float("inf") if direction == "minimize" else float("-inf")


@dataclass(frozen=True)
class Judge:
    """By what settings are judged.

    Args:
        tuning: the study's protocol: its criterion, with its floor, and the criterion for ties.
        direction_of: whether less of a metric is better.
        stop: thresholds at which runs stop, by metric.
    """

    tuning: Tuning
    direction_of: Callable[[str], Direction]
    stop: Mapping[str, float]

    def costs(self, runs: pl.DataFrame) -> pl.DataFrame:
        """The runs that are not missing with columns first and second, less of each is better.

        A failed run has the worst. `second` is the cost by the criterion for ties, 0 where there is none.
        """
        choose, ties = self.tuning.choose, self.tuning.ties
        first = _or_worst(self._value(choose.metric, choose.which))
        second = pl.lit(0.0) if ties is None else _or_worst(self._tie(ties))
        return runs.filter(~missing()).with_columns(first=first, second=second)

    def _value(self, metric: str, which: str) -> pl.Expr:
        value = named(metric, f"{which}_metrics")
        return value if self.direction_of(metric) == "minimize" else -value

    def _tie(self, ties: TieCriterion) -> pl.Expr:
        if ties.which == "steps_to_target":
            return named(ties.metric, "targets", key="metric", value="steps").cast(pl.Float64)
        if ties.which == "steps_to_stop":
            met = self._value(ties.metric, "final") <= self.cost(ties.metric, self.stop[ties.metric])
            return pl.when(met).then(pl.col("steps").cast(pl.Float64))
        return self._value(ties.metric, ties.which)

    def cost(self, metric: str, value: float) -> float:
        """A value of a metric as a cost: less is better."""
        return value if self.direction_of(metric) == "minimize" else -value

    @property
    def least(self) -> float:
        """The cost by the first criterion below which all settings tie."""
        floor, choose = self.tuning.floor, self.tuning.choose
        return -np.inf if floor is None else self.cost(choose.metric, floor)


def _or_worst(cost: pl.Expr) -> pl.Expr:
    """A cost, infinite of failed runs and of what is no number."""
    return pl.when(~failed()).then(cost.fill_nan(None)).fill_null(np.inf)


@dataclass(frozen=True)
class Tried:
    """The settings that a method was tuned by.

    Args:
        settings: the least first.
        costs: by both criteria, shape (2, settings, seeds).
        least: see `Judge.least`.
    """

    settings: tuple[Setting, ...]
    costs: np.ndarray
    least: float

    @cached_property
    def tied(self) -> tuple[Setting, ...]:
        """The best setting by the medians over seeds and those that tie with it; the first one is taken."""
        best = self._best(np.arange(self.costs.shape[-1])[None])[:, 0]
        return tuple(setting for setting, among in zip(self.settings, best, strict=True) if among)

    @property
    def chosen(self) -> Setting:
        """The setting that is taken: of those that tie the least one, by its first value first."""
        return self.tied[0]

    @property
    def seeds(self) -> int:
        """How many seeds they were tried on."""
        return int(self.costs.shape[-1])

    @cached_property
    def drawn(self) -> tuple[Setting, ...]:
        """What would be taken if the seeds were drawn again."""
        return self.choices(self.seeds)

    def choices(self, size: int) -> tuple[Setting, ...]:
        """What would be taken by `size` seeds like those that are there, so many times as `RESAMPLES` says.

        Methods that were tuned on as many seeds have the same draws.
        """
        if size not in self._choices:
            draws = np.random.default_rng(0).integers(self.seeds, size=(RESAMPLES, size))
            parts = np.array_split(draws, -(-draws.size // DRAWN_AT_ONCE))
            best = (place for part in parts for place in self._best(part).argmax(axis=0))
            self._choices[size] = tuple(self.settings[place] for place in best)
        return self._choices[size]

    @cached_property
    def _choices(self) -> dict[int, tuple[Setting, ...]]:
        """What `choices` has found, by the number of seeds."""
        return {}

    @property
    def likely(self) -> tuple[Setting, ...]:
        """The setting that is taken, those that tie, and those of nearly all draws, the likeliest first."""
        counts: dict[Setting, int] = dict.fromkeys(self.settings, 0)
        for setting in self.drawn:
            counts[setting] += 1
        ordered = sorted(self.settings, key=lambda setting: -counts[setting])
        before = np.cumsum([0, *(counts[setting] for setting in ordered)])[:-1]
        enough = COVERED * RESAMPLES
        drawn = (setting for setting, so_far in zip(ordered, before, strict=True) if so_far < enough)
        return tuple(dict.fromkeys((*self.tied, *drawn)))

    def _best(self, draws: np.ndarray) -> np.ndarray:
        """Which settings are the best in each draw of seeds (draws, seeds), shape (settings, draws)."""
        first, second = np.median(self.costs[:, :, draws], axis=-1)
        best = _ties(np.maximum(first, self.least))
        return best & _ties(np.where(best, second, np.inf))


def _ties(costs: np.ndarray) -> np.ndarray:
    """Which of (settings, draws) are the least of their draw, but for rounding."""
    least = costs.min(axis=0)
    slack = np.where(np.isfinite(least), EQUAL_TO_ROUNDING * np.abs(least), 0.0)
    return costs <= least + slack


def tried(runs: pl.DataFrame, names: Sequence[str], judge: Judge) -> Tried:
    """The settings of tuning runs with their costs; a missing run has the median of its setting's others.

    Args:
        runs: the tuning runs of one method on one workload and backend, at least one that is not missing.
        names: the tuned hyperparameters, the learning rate first.
    """
    known = judge.costs(runs)
    seeds = {seed: place for place, seed in enumerate(sorted(known["seed"].unique()))}
    found: dict[Setting, np.ndarray] = {}
    results = known.select("seed", "first", "second").iter_rows()
    for setting, (seed, *pair) in zip(settings_of(known, names), results, strict=True):
        own = found.setdefault(setting, np.full((2, len(seeds)), np.nan))
        own[:, seeds[seed]] = pair
    ordered = sorted(found)
    costs = np.stack([found[setting] for setting in ordered], axis=1)
    medians = np.nanmedian(costs, axis=-1, keepdims=True)
    return Tried(tuple(ordered), np.where(np.isnan(costs), medians, costs), judge.least)


def settings_of(runs: pl.DataFrame, names: Sequence[str]) -> Iterator[Setting]:
    """The values of the tuned hyperparameters of each run; NaN of one that it lacks."""
    for rate, others in zip(runs["learning_rate"], runs["hyperparameters"].to_list(), strict=True):
        values = {item["name"]: item["value"] for item in others or []}
        values["learning_rate"] = rate
        yield tuple(values.get(name, nan) for name in names)
