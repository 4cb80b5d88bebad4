"""Choice of a setting by tuning: the chosen setting, settings that tie with it, and probable alternatives.

A setting is a value for each tuned hyperparameter. Tuning runs every setting on a few tuning seeds. Which
setting is chosen depends on these seeds by chance. Resampling the seeds with replacement (a bootstrap) shows
which other settings might have been chosen, and with what probability.

If the chosen setting has the lowest or the highest value that was tried, a better one may lie outside. If
another study found a better setting of the same method on the same problem, inside of the search, the search
was too coarse. In both cases a comparison of two methods may depend on the search.

Arrays have the shapes (settings, seeds) and (settings, draws); a draw is one resample of the seeds. A cost is
a value of which less is better. `outcomes.py` says which runs are failed or missing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from itertools import product, starmap
from math import comb, lgamma, log, nan, prod
from typing import Any

import numpy as np
import polars as pl

from curvebench.results.outcomes import failed, finished, missing
from curvebench.results.reading import named
from curvebench.spec.document import Direction
from curvebench.spec.method import BasisSpec, Method, OptimizerSpec
from curvebench.spec.plan import StudyPlan, WorkloadPlan
from curvebench.spec.tuning import Axis, Criterion, SpaceSearch, Tuning

EQUAL_TO_ROUNDING = 1e-12  # costs whose relative difference is at most this number tie
# If at most this many different resamples exist (for 10 seeds: 92,378), all of them are used, which is exact.
# If more resamples exist, RESAMPLES of them are drawn at random.
MAX_MULTISETS = 100_000
RESAMPLES = 10_000
JUDGED_AT_ONCE = 10_000  # resamples whose medians are computed in one array, to limit memory
COVERED = 0.99  # the candidate settings include the choices of at least this share of the resamples
Group = tuple[str, str]  # labels of a workload and of the basis that chooses the setting
Setting = tuple[float, ...]  # values of the tuned hyperparameters, the learning rate first
Choices = dict[tuple[Setting, ...], float]  # share of the resamples, by the settings chosen for the methods


def worst(direction: Direction) -> float:
    """Return the value of a metric that counts for a diverged run: infinity if less is better, otherwise
    -infinity.
    """
    return float("inf") if direction == "minimize" else float("-inf")


@dataclass(frozen=True)
class Judge:
    """Criteria by which a study chooses a setting.

    Args:
        tuning: the study's tuning protocol. The protocol has a first criterion, a floor (all settings with a
            cost below the floor tie by the first criterion), and a second criterion for settings that tie.
        direction_of: function that returns whether less or more of a metric is better.
        stop: thresholds at which runs stop, by metric.
    """

    tuning: Tuning
    direction_of: Callable[[str], Direction]
    stop: Mapping[str, float]

    def costs(self, runs: pl.DataFrame) -> pl.DataFrame:
        """Return the runs with the additional columns `first` and `second`, without missing runs.

        `first` is the cost by the first criterion. `second` is the cost by the criterion for ties; without
        such a criterion, all values of `second` are 0. A failed run has infinite costs.
        """
        ties = self.tuning.tie_break
        first = _or_worst(self._value(self.tuning.choose))
        second = pl.lit(0.0) if ties is None else _or_worst(self._value(ties))
        return runs.filter(~missing()).with_columns(first=first, second=second)

    def _value(self, criterion: Criterion) -> pl.Expr:
        """Return an expression for the cost by a criterion.

        If the criterion counts the steps to a target or to a stop, the cost is null for a run that did not
        reach the target or the stop.
        """
        metric = criterion.metric
        if criterion.which == "steps_to_target":
            return named(metric, "targets", key="metric", value="steps").cast(pl.Float64)
        value = named(metric, "best_metrics" if criterion.which == "best" else "final_metrics")
        cost = value if self.direction_of(metric) == "minimize" else -value
        if criterion.which == "steps_to_stop":
            met = cost <= self.cost(metric, self.stop[metric])
            return pl.when(met).then(pl.col("steps").cast(pl.Float64))
        return cost

    def cost(self, metric: str, value: float) -> float:
        """Convert a value of a metric to a cost, of which less is better."""
        return value if self.direction_of(metric) == "minimize" else -value

    @property
    def floor_cost(self) -> float:
        """Cost below which settings tie by the first criterion; -infinity if there is no such cost."""
        floor, choose = self.tuning.floor, self.tuning.choose
        return -np.inf if floor is None else self.cost(choose.metric, floor)


def _or_worst(cost: pl.Expr) -> pl.Expr:
    """Return an expression for a cost in which infinity replaces null, NaN, and the costs of failed runs."""
    return pl.when(~failed()).then(cost.fill_nan(None)).fill_null(np.inf)


@dataclass(frozen=True)
class TuningOutcome:
    """Result of tuning a method: the costs of its settings on each tuning seed.

    Args:
        settings: the settings, in increasing order, so that of several best settings the smallest is chosen.
        costs: costs by the first and second criterion, shape (2, settings, seeds).
        floor_cost: cost below which settings tie by the first criterion (`Judge.floor_cost`).
    """

    settings: tuple[Setting, ...]
    costs: np.ndarray
    floor_cost: float
    # Results of `choices`, by number of seeds in a resample, so that they are computed only once
    _choices: dict[int, np.ndarray] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def tied(self) -> tuple[Setting, ...]:
        """Settings that are best by the medians of their costs over seeds, in increasing order.

        These are several settings if settings tie.
        """
        best = self._best(np.ones((self.seeds, 1), np.int64))[:, 0]
        return tuple(setting for setting, is_best in zip(self.settings, best, strict=True) if is_best)

    @property
    def without_effect(self) -> list[int]:
        """Positions in a setting of the values that change nothing.

        Settings that differ only in such a value have finite and equal costs on every tuning seed.
        """
        positions = []
        for position in range(len(self.settings[0])):
            groups: dict[Setting, list[np.ndarray]] = {}
            for setting, costs in zip(self.settings, self.costs[0], strict=True):
                groups.setdefault(setting[:position] + setting[position + 1 :], []).append(costs)
            several = [np.array(group) for group in groups.values() if len(group) > 1]
            if several and all(np.isfinite(costs).all() and (costs == costs[0]).all() for costs in several):
                positions.append(position)
        return positions

    @property
    def chosen(self) -> Setting:
        """Chosen setting: of all best settings the smallest, compared by the learning rate first."""
        return self.tied[0]

    @property
    def ranked(self) -> tuple[Setting, ...]:
        """All settings, best first. Each setting would be chosen if the settings before it were absent."""
        medians, remaining = self._medians(np.ones((self.seeds, 1), np.int64)), np.arange(len(self.settings))
        order = list[Setting]()
        while len(remaining):
            best = remaining[_best(medians[:, remaining]).argmax()]
            order.append(self.settings[best])
            remaining = remaining[remaining != best]
        return tuple(order)

    @property
    def seeds(self) -> int:
        """Number of tuning seeds."""
        return int(self.costs.shape[-1])

    def choices(self, size: int) -> np.ndarray:
        """Return the index of the setting that tuning would choose in each resample of the seeds.

        Args:
            size: number of seeds in a resample.

        Returns:
            Indices of shape (draws,), in the order of the resamples that `resamples` returns.
        """
        if size not in self._choices:
            draws, _ = resamples(self.seeds, size)
            parts = np.array_split(draws, -(-draws.shape[1] // JUDGED_AT_ONCE), axis=1)
            self._choices[size] = np.concatenate([self._best(part).argmax(axis=0) for part in parts])
        return self._choices[size]

    @property
    def candidate_settings(self) -> tuple[Setting, ...]:
        """Settings that tuning may have chosen with other seeds.

        These are the chosen setting, the settings that tie with the chosen one, and the most frequent choices
        in resamples of the seeds. The last group has as few settings as possible that together are chosen in
        the share `COVERED` of the resamples.
        """
        shares = {setting: share for (setting,), share in shares_of_choices([self]).items()}
        ordered = sorted(shares, key=lambda setting: -shares[setting])
        covered = np.cumsum([0.0, *(shares[setting] for setting in ordered)])
        probable = (setting for setting, so_far in zip(ordered, covered, strict=False) if so_far < COVERED)
        return tuple(dict.fromkeys((*self.tied, *probable)))

    def _best(self, draws: np.ndarray) -> np.ndarray:
        """Return whether each setting is among the best settings in each resample, shape (settings, draws).

        Args:
            draws: how often a resample contains each seed, shape (seeds, draws).
        """
        return _best(self._medians(draws))

    def _medians(self, draws: np.ndarray) -> np.ndarray:
        """Return the medians of both costs in each resample, shape (2, settings, draws).

        Args:
            draws: how often a resample contains each seed, shape (seeds, draws).
        """
        first, second = (np.stack([_medians(row, draws) for row in costs]) for costs in self.costs)
        return np.stack([np.maximum(first, self.floor_cost), second])


def _best(medians: np.ndarray) -> np.ndarray:
    """Return whether each setting is among the best settings in each resample, shape (settings, draws).

    Args:
        medians: medians of both costs, shape (2, settings, draws). Settings that tie by the first cost are
            compared by the second cost.
    """
    best = _ties(medians[0])
    return best & _ties(np.where(best, medians[1], np.inf))


def different_draws(seeds: int, size: int | None = None) -> int:
    """Return the number of different resamples of seeds with replacement; the order of seeds does not count.

    Args:
        seeds: number of seeds.
        size: number of seeds in a resample; None for the number of seeds.
    """
    return comb(seeds + (seeds if size is None else size) - 1, seeds - 1)


@cache
def resamples(seeds: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the resamples with replacement of seeds, with their probabilities.

    If more than `MAX_MULTISETS` different resamples exist, the result is `RESAMPLES` random resamples.

    Args:
        seeds: number of seeds.
        size: number of seeds in a resample.

    Returns:
        How often a resample contains each seed, shape (seeds, draws), and the probabilities of the resamples,
        which sum to 1, shape (draws,).
    """
    dtype = np.min_scalar_type(size)
    if different_draws(seeds, size) > MAX_MULTISETS:
        multisets = np.random.default_rng(0).multinomial(size, np.full(seeds, 1 / seeds), RESAMPLES)
        return np.ascontiguousarray(multisets.T, dtype), np.full(RESAMPLES, 1 / RESAMPLES)
    draws, remaining = np.zeros((0, 1), dtype), np.array([size])
    for _ in range(seeds - 1):
        counts = np.concatenate([np.arange(available + 1) for available in remaining])
        draws = np.vstack([draws.repeat(remaining + 1, axis=1), counts.astype(dtype)])
        remaining = remaining.repeat(remaining + 1) - counts
    draws = np.vstack([draws, remaining.astype(dtype)])
    # The probability of a resample that contains seed i count_i times is multinomial.
    # The multinomial probability is size! / (count_1! count_2! ...) / seeds^size.
    log_factorials = np.array([lgamma(count + 1) for count in range(size + 1)])
    return draws, np.exp(log_factorials[size] - log_factorials[draws].sum(axis=0) - size * log(seeds))


