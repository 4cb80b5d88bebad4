"""Tuning protocols: hyperparameters that are tuned, settings that each round tries, and how one is chosen."""

from __future__ import annotations

import math
import typing
from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from curvebench.spec.document import CriterionWords, Document, Positive, as_list, words
from curvebench.spec.method import IDENTITY, OptimizerSpec

TieValue = Literal["final", "best", "steps_to_stop", "steps_to_target"]
Setting = dict[str, float]  # values by hyperparameter
MULTIPLES = (2, 4, 8)  # 000 Sec. C.3, second step: doubling inside each power of ten


class Outcome(typing.Protocol):
    """Results of the tuning rounds so far (`curvebench.results.tuning.TuningOutcome`)."""

    @property
    def ranked(self) -> tuple[tuple[float, ...], ...]:
        """All settings whose runs can be compared, the best first: values in the order of `names`."""


def _as_list(value: Any) -> Any:
    return None if value is None else as_list(value)


def _share(value: Any) -> Any:
    try:
        share = Fraction(str(value))  # 0.2 is a fifth, as it is written
    except (ValueError, ZeroDivisionError):
        share = Fraction()
    if not 0 < share <= 1:
        raise ValueError(f"{value!r} is no share above 0 and up to 1, such as 1/4")
    return share


class TieCriterion(Document):
    """What decides between settings that tie: `median steps_to_stop gradient_norm`."""

    statistic: Literal["median"]
    which: TieValue
    metric: str


class Protocol(Document):
    """What all protocols have: how the best setting is chosen.

    A protocol is a class of this module that says how many settings each of its `rounds` tries, and which
    (`settings`). It joins `Tuning` below, and the words for it on pages are in
    reports/templates/setting.jinja.

    Args:
        choose: the statistic over tuning seeds that the best setting has.
        floor: the value of it beyond which settings tie, such as what rounding leaves of a loss.
        tie_break: what decides between settings that tie; fewer steps are better.
        shared_across: whether the setting that the identity basis chooses serves all bases.
        tuned_bases: the labels of the bases that settings are tried in; None is all of them.
        length: the length of the runs that tune, as a share of the length of final runs; a schedule is over
            the run's own length.
    """

    choose: CriterionWords
    floor: Annotated[float, Field(allow_inf_nan=False)] | None = None
    tie_break: (
        Annotated[
            TieCriterion,
            words(("statistic", "which", "metric"), example="median steps_to_stop gradient_norm"),
        ]
        | None
    ) = None
    shared_across: Literal["bases", "none"]
    tuned_bases: Annotated[
        Annotated[tuple[str, ...], Field(strict=False, min_length=1)] | None, BeforeValidator(_as_list)
    ] = None
    length: Annotated[Fraction, BeforeValidator(_share)] = Fraction(1)

    @model_validator(mode="after")
    def _ties_apart(self) -> Protocol:
        ties = self.tie_break
        if ties is None and self.floor is not None:
            raise ValueError("tie_break: is missing; say what decides between settings that tie at the floor")
        if ties is not None and (ties.which, ties.metric) == (self.choose.which, self.choose.metric):
            raise ValueError("tie_break: is what settings tie by; give another criterion")
        return self

    def sized(self, given: Mapping[str, Any]) -> Tuning:
        """The protocol with other settings to try: its criterion stays.

        Args:
            given: keys that are no part of the criterion; with another `protocol` all that it has of its own.

        Raises:
            ValueError: for keys that are no size, and values that the protocol does not take.
        """
        if not given:
            return self  # type: ignore[return-value]  # one of the protocols
        sizes = dict.fromkeys(name for protocol in PROTOCOLS for name in protocol.model_fields)
        valid = [name for name in sizes if name not in CRITERION]
        if wrong := given.keys() - set(valid):
            raise ValueError(f"{min(wrong)}: is of the study's tuning; here are {', '.join(valid)}")
        kept = dict(self)
        if given.get("protocol", kept["protocol"]) != kept["protocol"]:
            kept = {name: kept[name] for name in CRITERION}
        return Tuned(tuning={**kept, **given}).tuning  # type: ignore[arg-type]  # it is validated

    def for_optimizer(self, optimizer: OptimizerSpec) -> Tuning:
        """The protocol for an optimizer: its search space may be its own, its budget is that of all."""
        return self.sized({"space": dict(optimizer.space)} if optimizer.space else {})

    @property
    def rounds(self) -> tuple[int, ...]:
        """The number of settings that each tuning round tries; the final seeds are the round after."""
        raise NotImplementedError

    @property
    def shares(self) -> tuple[Fraction, ...]:
        """The length of each round's runs as a share of the length of final runs."""
        return (self.length,) * len(self.rounds)

    @property
    def compared_settings(self) -> int:
        """The number of settings in the rounds with the longest runs: only their results can be compared."""
        shares = self.shares
        return sum(n for n, share in zip(self.rounds, shares, strict=True) if share == max(shares))

    @property
    def trials(self) -> int:
        """The number of settings that every method may try with each workload and basis."""
        return sum(self.rounds)

    @property
    def cost(self) -> Fraction:
        """The length of all tuning runs of a seed, in lengths of a final run: the same for every method."""
        return sum((share * count for share, count in zip(self.shares, self.rounds, strict=True)), Fraction())

    def check_lengths(self, budget: Mapping[str, int], evaluations: int) -> None:
        """Check that the runs of every round have whole numbers of epochs or steps, and of evaluations.

        Args:
            budget: the length of a final run, `{"epochs": n}` or `{"steps": n}`.
            evaluations: the number of evaluations of a final run.

        Raises:
            ValueError: when they do not.
        """
        for share in self.shares:
            for unit, count in {**budget, "evaluations": evaluations}.items():
                if (share * count).denominator > 1:
                    raise ValueError(
                        f"runs of {share} of the length would have {share} of {count} {unit}, which is no "
                        f"whole number; give a multiple of {share.denominator}"
                    )

    def tries(self, basis: str) -> bool:
        """Whether settings are tried in a basis."""
        return self.tuned_bases is None or basis in self.tuned_bases

    def tuning_basis(self, basis: str) -> str:
        """The basis whose runs choose a basis's setting: where it is shared, the identity for all."""
        return IDENTITY if self.shared_across == "bases" else basis


