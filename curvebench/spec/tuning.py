"""Tuning protocols: the tuned hyperparameters, the settings of each round, and the choice among them.

A setting is a value for each tuned hyperparameter. Tuning tries settings in one or several rounds, on the
tuning seeds; the settings of a round may depend on the results of earlier rounds. Final runs use the chosen
setting on other seeds. A basis is a change of coordinates of the parameters, in which an optimizer makes its
steps. In the identity basis the parameters keep their coordinates.
"""

from __future__ import annotations

import math
import operator
import typing
from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any, Literal

import numpy as np
from numpy.random import Generator
from pydantic import BeforeValidator, Field, ValidationInfo, model_validator

from curvebench.spec.document import NOT_WRITTEN, Document, Names, Positive, as_list, is_written, words
from curvebench.spec.method import IDENTITY, OptimizerSpec

# A setting: the value of each tuned hyperparameter, by name of the hyperparameter
Setting = dict[str, float]
# The second round of `TwoStageSweep` tries these multiples of a power of ten (EGOP paper, 000 Sec. C.3).
MULTIPLES = (2, 4, 8)


# Keys that protocols have in plans only, each with the key that study files have instead
ELSEWHERE = {
    "budget": "give budget_per_dimension, the number of settings for each tuned hyperparameter",
    "also_try": "give it for an optimizer",
}


class Outcome(typing.Protocol):
    """Interface of the results of tuning rounds.

    The implementation is `curvebench.results.tuning.TuningOutcome`.
    """

    @property
    def ranked(self) -> tuple[tuple[float, ...], ...]:
        """Settings whose tuning runs have equal lengths and can be compared, the best setting first.

        Each setting is a tuple of values, in the order of the protocol's `names`.
        """


def _share(value: Any) -> Any:
    try:
        # `Fraction("0.2")` is exactly 1/5, `Fraction(0.2)` is not.
        share = Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        share = Fraction()
    if not 0 < share <= 1:
        raise ValueError(f"{value!r} is not a fraction above 0 and at most 1, such as 1/4")
    return share


def _not_written(value: Any, info: ValidationInfo) -> Any:
    if value and is_written(info):
        raise ValueError(f"is no key of study files; {ELSEWHERE[str(info.field_name)]}")
    return value


OF_PLANS = Field(exclude_if=operator.not_, json_schema_extra=NOT_WRITTEN)


class Criterion(Document):
    """The criterion by which tuning chooses a setting, or chooses between settings that tie.

    Args:
        statistic: statistic of the values of the runs with different tuning seeds.
        which: value of a run. `final` and `best` are the final and the best value of the metric.
            `steps_to_stop` is the number of steps until the metric met the threshold at which runs stop.
            `steps_to_target` is the number of steps until the metric met its target. Fewer steps are better.
        metric: name of the metric.
    """

    statistic: Literal["median"]
    which: Literal["final", "best", "steps_to_stop", "steps_to_target"]
    metric: str

    @property
    def counts_steps(self) -> bool:
        """Whether the criterion counts steps until a threshold, which a run may never meet."""
        return self.which not in ("final", "best")


CriterionWords = Annotated[Criterion, words("statistic which metric", "median best validation_accuracy")]