def shares_of_choices(outcomes: Sequence[TuningOutcome], size: int | None = None) -> Choices:
    """Return which settings tuning would choose for several methods in resamples of the seeds, and how often.

    Methods with the same number of seeds were tuned on the same seeds, so that one resample is used for all
    these methods. Methods with different numbers of seeds are resampled independently.

    Args:
        outcomes: tuning outcome of each method.
        size: number of seeds in a resample; None for the number of seeds of each method.

    Returns:
        Share of the resamples, by the tuple of the settings that tuning chooses for the methods.
    """
    groups: dict[int, list[int]] = {}
    for index, outcome in enumerate(outcomes):
        groups.setdefault(outcome.seeds, []).append(index)
    shares = [_shares([outcomes[index] for index in indices], size) for indices in groups.values()]
    joint: Choices = {}
    for parts in product(*(share_of.items() for share_of in shares)):
        chosen = {
            index: setting
            for indices, (settings, _) in zip(groups.values(), parts, strict=True)
            for index, setting in zip(indices, settings, strict=True)
        }
        joint[tuple(chosen[index] for index in range(len(outcomes)))] = prod(share for _, share in parts)
    return joint


def _shares(outcomes: Sequence[TuningOutcome], size: int | None) -> Choices:
    """Return how often tuning would choose each combination of settings, in resamples of the seeds.

    Args:
        outcomes: tuning outcome of each method, all with the same number of seeds.
        size: number of seeds in a resample; None for the number of seeds of the methods.
    """
    number = outcomes[0].seeds if size is None else size
    counts = tuple(len(outcome.settings) for outcome in outcomes)
    codes = np.ravel_multi_index([outcome.choices(number) for outcome in outcomes], counts)
    different, codes_of_draws = np.unique(codes, return_inverse=True)
    shares = np.bincount(codes_of_draws, resamples(outcomes[0].seeds, number)[1])
    chosen = np.transpose(np.unravel_index(different, counts))
    return {
        tuple(outcome.settings[index] for outcome, index in zip(outcomes, indices, strict=True)): float(share)
        for indices, share in zip(chosen, shares, strict=True)
    }