class TwoStageSweep(Protocol):
    """Powers of ten, then doublings around the best of them (000 Sec. C.3)."""

    protocol: Literal["two_stage_sweep"]
    of: Literal["learning_rate"]
    coarse: Annotated[tuple[float, float], Field(strict=False)]

    @model_validator(mode="after")
    def _grid(self) -> TwoStageSweep:
        exponents(*self.coarse)
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The hyperparameters that are tuned."""
        return (self.of,)

    @property
    def rounds(self) -> tuple[int, ...]:
        return len(self.rates), 2 * len(MULTIPLES)

    def settings(
        self, number: int, random: np.random.Generator, outcome: Outcome | None
    ) -> tuple[Setting, ...]:
        """Return the powers of ten in round 0, and in round 1 the doublings around the best of them.

        The bounds of round 1 lie one power of ten around the best rate, and rates of round 0 are not run
        again. Where the best rate is at the edge of the grid, round 1 leaves the grid without its outer
        bound, so that every method gets the same number of rates.

        Args:
            number: of the round, from 0.
            random: the generator of the study; nothing is random here.
            outcome: results of round 0; None before it.
        """
        if outcome is None:
            return tuple({self.of: rate} for rate in self.rates)
        (rate,) = outcome.ranked[0]
        exponent = power_of_ten(rate)
        if exponent is None:
            raise ValueError(f"the coarse rate {rate:g} is not a power of ten")
        around = (exponent - 1, exponent)
        return tuple({self.of: float(f"{multiple}e{one}")} for one in around for multiple in MULTIPLES)

    @property
    def rates(self) -> tuple[float, ...]:
        """The powers of ten of the coarse sweep, both bounds included (000 Sec. C.3, first step)."""
        first, last = exponents(*self.coarse)
        return tuple(float(f"1e{exponent}") for exponent in range(first, last + 1))

    @property
    def bounds(self) -> dict[str, tuple[float, float]]:
        """The lowest and the highest value that is tried, by hyperparameter."""
        return {self.of: self.coarse}


class Axis(Document):
    """The interval of one hyperparameter in a search space; with equal ends its one value."""

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
        """Points of the interval by their places in [0, 1], in its linear or logarithmic scale."""
        if self.scale == "log":
            values = np.exp(np.log(self.low) + unit * (np.log(self.high) - np.log(self.low)))
        else:
            values = self.low + unit * (self.high - self.low)
        clipped: np.ndarray = np.clip(values, self.low, self.high)  # rounding may leave it by one digit
        return clipped


class SpaceSearch(Protocol):
    """What all searches of a space have: the space, and a number of settings that is equal for every method.

    Args:
        budget: the number of settings that every method tries.
        space: the interval of each tuned hyperparameter, by name.
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
        """The hyperparameters that are tuned, the learning rate first."""
        return tuple(sorted(self.space, key=lambda name: name != "learning_rate"))

    @property
    def bounds(self) -> dict[str, tuple[float, float]]:
        """The lowest and the highest value that is tried, by hyperparameter."""
        return {name: (axis.low, axis.high) for name, axis in self.space.items()}

    def points(self, unit: np.ndarray) -> tuple[Setting, ...]:
        """Return the settings at places of the unit cube, shape (settings, hyperparameters)."""
        columns = {name: self.space[name].scaled(unit[:, k]) for k, name in enumerate(self.names)}
        return tuple(
            {name: float(column[row]) for name, column in columns.items()} for row in range(len(unit))
        )

    def spread(self, count: int, random: np.random.Generator) -> tuple[Setting, ...]:
        """Return the first points of a Halton sequence, scrambled by `random` (Owen 2017)."""
        from scipy.stats import qmc

        return self.points(qmc.Halton(d=len(self.space), scramble=True, rng=random).random(count))