class Protocol(Document):
    """Base class of the tuning protocols: which settings are tried, and how the best setting is chosen.

    A protocol is a class of this module that defines the number of settings of each tuning round (`searched`)
    and the settings themselves (`search`), given the results of the rounds before. To add a protocol,
    define a class, add it to the union `Tuning` below, and describe it for pages in
    reports/templates/setting.jinja.

    Args:
        choose: criterion by which the best setting is chosen.
        floor: settings tie if their values of the criterion `choose` are better than this number, such as the
            rounding error of a loss; None if only settings with equal values tie.
        tie_break: criterion that decides between settings that tie; None for no such criterion. A protocol
            with a floor must have a `tie_break`.
        shared_across: `bases` if an optimizer runs in all bases with the setting that was chosen in the
            identity basis; `none` if each basis has its own setting.
        tuned_bases: labels of the bases in which settings are tried; None for all bases.
        length: length of tuning runs as a fraction of the length of final runs. The schedule of the learning
            rate is stretched or shortened with the run.
        also_try: settings of an optimizer that are tried in addition, in the last round, whose runs are the
            longest. `for_optimizer` fills them in; study files give them for an optimizer.
    """

    choose: CriterionWords
    floor: Annotated[float, Field(allow_inf_nan=False)] | None = None
    tie_break: CriterionWords | None = None
    shared_across: Literal["bases", "none"]
    tuned_bases: Annotated[Names, BeforeValidator(as_list)] | None = None
    length: Annotated[Fraction, BeforeValidator(_share)] = Fraction(1)
    also_try: Annotated[
        tuple[Setting, ...], Field(strict=False), OF_PLANS, BeforeValidator(_not_written)
    ] = ()

    @model_validator(mode="after")
    def _ties_apart(self) -> Protocol:
        ties = self.tie_break
        if self.floor is not None and self.choose.counts_steps:
            raise ValueError("floor: is a value of a metric, and choose counts steps; leave it out")
        if ties is None and self.floor is not None:
            raise ValueError("tie_break: is missing; say what decides between settings that tie at the floor")
        if ties is not None and (ties.which, ties.metric) == (self.choose.which, self.choose.metric):
            raise ValueError("tie_break: is the criterion by which settings tie; give another one")
        return self

    def sized(self, sizes: Mapping[str, Any]) -> Tuning:
        """Return a copy that tries other settings; the criterion for the best setting stays the same.

        Args:
            sizes: new values of keys of the protocol, except the keys by which the best setting is chosen
                (`CRITERION`). A mapping that changes the key `protocol` must contain all keys that the new
                protocol requires.

        Raises:
            ValueError: for keys in `CRITERION`, for keys that no protocol has, and for invalid values.
        """
        if not sizes:
            return self  # type: ignore[return-value]  # a member of the union
        names = dict.fromkeys(name for protocol in PROTOCOLS for name in protocol.model_fields)
        valid = [name for name in names if name not in CRITERION]
        if wrong := sizes.keys() - set(valid):
            names_here = ", ".join(name for name in valid if name not in ELSEWHERE)
            raise ValueError(f"{min(wrong)}: must be the same at all scales; valid here: {names_here}")
        keys = dict(self)
        if sizes.get("protocol", keys["protocol"]) != keys["protocol"]:
            keys = {name: keys[name] for name in CRITERION}
        return Tuned(tuning={**keys, **sizes}).tuning  # type: ignore[arg-type]  # it is validated

    def for_optimizer(self, optimizer: OptimizerSpec) -> Tuning:
        """Return the protocol with the search space and the additional settings of an optimizer."""
        changes: dict[str, Any] = {"also_try": tuple(map(dict, optimizer.also_try))}
        if optimizer.space:
            changes["space"] = {name: Axis.model_validate(axis) for name, axis in optimizer.space.items()}
        return self.model_copy(update=changes)  # type: ignore[return-value]  # a member of the union

    @property
    def rounds(self) -> tuple[int, ...]:
        """Number of settings that each tuning round tries; the final round is not counted."""
        *earlier, last = self.searched
        return (*earlier, last + len(self.also_try))

    @property
    def searched(self) -> tuple[int, ...]:
        """Number of settings of each tuning round, without the settings of `also_try`."""
        raise NotImplementedError

    def settings(self, number: int, random: Generator, outcome: Outcome | None) -> tuple[Setting, ...]:
        """Return the settings of a round: the settings of the search; in the last round also `also_try`.

        Args:
            number: number of the round, from 0.
            random: the random generator of the study.
            outcome: results of the rounds before; None before round 0.
        """
        last = number == len(self.searched) - 1
        return (*self.search(number, random, outcome), *(self.also_try if last else ()))

    def search(self, number: int, random: Generator, outcome: Outcome | None) -> tuple[Setting, ...]:
        """Return the settings that the search tries in a round.

        The arguments are explained at the method `settings`.
        """
        raise NotImplementedError

    @property
    def shares(self) -> tuple[Fraction, ...]:
        """Length of the runs of each round as a fraction of the length of final runs."""
        return (self.length,) * len(self.rounds)

    @property
    def compared_settings(self) -> int:
        """Number of settings that are tried in the longest tuning runs.

        Only results of runs of equal length can be compared with each other.
        """
        shares = self.shares
        return sum(n for n, share in zip(self.rounds, shares, strict=True) if share == max(shares))

    @property
    def trials(self) -> int:
        """Number of settings that a method may try on each workload and in each basis."""
        return sum(self.rounds)

    @property
    def cost(self) -> Fraction:
        """Total length of the tuning runs of a method on one seed, in units of the length of a final run."""
        return sum((share * count for share, count in zip(self.shares, self.rounds, strict=True)), Fraction())

    def check_lengths(self, budget: Mapping[str, int], evaluations: int) -> None:
        """Check that runs of every round have whole numbers of epochs or steps, and of evaluations.

        Args:
            budget: the length of a final run, `{"epochs": n}` or `{"steps": n}`.
            evaluations: the number of evaluations of a final run.

        Raises:
            ValueError: when a number of epochs, steps or evaluations is not whole.
        """
        for share in self.shares:
            for unit, count in {**budget, "evaluations": evaluations}.items():
                if (share * count).denominator > 1:
                    raise ValueError(
                        f"runs of {share} of the length would have {share} of {count} {unit}, which is no "
                        f"whole number; give a multiple of {share.denominator}"
                    )

    def tries(self, basis: str) -> bool:
        """Return whether tuning tries settings in a basis, given by its label."""
        return self.tuned_bases is None or basis in self.tuned_bases

    def tuning_basis(self, basis: str) -> str:
        """Return the label of the basis whose tuning runs choose the setting for `basis`.

        The result is the identity basis if all bases share a setting (`shared_across`), else `basis` itself.
        """
        return IDENTITY if self.shared_across == "bases" else basis