def _medians(costs: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Return the median of a setting's costs in each resample, shape (draws,).

    Args:
        costs: cost on each seed, shape (seeds,).
        draws: how often a resample contains each seed, shape (seeds, draws).
    """
    size = int(draws[:, 0].sum())
    order = np.argsort(costs)
    # Go through the seeds in increasing order of cost, and count the values of each resample so far.
    # The lower middle value of a resample belongs to the seed at which the count exceeds (size - 1) // 2.
    # The upper middle value of a resample belongs to the seed at which the count exceeds size // 2.
    count_so_far = np.zeros(draws.shape[1], draws.dtype)
    low, high = (np.zeros(draws.shape[1], np.min_scalar_type(len(costs))) for _ in range(2))
    for seed in order:
        count_so_far += draws[seed]
        low += count_so_far <= (size - 1) // 2
        high += count_so_far <= size // 2
    ordered = costs[order]
    return np.asarray((ordered[low] + ordered[high]) / 2)


def _ties(costs: np.ndarray) -> np.ndarray:
    """Return whether each cost equals the smallest cost in its resample up to rounding.

    Args:
        costs: cost of each setting in each resample, shape (settings, draws). The result has the same shape.
    """
    smallest = costs.min(axis=0)
    slack = np.where(np.isfinite(smallest), EQUAL_TO_ROUNDING * np.abs(smallest), 0.0)
    return costs <= smallest + slack


def comparable(runs: pl.DataFrame, tuning: Tuning) -> pl.DataFrame:
    """Return the tuning runs of the rounds with the longest runs.

    Tuning chooses the setting from these runs. Shorter runs only decide which settings get longer runs.

    Args:
        runs: tuning runs (curvebench.results.schema.RUNS) of all rounds so far.
        tuning: the tuning protocol of these runs.
    """
    shares = {number: tuning.shares[number] for number in runs["round"].unique()}
    longest = [number for number, share in shares.items() if share == max(shares.values())]
    return runs.filter(pl.col("round").is_in(longest))


def tuning_outcome(runs: pl.DataFrame, names: Sequence[str], judge: Judge) -> TuningOutcome | None:
    """Return the settings of tuning runs with their costs; None if all runs are missing.

    A run that says nothing about its method, for example because it was interrupted, is missing. A missing
    run gets the median cost of the other runs with the same setting. Runs of rounds with shorter runs are
    left out (`comparable`).

    Args:
        runs: tuning runs of one method on one workload and backend.
        names: the tuned hyperparameters, the learning rate first.
        judge: criteria of the study.
    """
    present = judge.costs(comparable(runs, judge.tuning))
    if present.is_empty():
        return None
    settings = [*settings_of(present, names)]
    ordered = sorted({*settings})
    seeds, columns = np.unique(present["seed"], return_inverse=True)
    costs = np.full((2, len(ordered), len(seeds)), np.nan)
    rows = [ordered.index(setting) for setting in settings]
    costs[:, rows, columns] = present.select("first", "second").to_numpy().T
    medians = np.nanmedian(costs, axis=-1, keepdims=True)
    return TuningOutcome(tuple(ordered), np.where(np.isnan(costs), medians, costs), judge.floor_cost)


def by_setting(runs: pl.DataFrame, names: Sequence[str]) -> dict[Setting, pl.DataFrame]:
    """Group runs by their setting.

    Args:
        runs: rows of the table `runs`.
        names: the tuned hyperparameters, the learning rate first.
    """
    rows: dict[Setting, list[int]] = {}
    for index, setting in enumerate(settings_of(runs, names)):
        rows.setdefault(setting, []).append(index)
    return {setting: runs[indices] for setting, indices in rows.items()}


def settings_of(runs: pl.DataFrame, names: Sequence[str]) -> Iterator[Setting]:
    """Yield the setting of each run. A hyperparameter that the run lacks has the value NaN.

    Args:
        runs: rows of the table `runs`.
        names: the tuned hyperparameters, the learning rate first.
    """
    for rate, hyperparameters in zip(runs["learning_rate"], runs["hyperparameters"].to_list(), strict=True):
        values = {item["name"]: item["value"] for item in hyperparameters or []}
        values["learning_rate"] = rate
        yield tuple(values.get(name, nan) for name in names)


def tuning_outcomes(runs: pl.DataFrame, judge: Judge) -> dict[Group, TuningOutcome]:
    """Return the tuning outcomes of an optimizer, by workload and basis (a change of coordinates).

    If all bases share a setting, only the identity basis has an outcome, because the setting is chosen in
    this basis. There is no outcome for a workload and a basis whose runs are all missing.

    Args:
        runs: tuning runs of one optimizer (curvebench.results.schema.RUNS).
        judge: criteria of the study.

    Raises:
        ValueError: when the runs belong to several optimizers, or lack the metric or the identity basis.
    """
    optimizers = runs["optimizer"].unique().to_list()
    if len(optimizers) > 1:
        raise ValueError(f"a choice needs the runs of one optimizer, not of {sorted(optimizers)}")
    metric = judge.tuning.choose.metric
    which = "best" if judge.tuning.choose.which == "best" else "final"
    has_metric = pl.col(f"{which}_metrics").list.eval(pl.element().struct.field("name") == metric).list.any()
    for run in runs.filter(finished() & ~has_metric)["run"]:
        raise ValueError(f"run {run} has no {which} {metric}")
    groups = dict(runs.group_by("workload", "basis", maintain_order=True))
    outcomes: dict[Group, TuningOutcome] = {}
    for workload, basis in groups:
        group = workload, judge.tuning.tuning_basis(basis)
        if group not in groups:
            raise ValueError(f"no run of {workload} in the identity basis, which chooses for all bases")
        if outcome := tuning_outcome(groups[group], judge.tuning.names, judge):
            outcomes[group] = outcome
    return outcomes


# --- ends of searches, and better settings that other searches found ---------------------------------

# Names such as `adam_learning_rate`, an argument of Muon in Optax, end with this name.
LEARNING_RATE = "learning_rate"
# Values at which the legal interval of a hyperparameter ends, so that there is nothing to search beyond them.
# Examples of such values are no momentum, no weight decay, and no decay of the learning rate.
NATURAL_ENDS = {"lowest": 0.0, "highest": 1.0}
# A learning rate is at an end of the interval that was searched if it is within this share of the interval.
# If several hyperparameters are tuned, points with a rate closer to the end are often worse in the others.
NEAR_END = 0.1
# Under the schedule `exponential`, a rate decay of 1 is the schedule `constant`.
CONSTANT, EXPONENTIAL, RATE_DECAY = "constant", "exponential", "rate_decay"


@dataclass(frozen=True)
class MethodSearch:
    """The search for the setting of a method on a problem, and its result.

    Args:
        study, workload, optimizer, basis: the study, and the problem and the method in it.
        backend: backend of the tuning runs.
        tried: the tuning runs of all rounds.
        outcome: settings with their costs.
    """

    study: StudyPlan
    workload: WorkloadPlan
    optimizer: OptimizerSpec
    basis: BasisSpec
    backend: str
    tried: pl.DataFrame
    outcome: TuningOutcome

    @property
    def key(self) -> tuple[str, str, str]:
        """Labels of workload and method, and the backend: they identify the search in its study."""
        return self.workload.name, Method(self.optimizer.label, self.basis.label).label, self.backend

    @property
    def tuning(self) -> Tuning:
        """The tuning protocol of the optimizer."""
        return self.study.tuning.for_optimizer(self.optimizer)

    @property
    def setting(self) -> dict[str, float]:
        """Value of each hyperparameter in the chosen setting, whether the hyperparameter is tuned or not."""
        chosen = dict(zip(self.tuning.names, self.outcome.chosen, strict=True))
        return {**chosen, **fixed(self.study, self.optimizer), **chosen}

    @cached_property
    def costs(self) -> np.ndarray:
        """Costs of the chosen setting on the tuning seeds by the study's first criterion, shape (seeds,)."""
        outcome = self.outcome
        costs: np.ndarray = outcome.costs[0, outcome.settings.index(outcome.chosen)]
        return np.maximum(costs, outcome.floor_cost)

    @cached_property
    def cost(self) -> float:
        """Median cost of the chosen setting over tuning seeds."""
        return float(np.median(self.costs))

    @cached_property
    def values(self) -> dict[str, set[float]]:
        """Values that tuning tried, by hyperparameter."""
        names = self.tuning.names
        tried = zip(*settings_of(self.tried, names), strict=True)
        return {name: {*values} for name, values in zip(names, tried, strict=True)}

    @property
    def searched(self) -> set[str]:
        """Hyperparameters for which tuning may try several values."""
        return {name for name, (low, high) in self.tuning.reach.items() if low < high}

    @property
    def axes(self) -> Mapping[str, Axis]:
        """Intervals of a search space; empty for a protocol without a search space."""
        return self.tuning.space if isinstance(self.tuning, SpaceSearch) else {}

    def edges(self, rival: MethodSearch | None = None) -> Iterator[dict[str, Any]]:
        """Yield the hyperparameters whose chosen value is an end of the values that tuning tried.

        A learning rate from a searched interval is an end, too, if it is near an end of the interval
        (`NEAR_END`), even if tuning tried a rate that is closer to the end.

        A hyperparameter with a fixed value has no ends, unless the other method of the comparison was
        searched for it. The values 0 and 1 on a linear scale, except those of learning rates, are natural
        ends (`NATURAL_ENDS`), and so are values next to them if the search reaches the natural end. A value
        of `also_try` outside of the interval of the search does not extend the search, unless it is chosen.

        Args:
            rival: the search for the other method of a comparison.
        """
        searched = self.searched | (rival.searched if rival else set())
        axes = {**(rival.axes if rival else {}), **self.axes}
        for name, value in self.setting.items():
            axis, (low, high) = axes.get(name), self.tuning.reach.get(name, (value, value))
            tried = self.values.get(name, {value})
            values = {each for each in tried if low <= each <= high or each == value}
            if len(values) == 1 and name not in searched:
                continue
            natural = axis and axis.scale == "linear" and not name.endswith(LEARNING_RATE)
            is_rate = axis and low < high and name.endswith(LEARNING_RATE)
            place = axis.place(value) if axis and is_rate else 0.5
            near = {"lowest": place <= NEAR_END, "highest": place >= 1 - NEAR_END}
            for limit, extreme, end in (("lowest", min(values), low), ("highest", max(values), high)):
                at_end = value == extreme or near[limit]
                if at_end and not (natural and NATURAL_ENDS[limit] in (end, value)):
                    yield {"hyperparameter": name, "value": value, "limit": limit}

    def is_of(self, optimizer: OptimizerSpec, basis: BasisSpec, workload: WorkloadPlan) -> bool:
        """Return whether the search is for a method on a workload; hyperparameters do not matter."""
        same = same_method(self.optimizer, self.basis, optimizer, basis)
        return same and _same_workload(self.workload, workload)

    def is_better(self, other: MethodSearch, share: float) -> bool:
        """Return whether the chosen setting has a smaller cost than the chosen setting of another search.

        If the two searches have different tuning seeds, the setting must be better on each of its seeds than
        the other setting on any seed, since costs may differ more between seeds than between settings.

        Args:
            other: a search for the same method on the same problem.
            share: the smallest difference that matters, as a share of the other search's cost.
        """
        alike = set(self.tried["seed"]) == set(other.tried["seed"])
        if not math.isfinite(self.cost) or not (alike or self.costs.max() < other.costs.min()):
            return False
        return not self.cost >= other.cost - share * abs(other.cost)


def fixed(study: StudyPlan, optimizer: OptimizerSpec) -> dict[str, float]:
    """Return the hyperparameters of an optimizer that a study does not tune, with their values."""
    constant = {RATE_DECAY: 1.0} if study.training.schedule.name == CONSTANT else {}
    return {**constant, **optimizer.hyperparameters}


def outside(study: StudyPlan, optimizer: OptimizerSpec, setting: Mapping[str, float]) -> dict[str, float]:
    """Return the values of a setting that lie outside of a study's search for an optimizer's setting.

    The result is empty if the search contains the setting, or tries it in addition.

    Args:
        setting: value of each hyperparameter, including hyperparameters that are not tuned.
    """
    tuning = study.tuning.for_optimizer(optimizer)
    values = {name: (value, value) for name, value in fixed(study, optimizer).items()}

    def beyond(ends: Mapping[str, tuple[float, float]]) -> dict[str, float]:
        places = [(name, value, ends.get(name, (math.inf, math.inf))) for name, value in setting.items()]
        return {name: value for name, value, (low, high) in places if not low <= value <= high}

    known = ({**values, **{name: (value, value) for name, value in each.items()}} for each in tuning.also_try)
    return min((beyond(ends) for ends in ({**values, **tuning.reach}, *known)), key=bool)


SearchLookup = Callable[[StudyPlan], Iterator[MethodSearch]]


def search_lookup(studies: Iterable[tuple[StudyPlan, Callable[[], pl.DataFrame]]]) -> SearchLookup:
    """Return a function that yields the searches in which a setting costs as much as in a given study.

    These are all searches of the studies that share a workload, the training protocol and the criterion of
    tuning with the given study. Searches are cached, because several studies are compared with each study.

    Args:
        studies: each study with a function that returns the table `runs` of the study. The function is called
            at most once, and not at all if no given study is comparable.
    """
    known = [(study, cache(partial(_searches, study, runs))) for study, runs in studies]

    def comparable_to(study: StudyPlan) -> Iterator[MethodSearch]:
        for other, searches in known:
            workloads = product(other.workloads, study.workloads)
            if _problem(other) == _problem(study) and any(starmap(_same_workload, workloads)):
                yield from searches()

    return comparable_to


def _searches(study: StudyPlan, runs: Callable[[], pl.DataFrame]) -> list[MethodSearch]:
    """Return the searches of a study: one for each method, workload and backend with usable tuning runs."""
    judge, found = Judge(study.tuning, study.direction_of, study.training.stop), []
    tuning = runs().filter(stage="tuning")
    for workload in study.workloads:
        groups = tuning.filter(workload=workload.name).group_by(
            "optimizer", "basis", "backend", maintain_order=True
        )
        for (optimizer, basis, backend), tried in groups:
            spec = study.optimizer(str(optimizer))
            used = next(each for each in study.bases if each.label == basis)
            outcome = tuning_outcome(tried, study.tuned_names(spec.label), judge)
            if outcome is not None:
                found.append(MethodSearch(study, workload, spec, used, str(backend), tried, outcome))
    return found


def limits_of(
    own: MethodSearch, rival: MethodSearch | None, others: Iterable[MethodSearch], share: float
) -> Iterator[dict[str, Any]]:
    """Yield the limits of a search: reasons why another search might have found a better setting.

    A limit is a hyperparameter whose chosen value is an end of the search, or a better setting that another
    study found on the same backend. The best such setting is named, with a hyperparameter whose value lies
    outside of the search if there is one. A study with constant learning rates does not need to try a
    schedule that another study found better.

    Args:
        own: the search.
        rival: the search for the other method of the comparison; None if there is none.
        others: searches of all studies.
        share: the smallest difference of costs that matters, as a share of the cost.

    Yields:
        Items of the column `at_edge` of the table `findings`, without the arm.
    """
    yield from own.edges(rival)
    scheduled = own.study.training.schedule.name != CONSTANT
    for other in sorted(others, key=lambda other: other.cost):
        alike = other.is_of(own.optimizer, own.basis, own.workload) and own.backend == other.backend
        if alike and other.is_better(own, share):
            beyond = outside(own.study, own.optimizer, other.setting)
            if scheduled or RATE_DECAY not in beyond:
                name, value = next(iter(beyond.items()), (None, None))
                yield {"limit": "missed", "study": other.study.name, "hyperparameter": name, "value": value}
                return


def same_method(one: OptimizerSpec, basis: BasisSpec, other: OptimizerSpec, its_basis: BasisSpec) -> bool:
    """Return whether two optimizers in their bases are the same method, except for hyperparameters."""
    same = (one.locator, basis.name) == (other.locator, its_basis.name)
    return same and _agree(one.options, other.options) and _agree(basis.options, its_basis.options)


def _same_workload(one: WorkloadPlan, other: WorkloadPlan) -> bool:
    same = (one.name, one.spec.locator) == (other.name, other.spec.locator)
    return same and _agree(one.settings, other.settings)


def _problem(study: StudyPlan) -> Any:
    """Return the fields that two studies must have in common, so that equal settings have equal costs."""
    training = study.training.model_dump(mode="json", exclude={"targets", "evaluated_splits"})
    if training["schedule"]["name"] == EXPONENTIAL:
        training["schedule"]["name"] = CONSTANT
    return training, study.tuning.choose, study.tuning.length


def _agree(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two mappings have the same values under the keys that both have.

    A key that only one of them has is an option that was added later.
    """
    first, second = (json.loads(json.dumps(dict(values), default=str)) for values in (one, other))
    return all(first[key] == second[key] for key in first.keys() & second.keys())