class Search(SpaceSearch):
    """A search with a fixed number of points, the same for every method.

    They are independent and uniform, or the first ones of a scrambled Halton sequence, which fills the space
    more evenly (Halton 1960, scrambled as in Owen 2017).
    """

    protocol: Literal["random_search", "halton_search"]

    @property
    def rounds(self) -> tuple[int, ...]:
        return (self.budget,)

    def settings(
        self, number: int, random: np.random.Generator, outcome: Outcome | None
    ) -> tuple[Setting, ...]:
        """Return all points of the search, which has one round.

        Args:
            number: of the round, 0.
            random: the generator of the study, which draws or scrambles the points.
            outcome: results of earlier rounds, of which there are none.
        """
        if self.protocol == "halton_search":
            return self.spread(self.budget, random)
        return self.points(random.random((self.budget, len(self.space))))


class SuccessiveHalving(SpaceSearch):
    """Many settings on a small share of a run's length, and each time the better half on twice the length.

    Hopeless settings stop early: with `budget` 8 and `halvings` 2, 8 settings are run for a quarter of the
    length, the best 4 of them for half of it, and the best 2 of those for all of it. Each round costs as much
    as every other, so that a method's tuning takes (halvings + 1) budget / 2^halvings whole runs, whatever
    the results are. A round starts its runs anew, since a schedule depends on their length. The last round
    alone chooses: results of shorter runs say only which settings go on (Jamieson and Talwalkar 2016).

    Args:
        halvings: how often the settings are halved; 2^halvings divides the budget, the length of a run and
            its evaluations.
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

    def settings(
        self, number: int, random: np.random.Generator, outcome: Outcome | None
    ) -> tuple[Setting, ...]:
        """Return points that fill the space in round 0, and later the best half of the round before.

        Where the round before has fewer different settings than that, the best ones are run several times:
        every method gets the same number of runs.

        Args:
            number: of the round, from 0.
            random: the generator of the study, which scrambles the points of round 0.
            outcome: results of the round before; None before round 0.
        """
        if outcome is None:
            return self.spread(self.budget, random)
        count = self.rounds[number]
        best = (outcome.ranked * count)[:count]
        return tuple(dict(zip(self.names, setting, strict=True)) for setting in best)


class ParzenSearch(SpaceSearch):
    """Settings near the good ones so far: Optuna's tree-structured Parzen estimator (Bergstra et al. 2011).

    Round 0 fills the space. Each later round draws settings where the ones that are good so far are dense
    compared with the others. Only the order of the settings counts, so that runs which diverged, whose loss
    is infinite, are simply the worst.

    Args:
        at_once: the number of settings of each round, which divides the budget: fewer learn from more
            results, and more advance together in one program.
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

    def settings(
        self, number: int, random: np.random.Generator, outcome: Outcome | None
    ) -> tuple[Setting, ...]:
        """Return points that fill the space in round 0, and later those that the estimator draws.

        Args:
            number: of the round, from 0.
            random: the generator of the study, equal in every round, which seeds the estimator.
            outcome: results of all rounds before; None before round 0.
        """
        if outcome is None:
            return self.spread(self.at_once, random)
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)  # else each study is announced
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
        drawn = [study.ask(axes).params for _ in range(self.at_once)]
        return tuple({name: params[name] for name in self.names} for params in drawn)


CRITERION = tuple(name for name in Protocol.model_fields if name != "length")  # of a study, at any scale
PROTOCOLS = (TwoStageSweep, Search, SuccessiveHalving, ParzenSearch)
Tuning = Annotated[TwoStageSweep | Search | SuccessiveHalving | ParzenSearch, Field(discriminator="protocol")]


class Tuned(Document):
    """A document with a protocol alone, so that an error in it names the key `tuning`."""

    tuning: Tuning


def power_of_ten(value: float) -> int | None:
    """The exponent k when `value` is the number 10^k, else None."""
    if not (math.isfinite(value) and value > 0):
        return None
    exponent = round(math.log10(value))
    return exponent if value == float(f"1e{exponent}") else None


def exponents(low: float, high: float) -> tuple[int, int]:
    """Those of two powers of ten.

    Raises:
        ValueError: when a bound is no power of ten or the grid between them would be empty.
    """
    first, last = power_of_ten(low), power_of_ten(high)
    if first is None or last is None:
        raise ValueError(f"{low if first is None else high:g} is not a power of ten such as 0.001, 1 or 100")
    if first > last:
        raise ValueError(f"the grid is empty: its lowest rate {low:g} is above its highest {high:g}")
    return first, last