class TwoStageSweep(Protocol):
    """Tuning of the learning rate by powers of ten, then by doublings around the best power of ten.

    Source: EGOP paper, 000 Sec. C.3.

    Args:
        of: the tuned hyperparameter.
        coarse: lowest and highest learning rate of round 0, both powers of ten.
    """

    protocol: Literal["two_stage_sweep"]
    of: Literal["learning_rate"]
    coarse: Annotated[tuple[float, float], Field(strict=False)]

    @model_validator(mode="after")
    def _grid(self) -> TwoStageSweep:
        exponents(*self.coarse)
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tuned hyperparameters."""
        return (self.of,)

    @property
    def searched(self) -> tuple[int, ...]:
        return len(self.rates), 2 * len(MULTIPLES)

    def search(self, number: int, random: Generator, outcome: Outcome | None) -> tuple[Setting, ...]:
        """Return the powers of ten in round 0, and the doublings around the best power of ten in round 1.

        Round 1 covers the interval from a tenth of the best rate of round 0 to ten times that rate, without
        rates of round 0. If the best rate is an end of the grid of round 0, round 1 extends beyond the grid,
        but does not try the next power of ten, so that every method gets the same number of rates.

        Args:
            number: number of the round, from 0.
            random: the random generator of the study, which is not used.
            outcome: results of round 0; None before round 0.
        """
        if outcome is None:
            return tuple({self.of: rate} for rate in self.rates)
        (rate,) = outcome.ranked[0]  # one of `rates`, which are powers of ten
        exponent = round(math.log10(rate))
        powers = (exponent - 1, exponent)
        return tuple({self.of: float(f"{multiple}e{power}")} for power in powers for multiple in MULTIPLES)

    @property
    def rates(self) -> tuple[float, ...]:
        """Learning rates of round 0: the powers of ten between the ends of `coarse`, including both."""
        first, last = exponents(*self.coarse)
        return tuple(float(f"1e{exponent}") for exponent in range(first, last + 1))

    @property
    def bounds(self) -> dict[str, tuple[float, float]]:
        """Mapping from hyperparameters to the lowest and the highest value that round 0 tries."""
        return {self.of: self.coarse}

    @property
    def reach(self) -> dict[str, tuple[float, float]]:
        """Mapping from hyperparameters to the lowest and the highest value that round 1 may try."""
        low, high = self.coarse
        return {self.of: (MULTIPLES[0] * low / 10, MULTIPLES[-1] * high)}


class Axis(Document):
    """Interval of one hyperparameter in a search space; equal ends fix its value."""

    low: float
    high: float
    scale: Literal["log", "linear"]

    @model_validator(mode="after")
    def _interval(self) -> Axis:
        if self.low > self.high:
            raise ValueError(f"the space is empty: low = {self.low:g} is above high = {self.high:g}")
        if self.scale == "log" and self.low <= 0:
            raise ValueError(f"low = {self.low:g} has no logarithm; use a positive bound or scale: linear")
        return self

    def scaled(self, unit: np.ndarray) -> np.ndarray:
        """Map numbers in [0, 1] to the interval, on its linear or logarithmic scale.

        Args:
            unit: numbers in [0, 1], of any shape.
        """
        if self.scale == "log":
            values = np.exp(np.log(self.low) + unit * (np.log(self.high) - np.log(self.low)))
        else:
            values = self.low + unit * (self.high - self.low)
        # Because of rounding, exp(log(high)) may be slightly larger than `high`.
        return np.clip(values, self.low, self.high)

    def place(self, value: float) -> float:
        """Return the number that `scaled` maps to a value: 0 for the low end, 1 for the high end."""
        numbers = np.array([self.low, self.high, value])
        low, high, at = np.log(numbers) if self.scale == "log" else numbers
        return float((at - low) / (high - low))


class SpaceSearch(Protocol):
    """Base class of the protocols that search a space of hyperparameters.

    A method with more tuned hyperparameters tries more settings, so that the search is equally dense along
    each of them.

    Args:
        budget_per_dimension: number of settings for each tuned hyperparameter of a method.
        space: a mapping from tuned hyperparameters to the intervals that are searched.
        budget: number of settings of every method, in the plans of sets that were published before
            `budget_per_dimension` replaced this key; study files do not have it.
    """

    budget_per_dimension: Annotated[int | None, Field(ge=1, le=10_000, exclude_if=operator.not_)] = None
    space: Annotated[dict[str, Axis], Field(min_length=1)]
    budget: Annotated[int | None, OF_PLANS, BeforeValidator(_not_written)] = None

    @model_validator(mode="after")
    def _counted(self) -> SpaceSearch:
        if (self.budget_per_dimension is None) == (self.budget is None):
            raise ValueError("budget_per_dimension: is missing; add it")
        if "learning_rate" not in self.space:
            raise ValueError("space: learning_rate is missing; it has no default, so a search must cover it")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tuned hyperparameters, the learning rate first."""
        return tuple(sorted(self.space, key=lambda name: name != "learning_rate"))

    @property
    def bounds(self) -> dict[str, tuple[float, float]]:
        """Mapping from hyperparameters to the lowest and the highest value that the search may try."""
        return {name: (axis.low, axis.high) for name, axis in self.space.items()}

    @property
    def reach(self) -> dict[str, tuple[float, float]]:
        """Mapping from hyperparameters to the lowest and the highest value that any round may try."""
        return self.bounds

    @property
    def per_dimension(self) -> int:
        """Number of settings for each tuned hyperparameter.

        In plans that have the key `budget`, this is the number of settings for all hyperparameters together.
        """
        return self.budget_per_dimension or self.budget or 0

    @property
    def candidates(self) -> int:
        """Number of settings that the search tries.

        Hyperparameters whose interval has equal ends are not tuned, and do not count.
        """
        tuned = sum(axis.low < axis.high for axis in self.space.values()) if self.budget is None else 1
        return self.per_dimension * max(1, tuned)

    def points(self, unit: np.ndarray) -> tuple[Setting, ...]:
        """Return the settings at coordinates in the unit cube.

        Args:
            unit: coordinates in [0, 1], of shape (settings, hyperparameters). The columns are in the order of
                `names`.
        """
        columns = [self.space[name].scaled(unit[:, k]).tolist() for k, name in enumerate(self.names)]
        return tuple(dict(zip(self.names, row, strict=True)) for row in zip(*columns, strict=True))

    def spread(self, count: int, random: Generator) -> tuple[Setting, ...]:
        """Return the first `count` points of a Halton sequence, scrambled by `random` (Owen 2017)."""
        from scipy.stats import qmc

        return self.points(qmc.Halton(d=len(self.space), scramble=True, rng=random).random(count))


