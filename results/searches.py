"""Searches for settings: ends where the chosen setting lies, and better settings that other searches found.

A setting is a value for each tuned hyperparameter. If the chosen setting has the lowest or the highest value
that was tried, a better one may lie outside. If another study found a better setting of the same method on
the same problem, inside of the search, the search was too coarse. In both cases a comparison of two methods
may depend on the search.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from curvebench.results.tuning import Judge, TuningOutcome, settings_of, tuning_outcome
from curvebench.spec.method import BasisSpec, OptimizerSpec
from curvebench.spec.plan import StudyPlan, WorkloadPlan
from curvebench.spec.tuning import SpaceSearch, Tuning

LEARNING_RATE = "learning_rate"  # also the end of names such as `others_learning_rate`
# Values at which the legal interval of a hyperparameter ends, such as no momentum, no weight decay, and no
# decay of the learning rate. There is nothing to search outside.
NATURAL_ENDS = {"lowest": 0.0, "highest": 1.0}
# Under the schedule `exponential`, a rate decay of 1 is the schedule `constant`.
CONSTANT, EXPONENTIAL, RATE_DECAY = "constant", "exponential", "rate_decay"


@dataclass(frozen=True)
class Search:
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
    def tuning(self) -> Tuning:
        """The tuning protocol of the optimizer."""
        return self.study.tuning.for_optimizer(self.optimizer)

    @property
    def setting(self) -> dict[str, float]:
        """Value of each hyperparameter of the chosen setting, including those that are not tuned."""
        chosen = dict(zip(self.tuning.names, self.outcome.chosen, strict=True))
        return {**fixed(self.study, self.optimizer), **chosen}

    @property
    def cost(self) -> float:
        """Median cost of the chosen setting over tuning seeds, by the first criterion of the study."""
        outcome = self.outcome
        chosen = outcome.settings.index(outcome.chosen)
        return max(float(np.median(outcome.costs[0, chosen])), outcome.floor_cost)

    @property
    def seeds(self) -> frozenset[int]:
        """The tuning seeds."""
        return frozenset(self.tried["seed"])

    @property
    def edges(self) -> Iterator[dict[str, Any]]:
        """Hyperparameters whose chosen value is an end of the values that tuning tried.

        A hyperparameter whose interval is a single value is not searched. The values 0 and 1 on a linear
        scale, except those of learning rates, are natural ends (`NATURAL_ENDS`), and so are values next to
        them if the search reaches the natural end.
        """
        tuning = self.tuning
        space = tuning.space if isinstance(tuning, SpaceSearch) else {}
        columns = zip(*settings_of(self.tried, tuning.names), strict=True)
        for name, value, values in zip(tuning.names, self.outcome.chosen, columns, strict=True):
            axis = space.get(name)
            if len({*values}) == 1 and (axis is None or axis.low == axis.high):
                continue
            natural = axis and axis.scale == "linear" and not name.endswith(LEARNING_RATE)
            ends = (axis.low, axis.high, value) if axis and natural else ()
            for limit, extreme in (("lowest", min(values)), ("highest", max(values))):
                if value == extreme and NATURAL_ENDS[limit] not in ends:
                    yield {"hyperparameter": name, "value": value, "limit": limit}

    def is_of(self, optimizer: OptimizerSpec, basis: BasisSpec, workload: WorkloadPlan) -> bool:
        """Return whether the search is for a method on a workload; hyperparameters do not matter."""
        same = same_method(self.optimizer, self.basis, optimizer, basis)
        return same and _same_workload(self.workload, workload)

    def is_better(self, other: Search, share: float) -> bool:
        """Return whether the chosen setting has a smaller cost than the chosen setting of another search.

        Args:
            other: a search for the same method on the same problem.
            share: the smallest difference that matters, as a share of the other search's cost.
        """
        return math.isfinite(self.cost) and not self.cost >= other.cost - share * abs(other.cost)


def fixed(study: StudyPlan, optimizer: OptimizerSpec) -> dict[str, float]:
    """Return the hyperparameters of an optimizer that a study does not tune, with their values."""
    constant = {RATE_DECAY: 1.0} if study.training.schedule.name == CONSTANT else {}
    return {**constant, **optimizer.hyperparameters}


def outside(study: StudyPlan, optimizer: OptimizerSpec, setting: Mapping[str, float]) -> dict[str, float]:
    """Return the values of a setting that lie outside of a study's search for an optimizer's setting.

    The result is empty if the search contains the setting, or tries it in addition.

    Args:
        setting: value of each hyperparameter, including those that are not tuned.
    """
    tuning = study.tuning.for_optimizer(optimizer)
    values = {name: (value, value) for name, value in fixed(study, optimizer).items()}

    def beyond(ends: Mapping[str, tuple[float, float]]) -> dict[str, float]:
        lows, highs = ({name: pair[side] for name, pair in ends.items()} for side in (0, 1))
        return {
            name: value
            for name, value in setting.items()
            if not lows.get(name, math.inf) <= value <= highs.get(name, math.inf)
        }

    known = ({**values, **{name: (value, value) for name, value in each.items()}} for each in tuning.also_try)
    return min((beyond(ends) for ends in ({**values, **tuning.reach}, *known)), key=bool)


def searches(study: StudyPlan, runs: Callable[[], pl.DataFrame], like: StudyPlan) -> Iterator[Search]:
    """Yield the searches of a study on problems and for methods that another study has too.

    Args:
        study: the study.
        runs: function that returns the table `runs` of the study.
        like: the other study.
    """
    if _problem(study) != _problem(like):
        return
    workloads = [plan for plan in study.workloads if any(_same_workload(plan, one) for one in like.workloads)]
    judge = Judge(study.tuning, study.direction_of, study.training.stop)
    tuning = runs().filter(stage="tuning") if workloads else pl.DataFrame()
    for workload in workloads:
        groups = tuning.filter(workload=workload.name).group_by("optimizer", "basis", "backend")
        for (optimizer, basis, backend), tried in groups:
            spec = study.optimizer(str(optimizer))
            used = next(each for each in study.bases if each.label == basis)
            if any(same_method(spec, used, each, one) for each in like.optimizers for one in like.bases):
                outcome = tuning_outcome(tried, study.tuned_names(spec.label), judge)
                if outcome is not None:
                    yield Search(study, workload, spec, used, str(backend), tried, outcome)


def limits_of(own: Search, others: Iterator[Search], share: float) -> Iterator[dict[str, Any]]:
    """Yield what speaks against a search: ends of it, and better settings inside that other searches found.

    Costs are compared only between searches on the same tuning seeds and the same backend.

    Args:
        own: the search.
        others: searches of all studies.
        share: the smallest difference of costs that matters, as a share of the cost.

    Yields:
        Items of the column `at_edge` of the table `findings`, without the arm.
    """
    yield from own.edges
    for other in others:
        alike = other.is_of(own.optimizer, own.basis, own.workload) and own.backend == other.backend
        better = alike and own.seeds == other.seeds and other.is_better(own, share)
        if better and not outside(own.study, own.optimizer, other.setting):
            yield {"limit": "missed", "study": other.study.name}


def same_method(one: OptimizerSpec, basis: BasisSpec, other: OptimizerSpec, its_basis: BasisSpec) -> bool:
    """Return whether two optimizers in their bases are the same method, except for hyperparameters."""
    same = (one.locator, basis.name) == (other.locator, its_basis.name)
    return same and _agree(one.options, other.options) and _agree(basis.options, its_basis.options)


def _same_workload(one: WorkloadPlan, other: WorkloadPlan) -> bool:
    same = (one.name, one.spec.locator) == (other.name, other.spec.locator)
    return same and _agree(one.settings, other.settings)


def _problem(study: StudyPlan) -> Any:
    """Return what two studies must have in common, so that costs of equal settings are equal."""
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
