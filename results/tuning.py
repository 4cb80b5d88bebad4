"""How tuning judges settings: the one that is taken, those that tie, and those that chance would take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from math import comb, lgamma, log, nan, prod

import numpy as np
import polars as pl

from curvebench.results.outcomes import failed, finished, missing
from curvebench.results.reading import named
from curvebench.spec.document import Direction
from curvebench.spec.tuning import TieCriterion, Tuning

EQUAL_TO_ROUNDING = 1e-12  # relative; results of tuning that differ by less are a tie
ALL_MULTISETS = 100_000  # of tuning seeds, up to which they are all taken: 92,378 of 10 out of 10
RESAMPLES = 10_000  # of the tuning seeds, at random where there are more
JUDGED_AT_ONCE = 10_000  # resamples, for the sake of memory
COVERED = 0.99  # of the resamples, those whose choices are run
Group = tuple[str, str]  # workload, basis that chooses
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
        choose, ties = self.tuning.choose, self.tuning.tie_break
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
    def floor_cost(self) -> float:
        """The cost by the first criterion below which all settings tie."""
        floor, choose = self.tuning.floor, self.tuning.choose
        return -np.inf if floor is None else self.cost(choose.metric, floor)


def _or_worst(cost: pl.Expr) -> pl.Expr:
    """A cost, infinite of failed runs and of what is no number."""
    return pl.when(~failed()).then(cost.fill_nan(None)).fill_null(np.inf)


@dataclass(frozen=True)
class TuningOutcome:
    """The settings that a method was tuned by.

    Args:
        settings: the least first.
        costs: by both criteria, shape (2, settings, seeds).
        least: see `Judge.least`.
    """

    settings: tuple[Setting, ...]
    costs: np.ndarray
    floor_cost: float

    @cached_property
    def tied(self) -> tuple[Setting, ...]:
        """The best setting by the medians over seeds and those that tie with it; the first one is taken."""
        best = self._best(np.ones((self.seeds, 1), np.int64))[:, 0]
        return tuple(setting for setting, among in zip(self.settings, best, strict=True) if among)

    @property
    def chosen(self) -> Setting:
        """The setting that is taken: of those that tie the least one, by its first value first."""
        return self.tied[0]

    @property
    def ranked(self) -> tuple[Setting, ...]:
        """All settings, the best first: each would be chosen if the settings before it were not there."""
        medians, rest = self._medians(np.ones((self.seeds, 1), np.int64)), np.arange(len(self.settings))
        order = list[Setting]()
        while len(rest):
            place = rest[_best(medians[:, rest]).argmax()]
            order.append(self.settings[place])
            rest = rest[rest != place]
        return tuple(order)

    @property
    def seeds(self) -> int:
        """How many seeds they were tried on."""
        return int(self.costs.shape[-1])

    def choices(self, size: int) -> np.ndarray:
        """The place of the setting that is taken in each of the `resamples` of the seeds, shape (draws,)."""
        if size not in self._choices:
            draws, _ = resamples(self.seeds, size)
            parts = np.array_split(draws, -(-draws.shape[1] // JUDGED_AT_ONCE), axis=1)
            self._choices[size] = np.concatenate([self._best(part).argmax(axis=0) for part in parts])
        return self._choices[size]

    @cached_property
    def _choices(self) -> dict[int, np.ndarray]:
        """What `choices` has found, by the number of seeds."""
        return {}

    @property
    def candidate_settings(self) -> tuple[Setting, ...]:
        """The setting that is taken, those that tie, and those of nearly all draws, the likeliest first."""
        shares = {setting: share for (setting,), share in shares_of_choices([self]).items()}
        ordered = sorted(shares, key=lambda setting: -shares[setting])
        before = np.cumsum([0.0, *(shares[setting] for setting in ordered)])
        drawn = (setting for setting, so_far in zip(ordered, before, strict=False) if so_far < COVERED)
        return tuple(dict.fromkeys((*self.tied, *drawn)))

    def _best(self, draws: np.ndarray) -> np.ndarray:
        """Which settings are the best in each draw of seeds (seeds, draws), shape (settings, draws)."""
        return _best(self._medians(draws))

    def _medians(self, draws: np.ndarray) -> np.ndarray:
        """The medians of both costs in each draw of seeds (seeds, draws), shape (2, settings, draws)."""
        first, second = (np.stack([_medians(own, draws) for own in costs]) for costs in self.costs)
        return np.stack([np.maximum(first, self.floor_cost), second])


def _best(medians: np.ndarray) -> np.ndarray:
    """Return which settings are the best in each draw, (settings, draws), by medians (2, settings, draws)."""
    best = _ties(medians[0])
    return best & _ties(np.where(best, medians[1], np.inf))


def different_draws(seeds: int, size: int | None = None) -> int:
    """How many multisets there are of `size` seeds out of `seeds`; None: of as many as there are."""
    return comb(seeds + (seeds if size is None else size) - 1, seeds - 1)


@cache
def resamples(seeds: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """What drawing `size` seeds out of `seeds` with replacement gives, and how probable each of that is.

    All multisets where they are at most `ALL_MULTISETS`, else so many at random as `RESAMPLES` says.

    Returns:
        How often each seed is drawn, shape (seeds, draws), and weights that sum to 1, shape (draws,).
    """
    dtype = np.min_scalar_type(size)
    if different_draws(seeds, size) > ALL_MULTISETS:
        drawn = np.random.default_rng(0).multinomial(size, np.full(seeds, 1 / seeds), RESAMPLES)
        return np.ascontiguousarray(drawn.T, dtype), np.full(RESAMPLES, 1 / RESAMPLES)
    draws, left = np.zeros((0, 1), dtype), np.array([size])
    for _ in range(seeds - 1):
        counts = np.concatenate([np.arange(most + 1) for most in left])
        draws = np.vstack([draws.repeat(left + 1, axis=1), counts.astype(dtype)])
        left = left.repeat(left + 1) - counts
    draws = np.vstack([draws, left.astype(dtype)])
    orders = np.array([lgamma(count + 1) for count in range(size + 1)])  # logarithms of factorials
    return draws, np.exp(orders[size] - orders[draws].sum(axis=0) - size * log(seeds))


def shares_of_choices(
    tried: Sequence[TuningOutcome], size: int | None = None
) -> dict[tuple[Setting, ...], float]:
    """What methods would choose together if the tuning seeds were drawn again, with the share of the draws.

    Those with equally many seeds have the same draws; others are drawn independently.

    Args:
        tried: of each method.
        size: how many seeds are drawn; None: so many as each method has.
    """
    groups: dict[int, list[int]] = {}
    for place, one in enumerate(tried):
        groups.setdefault(one.seeds, []).append(place)
    shares = [_shares([tried[place] for place in places], size) for places in groups.values()]
    found: dict[tuple[Setting, ...], float] = {}
    for parts in product(*(own.items() for own in shares)):
        chosen = {
            place: setting
            for places, (settings, _) in zip(groups.values(), parts, strict=True)
            for place, setting in zip(places, settings, strict=True)
        }
        found[tuple(chosen[place] for place in range(len(tried)))] = prod(share for _, share in parts)
    return found


def _shares(tried: Sequence[TuningOutcome], size: int | None) -> dict[tuple[Setting, ...], float]:
    """`shares_of_choices` of methods with equally many seeds."""
    number = tried[0].seeds if size is None else size
    counts = tuple(len(one.settings) for one in tried)
    codes = np.ravel_multi_index([one.choices(number) for one in tried], counts)
    different, which = np.unique(codes, return_inverse=True)
    shares = np.bincount(which, resamples(tried[0].seeds, number)[1])
    chosen = np.transpose(np.unravel_index(different, counts))
    return {
        tuple(one.settings[place] for one, place in zip(tried, places, strict=True)): float(share)
        for places, share in zip(chosen, shares, strict=True)
    }


def _medians(costs: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """The median of costs (seeds,) in each draw of seeds (seeds, draws), shape (draws,)."""
    size = int(draws[:, 0].sum())
    order = np.argsort(costs)
    below = np.zeros(draws.shape[1], draws.dtype)  # how many of the draw are no greater
    low, high = (np.zeros(draws.shape[1], np.min_scalar_type(len(costs))) for _ in range(2))
    for seed in order:
        below += draws[seed]
        low += below <= (size - 1) // 2
        high += below <= size // 2
    ordered = costs[order]
    return np.asarray((ordered[low] + ordered[high]) / 2)


def _ties(costs: np.ndarray) -> np.ndarray:
    """Which of (settings, draws) are the least of their draw, but for rounding."""
    least = costs.min(axis=0)
    slack = np.where(np.isfinite(least), EQUAL_TO_ROUNDING * np.abs(least), 0.0)
    return costs <= least + slack


def comparable(runs: pl.DataFrame, tuning: Tuning) -> pl.DataFrame:
    """Keep the tuning runs of the greatest length: results of shorter runs only say which settings go on.

    Args:
        runs: tuning runs (curvebench.results.schema.RUNS), of all rounds or of the first ones.
        tuning: the protocol that they are of.
    """
    shares = {number: tuning.shares[number] for number in runs["round"].unique()}
    longest = [number for number, share in shares.items() if share == max(shares.values())]
    return runs.filter(pl.col("round").is_in(longest))


def tuning_outcome(runs: pl.DataFrame, names: Sequence[str], judge: Judge) -> TuningOutcome | None:
    """The settings of tuning runs with their costs; None where all runs are missing.

    A missing run has the median of its setting's others. Runs of shorter rounds do not count (`comparable`).

    Args:
        runs: the tuning runs of one method on one workload and backend.
        names: the tuned hyperparameters, the learning rate first.
    """
    known = judge.costs(comparable(runs, judge.tuning))
    if known.is_empty():
        return None
    seeds = {seed: place for place, seed in enumerate(sorted(known["seed"].unique()))}
    found: dict[Setting, np.ndarray] = {}
    results = known.select("seed", "first", "second").iter_rows()
    for setting, (seed, *pair) in zip(settings_of(known, names), results, strict=True):
        own = found.setdefault(setting, np.full((2, len(seeds)), np.nan))
        own[:, seeds[seed]] = pair
    ordered = sorted(found)
    costs = np.stack([found[setting] for setting in ordered], axis=1)
    medians = np.nanmedian(costs, axis=-1, keepdims=True)
    return TuningOutcome(tuple(ordered), np.where(np.isnan(costs), medians, costs), judge.floor_cost)


def by_setting(runs: pl.DataFrame, names: Sequence[str]) -> dict[Setting, pl.DataFrame]:
    """Runs by the values of their tuned hyperparameters."""
    rows: dict[Setting, list[int]] = {}
    for place, setting in enumerate(settings_of(runs, names)):
        rows.setdefault(setting, []).append(place)
    return {setting: runs[places] for setting, places in rows.items()}


def settings_of(runs: pl.DataFrame, names: Sequence[str]) -> Iterator[Setting]:
    """The values of the tuned hyperparameters of each run; NaN of one that it lacks."""
    for rate, others in zip(runs["learning_rate"], runs["hyperparameters"].to_list(), strict=True):
        values = {item["name"]: item["value"] for item in others or []}
        values["learning_rate"] = rate
        yield tuple(values.get(name, nan) for name in names)


def tuning_outcomes(runs: pl.DataFrame, judge: Judge) -> dict[Group, TuningOutcome]:
    """The settings that were tried, by workload and the basis that chooses.

    A group whose runs are all missing has none.

    Args:
        runs: the tuning runs of one optimizer (curvebench.results.schema.RUNS).
        judge: by what the study chooses.

    Raises:
        ValueError: when the runs are of several optimizers, or lack the metric or the identity basis.
    """
    optimizers = runs["optimizer"].unique().to_list()
    if len(optimizers) > 1:
        raise ValueError(f"a choice needs the runs of one optimizer, not of {sorted(optimizers)}")
    metric, which = judge.tuning.choose.metric, judge.tuning.choose.which
    has = pl.col(f"{which}_metrics").list.eval(pl.element().struct.field("name") == metric).list.any()
    for run in runs.filter(finished() & ~has)["run"]:
        raise ValueError(f"run {run} has no {which} {metric}")
    groups = dict(runs.group_by("workload", "basis", maintain_order=True))
    found: dict[Group, TuningOutcome] = {}
    for workload, basis in groups:
        group = workload, judge.tuning.tuning_basis(basis)
        if group not in groups:
            raise ValueError(f"no run of {workload} in the identity basis, which chooses for all bases")
        if outcome := tuning_outcome(groups[group], judge.tuning.names, judge):
            found[group] = outcome
    return found