class Search(SpaceSearch):
    """A search with a fixed set of points, equal for every method.

    The points are independent and uniform (`random_search`), or the first points of a scrambled Halton
    sequence, which fills the space more evenly (`halton_search`; Halton 1960, scrambled as in Owen 2017).
    """

    protocol: Literal["random_search", "halton_search"]

    @property
    def searched(self) -> tuple[int, ...]:
        return (self.candidates,)

    def search(self, number: int, random: Generator, outcome: Outcome | None) -> tuple[Setting, ...]:
        """Return all points of the search, which has a single round.

        Args:
            number: number of the round, which is 0.
            random: the random generator of the study, which draws or scrambles the points.
            outcome: results of earlier rounds; always None, since there are no earlier rounds.
        """
        if self.protocol == "halton_search":
            return self.spread(self.candidates, random)
        return self.points(random.random((self.candidates, len(self.space))))


class SuccessiveHalving(SpaceSearch):
    """Tuning that tries many settings in short runs, then repeatedly the better half in runs twice as long.

    Source: Jamieson and Talwalkar (2016). With 8 settings and `halvings` 2, round 0 runs 8 settings for a
    quarter of the full length. Round 1 runs the best 4 settings of round 0 for half of the full length. Round
    2 runs the best 2 settings of round 1 for the full length, and the better of the 2 is chosen.

    All rounds cost the same, so that tuning a method costs (halvings + 1) / 2^halvings full runs for each
    setting, whatever the results are. Each round starts its runs from the beginning, since the learning-rate
    schedule depends on the length of a run.

    Args:
        halvings: how often the number of settings is halved. 2^halvings must divide `budget_per_dimension`,
            the length of a run, and the number of evaluations of a run.
    """

    protocol: Literal["successive_halving"]
    halvings: Positive

    @model_validator(mode="after")
    def _halved(self) -> SuccessiveHalving:
        if (count := self.per_dimension) % 2**self.halvings:
            raise ValueError(
                f"budget_per_dimension: {count} settings cannot be halved {self.halvings} times; "
                f"give a multiple of {2**self.halvings}, or fewer halvings"
            )
        return self

    @property
    def searched(self) -> tuple[int, ...]:
        return tuple(self.candidates // 2**number for number in range(self.halvings + 1))

    @property
    def shares(self) -> tuple[Fraction, ...]:
        return tuple(self.length / 2 ** (self.halvings - number) for number in range(self.halvings + 1))

    @property
    def trials(self) -> int:
        return self.candidates + len(self.also_try)

    def search(self, number: int, random: Generator, outcome: Outcome | None) -> tuple[Setting, ...]:
        """Return the settings of a round: points that fill the space, or the better half of the last round.

        Round 0 has settings that fill the space. Each later round has the better half of the settings of the
        round before. If the round before had too few distinct settings, its best settings are returned
        several times, so that every method gets the same number of runs.

        Args:
            number: number of the round, from 0.
            random: the random generator of the study, which scrambles the points of round 0.
            outcome: results of the round before; None before round 0.
        """
        if outcome is None:
            return self.spread(self.candidates, random)
        count = self.searched[number]
        best = (outcome.ranked * count)[:count]
        return tuple(dict(zip(self.names, setting, strict=True)) for setting in best)


class ParzenSearch(SpaceSearch):
    """Tuning by the tree-structured Parzen estimator of Optuna, which samples settings near the best ones.

    Source: Bergstra et al. (2011). The settings of round 0 fill the space. Each later round samples settings
    where the best settings so far are dense compared with all others. The estimator uses only the order of
    the settings, so that a setting whose loss became infinite is simply the worst.

    Args:
        at_once: number of settings in each round for each tuned hyperparameter, which must divide
            `budget_per_dimension`, so that every method has equally many rounds. A smaller number lets the
            estimator use more results for each setting. A larger number lets one program compute more runs
            together.
    """

    protocol: Literal["tpe"]
    at_once: Positive

    @model_validator(mode="after")
    def _in_rounds(self) -> ParzenSearch:
        if self.per_dimension % self.at_once:
            valid = [
                number for number in range(1, self.per_dimension + 1) if self.per_dimension % number == 0
            ]
            raise ValueError(
                f"at_once: {self.at_once} does not divide the budget of {self.per_dimension} settings; "
                f"valid: {', '.join(map(str, valid))}"
            )
        return self

    @property
    def searched(self) -> tuple[int, ...]:
        count = self.per_dimension // self.at_once
        return (self.candidates // count,) * count

    def search(self, number: int, random: Generator, outcome: Outcome | None) -> tuple[Setting, ...]:
        """Return the settings of a round: points that fill the space, or samples of the estimator.

        Round 0 has points that fill the space. The estimator samples the settings of each later round.

        Args:
            number: number of the round, from 0.
            random: the random generator of the study, equal in every round, which seeds the estimator.
            outcome: results of all rounds before; None before round 0.
        """
        count = self.searched[0]
        if outcome is None:
            return self.spread(count, random)
        import optuna

        # Optuna would otherwise print a line for each search.
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        seed = int(random.integers(2**31)) + number
        sampler = optuna.samplers.TPESampler(n_startup_trials=count, constant_liar=True, seed=seed)
        study = optuna.create_study(sampler=sampler)
        axes: dict[str, optuna.distributions.BaseDistribution] = {
            name: optuna.distributions.FloatDistribution(axis.low, axis.high, log=axis.scale == "log")
            for name, axis in self.space.items()
        }
        for rank, values in enumerate(outcome.ranked):
            params = dict(zip(self.names, values, strict=True))
            study.add_trial(optuna.create_trial(params=params, distributions=axes, value=float(rank)))
        sampled = [study.ask(axes).params for _ in range(count)]
        return tuple({name: params[name] for name in self.names} for params in sampled)


# Keys of a protocol that decide how the best setting is chosen.
# These keys have the same values at all scales of a study.
# All other keys of a protocol may differ between scales.
CRITERION = tuple(name for name in Protocol.model_fields if name != "length")
PROTOCOLS = (TwoStageSweep, Search, SuccessiveHalving, ParzenSearch)
Tuning = Annotated[TwoStageSweep | Search | SuccessiveHalving | ParzenSearch, Field(discriminator="protocol")]


class Tuned(Document):
    """A document whose only key is `tuning`, so that messages about errors in a protocol name this key."""

    tuning: Tuning


def power_of_ten(value: float) -> int | None:
    """Return the exponent k if `value` is 10^k, otherwise None."""
    if not (math.isfinite(value) and value > 0):
        return None
    exponent = round(math.log10(value))
    return exponent if value == float(f"1e{exponent}") else None


def exponents(low: float, high: float) -> tuple[int, int]:
    """Return the exponents of two powers of ten, the lowest and the highest learning rate of a grid.

    Raises:
        ValueError: when a bound is not a power of ten, or the grid between them would be empty.
    """
    first, last = power_of_ten(low), power_of_ten(high)
    if first is None or last is None:
        raise ValueError(f"{low if first is None else high:g} is not a power of ten such as 0.001, 1 or 100")
    if first > last:
        raise ValueError(f"the grid is empty: its lowest rate {low:g} is above its highest {high:g}")
    return first, last
