"""Tuning protocols: the tuned hyperparameters, the settings of each round, and the choice among them."""

from __future__ import annotations

import math
import typing
from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any, Literal

import numpy as np
from numpy.random import Generator
from pydantic import BeforeValidator, Field, model_validator

from curvebench.spec.document import CriterionWords, Document, Names, Positive, as_list, words
from curvebench.spec.method import IDENTITY, OptimizerSpec

TieValue = Literal["final", "best", "steps_to_stop", "steps_to_target"]
# Value of each tuned hyperparameter, by its name
Setting = dict[str, float]
# The second step of the sweep doubles rates inside each power of ten (000 Sec. C.3).
MULTIPLES = (2, 4, 8)


class Outcome(typing.Protocol):
    """Results of the tuning rounds so far (`curvebench.results.tuning.TuningOutcome`)."""

    @property
    def ranked(self) -> tuple[tuple[float, ...], ...]:
        """All settings whose runs can be compared, the best first: values in the order of `names`."""


def _as_list(value: Any) -> Any:
    return None if value is None else as_list(value)


def _share(value: Any) -> Any:
    try:
        # A fraction of the text: 0.2 is exactly a fifth, which a float is not.
        share = Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        share = Fraction()
    if not 0 < share <= 1:
        raise ValueError(f"{value!r} is not a fraction above 0 and at most 1, such as 1/4")
    return share


class TieCriterion(Document):
    """The criterion that decides between settings that tie: `median steps_to_stop gradient_norm`."""

    statistic: Literal["median"]
    which: TieValue
    metric: str


TieWords = Annotated[TieCriterion, words("statistic which metric", "median steps_to_stop gradient_norm")]


class Protocol(Document):
    """Base class of the tuning protocols: how the best setting is chosen, and which runs that takes.

    A protocol is a class of this module that defines the number of settings of each tuning round (`rounds`)
    and the settings themselves (`settings`), given the results of the rounds before. It joins the union
    `Tuning` below; reports/templates/setting.jinja has its words on pages.

    Args:
        choose: statistic over tuning seeds by which the best setting is chosen.
        floor: value of this statistic beyond which settings tie, such as the rounding error of a loss.
        tie_break: criterion that decides between settings that tie; fewer steps are better.
        shared_across: `bases` if the setting chosen in the identity basis serves all bases, otherwise `none`.
        tuned_bases: labels of the bases in which settings are tried; None for all bases.
        length: length of tuning runs as a fraction of the length of final runs. Schedules extend over the
            length of the run itself.
    """

    choose: CriterionWords
    floor: Annotated[float, Field(allow_inf_nan=False)] | None = None
    tie_break: TieWords | None = None
    shared_across: Literal["bases", "none"]
    tuned_bases: Annotated[Names | None, BeforeValidator(_as_list)] = None
    length: Annotated[Fraction, BeforeValidator(_share)] = Fraction(1)

    @model_validator(mode="after")
    def _ties_apart(self) -> Protocol:
        ties = self.tie_break
        if ties is None and self.floor is not None:
            raise ValueError("tie_break: is missing; say what decides between settings that tie at the floor")
        if ties is not None and (ties.which, ties.metric) == (self.choose.which, self.choose.metric):
            raise ValueError("tie_break: is the criterion by which settings tie; give another one")
        return self

    def sized(self, sizes: Mapping[str, Any]) -> Tuning:
        """Return the protocol with other settings to try, and the same criterion.

        Args:
            sizes: keys of the protocol other than those of the criterion (`CRITERION`). With another
                `protocol`, all keys that it requires.

        Raises:
            ValueError: for keys of the criterion or of no protocol, and for invalid values.
        """
        if not sizes:
            return self  # type: ignore[return-value]  # a member of the union
        names = dict.fromkeys(name for protocol in PROTOCOLS for name in protocol.model_fields)
        valid = [name for name in names if name not in CRITERION]
        if wrong := sizes.keys() - set(valid):
            raise ValueError(f"{min(wrong)}: must be the same at all scales; valid here: {', '.join(valid)}")
        keys = dict(self)
        if sizes.get("protocol", keys["protocol"]) != keys["protocol"]:
            keys = {name: keys[name] for name in CRITERION}
        return Tuned(tuning={**keys, **sizes}).tuning  # type: ignore[arg-type]  # it is validated

    def for_optimizer(self, optimizer: OptimizerSpec) -> Tuning:
        """Return the protocol for an optimizer, with the optimizer's own search space if it has one."""
        return self.sized({"space": dict(optimizer.space)} if optimizer.space else {})

    @property
    def rounds(self) -> tuple[int, ...]:
        """Number of settings that each tuning round tries. The final seeds run in one more round."""
        raise NotImplementedError

    @property
    def shares(self) -> tuple[Fraction, ...]:
        """Length of the runs of each round as a fraction of the length of final runs."""
        return (self.length,) * len(self.rounds)

    @property
    def compared_settings(self) -> int:
        """Number of settings in the rounds with the longest runs. Only results of these can be compared."""
        shares = self.shares
        return sum(n for n, share in zip(self.rounds, shares, strict=True) if share == max(shares))

    @property
    def trials(self) -> int:
        """Number of settings that every method may try on each workload and in each basis."""
        return sum(self.rounds)

    @property
    def cost(self) -> Fraction:
        """Length of all tuning runs of a seed, in lengths of a final run; the same for every method."""
        return sum((share * count for share, count in zip(self.shares, self.rounds, strict=True)), Fraction())

    def check_lengths(self, budget: Mapping[str, int], evaluations: int) -> None:
        """Check that runs of every round have whole numbers of epochs or steps, and of evaluations.

        Args:
            budget: the length of a final run, `{"epochs": n}` or `{"steps": n}`.
            evaluations: the number of evaluations of a final run.

        Raises:
            ValueError: when a number is not whole.
        """
        for share in self.shares:
            for unit, count in {**budget, "evaluations": evaluations}.items():
                if (share * count).denominator > 1:
                    raise ValueError(
                        f"runs of {share} of the length would have {share} of {count} {unit}, which is no "
                        f"whole number; give a multiple of {share.denominator}"
                    )

    def tries(self, basis: str) -> bool:
        """Return whether settings are tried in a basis."""
        return self.tuned_bases is None or basis in self.tuned_bases

    def tuning_basis(self, basis: str) -> str:
        """Return the basis in which the setting of a basis is chosen: the identity if all share a setting."""
        return IDENTITY if self.shared_across == "bases" else basis


class TwoStageSweep(Protocol):
    """A sweep over powers of ten, then over doublings around the best of them (000 Sec. C.3)."""

    protocol: Literal["two_stage_sweep"]
    of: Literal["learning_rate"]
    coarse: Annotated[tuple[float, float], Field(strict=False)]

    @model_validator(mode="after")
    def _grid(self) -> TwoStageSweep:
        exponents(*self.coarse)
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The tuned hyperparameters."""
        return (self.of,)

    @property
    def rounds(self) -> tuple[int, ...]:
        return len(self.rates), 2 * len(MULTIPLES)

    def settings(self, number: int, random: Generator, outcome: Outcome | None) -> tuple[Setting, ...]:
        """Return the powers of ten in round 0, and in round 1 the doublings around the best of them.

        Round 1 covers the interval from a tenth of the best rate to ten times it, without rates of round 0.
        If the best rate is at the edge of the grid, round 1 leaves the grid, but its outer bound is not
        tried, so that every method gets the same number of rates.

        Args:
            number: of the round, from 0.
            random: the random generator of the study, which is not used.
            outcome: results of round 0; None before round 0.
        """
        if outcome is None:
            return tuple({self.of: rate} for rate in self.rates)
        (rate,) = outcome.ranked[0]
        exponent = power_of_ten(rate)
        if exponent is None:
            raise ValueError(f"the coarse rate {rate:g} is not a power of ten")
        powers = (exponent - 1, exponent)
        return tuple({self.of: float(f"{multiple}e{power}")} for power in powers for multiple in MULTIPLES)

    @property
    def rates(self) -> tuple[float, ...]:
        """Powers of ten of the coarse sweep, including both bounds (000 Sec. C.3, first step)."""
        first, last = exponents(*self.coarse)
        return tuple(float(f"1e{exponent}") for exponent in range(first, last + 1))

    @property
    def bounds(self) -> dict[str, tuple[float, float]]:
        """The lowest and the highest value of the first round, by hyperparameter."""
        return {self.of: self.coarse}


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
        """Map coordinates in [0, 1] to the interval, on its linear or logarithmic scale."""
        if self.scale == "log":
            values = np.exp(np.log(self.low) + unit * (np.log(self.high) - np.log(self.low)))
        else:
            values = self.low + unit * (self.high - self.low)
        # Rounding may move an end of the interval out of it by one digit.
        return np.clip(values, self.low, self.high)


class SpaceSearch(Protocol):
    """Base class of the protocols that search a space, with the same number of settings for every method.

    Args:
        budget: number of settings that every method tries.
        space: interval of each tuned hyperparameter, by name.
    """

    budget: Annotated[int, Field(ge=1, le=10_000)]
    space: Annotated[dict[str, Axis], Field(min_length=1)]

    @model_validator(mode="after")
    def _rate(self) -> SpaceSearch:
        if "learning_rate" not in self.space:
            raise ValueError("space: learning_rate is missing; it has no default, so a search must cover it")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The tuned hyperparameters, the learning rate first."""
        return tuple(sorted(self.space, key=lambda name: name != "learning_rate"))

    @property
    def bounds(self) -> dict[str, tuple[float, float]]:
        """The lowest and the highest value that may be tried, by hyperparameter."""
        return {name: (axis.low, axis.high) for name, axis in self.space.items()}

    def points(self, unit: np.ndarray) -> tuple[Setting, ...]:
        """Return the settings at coordinates in the unit cube.

        Args:
            unit: of shape (settings, hyperparameters), columns in the order of `names`.
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
    def rounds(self) -> tuple[int, ...]:
        return (self.budget,)

    def settings(self, number: int, random: Generator, outcome: Outcome | None) -> tuple[Setting, ...]:
        """Return all points of the search, which has a single round.

        Args:
            number: of the round, 0.
            random: the random generator of the study, which draws or scrambles the points.
            outcome: results of earlier rounds; None here.
        """
        if self.protocol == "halton_search":
            return self.spread(self.budget, random)
        return self.points(random.random((self.budget, len(self.space))))


class SuccessiveHalving(SpaceSearch):
    """Many settings on a small fraction of a run's length, then repeatedly the better half on more of it.

    Poor settings stop early. With `budget` 8 and `halvings` 2, 8 settings run for a quarter of the length,
    the best 4 of them for half of it, and the best 2 of these for the full length. All rounds cost the same,
    so that tuning a method takes (halvings + 1) budget / 2^halvings full runs, whatever the results are. Each
    round restarts its runs from the beginning, since a schedule depends on the length of a run. Only the last
    round chooses the setting; results of shorter runs decide which settings continue (Jamieson and Talwalkar
    2016).

    Args:
        halvings: how often the number of settings is halved. 2^halvings must divide the budget, the length of
            a run and its number of evaluations.
    """

    protocol: Literal["successive_halving"]
    halvings: Positive

    @model_validator(mode="after")
    def _halved(self) -> SuccessiveHalving:
        if self.budget % 2**self.halvings:
            raise ValueError(
                f"budget: {self.budget} settings cannot be halved {self.halvings} times; "
                f"give a multiple of {2**self.halvings}, or fewer halvings"
            )
        return self

    @property
    def rounds(self) -> tuple[int, ...]:
        return tuple(self.budget // 2**number for number in range(self.halvings + 1))

    @property
    def shares(self) -> tuple[Fraction, ...]:
        return tuple(self.length / 2 ** (self.halvings - number) for number in range(self.halvings + 1))

    @property
    def trials(self) -> int:
        return self.budget

    def settings(self, number: int, random: Generator, outcome: Outcome | None) -> tuple[Setting, ...]:
        """Return points that fill the space in round 0, and later the best half of the round before.

        If the round before has fewer distinct settings than required, the best of them run several times, so
        that every method gets the same number of runs.

        Args:
            number: of the round, from 0.
            random: the random generator of the study, which scrambles the points of round 0.
            outcome: results of the round before; None before round 0.
        """
        if outcome is None:
            return self.spread(self.budget, random)
        count = self.rounds[number]
        best = (outcome.ranked * count)[:count]
        return tuple(dict(zip(self.names, setting, strict=True)) for setting in best)


class ParzenSearch(SpaceSearch):
    """Settings near the best so far: the tree-structured Parzen estimator of Optuna (Bergstra et al. 2011).

    Round 0 fills the space. Each later round samples settings where good results are dense compared with the
    other results. Only the order of the settings counts, so that runs that diverged, whose loss is infinite,
    are simply the worst.

    Args:
        at_once: number of settings in each round, which must divide the budget. With fewer settings a round,
            each learns from more results; with more, more runs advance together in one program.
    """

    protocol: Literal["tpe"]
    at_once: Positive

    @model_validator(mode="after")
    def _in_rounds(self) -> ParzenSearch:
        if self.budget % self.at_once:
            valid = [number for number in range(1, self.budget + 1) if self.budget % number == 0]
            raise ValueError(
                f"at_once: {self.at_once} does not divide the budget of {self.budget} settings; "
                f"valid: {', '.join(map(str, valid))}"
            )
        return self

    @property
    def rounds(self) -> tuple[int, ...]:
        return (self.at_once,) * (self.budget // self.at_once)

    def settings(self, number: int, random: Generator, outcome: Outcome | None) -> tuple[Setting, ...]:
        """Return points that fill the space in round 0, and later points sampled by the estimator.

        Args:
            number: of the round, from 0.
            random: the random generator of the study, equal in every round, which seeds the estimator.
            outcome: results of all rounds before; None before round 0.
        """
        if outcome is None:
            return self.spread(self.at_once, random)
        import optuna

        # Otherwise Optuna prints a line for each study.
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        seed = int(random.integers(2**31)) + number
        sampler = optuna.samplers.TPESampler(n_startup_trials=self.at_once, constant_liar=True, seed=seed)
        study = optuna.create_study(sampler=sampler)
        axes: dict[str, optuna.distributions.BaseDistribution] = {
            name: optuna.distributions.FloatDistribution(axis.low, axis.high, log=axis.scale == "log")
            for name, axis in self.space.items()
        }
        for rank, values in enumerate(outcome.ranked):
            params = dict(zip(self.names, values, strict=True))
            study.add_trial(optuna.create_trial(params=params, distributions=axes, value=float(rank)))
        sampled = [study.ask(axes).params for _ in range(self.at_once)]
        return tuple({name: params[name] for name in self.names} for params in sampled)


# Keys that are the same at all scales of a study; the other keys of a protocol may differ.
CRITERION = tuple(name for name in Protocol.model_fields if name != "length")
PROTOCOLS = (TwoStageSweep, Search, SuccessiveHalving, ParzenSearch)
Tuning = Annotated[TwoStageSweep | Search | SuccessiveHalving | ParzenSearch, Field(discriminator="protocol")]


class Tuned(Document):
    """A document whose only key is the protocol, so that messages for errors in it begin with `tuning`."""

    tuning: Tuning


def power_of_ten(value: float) -> int | None:
    """Return the exponent k if `value` is 10^k, otherwise None."""
    if not (math.isfinite(value) and value > 0):
        return None
    exponent = round(math.log10(value))
    return exponent if value == float(f"1e{exponent}") else None


def exponents(low: float, high: float) -> tuple[int, int]:
    """Return the exponents of two powers of ten, the bounds of a grid.

    Raises:
        ValueError: when a bound is not a power of ten, or the grid between them would be empty.
    """
    first, last = power_of_ten(low), power_of_ten(high)
    if first is None or last is None:
        raise ValueError(f"{low if first is None else high:g} is not a power of ten such as 0.001, 1 or 100")
    if first > last:
        raise ValueError(f"the grid is empty: its lowest rate {low:g} is above its highest {high:g}")
    return first, last
