"""Tuning protocols: hyperparameters that are tuned, settings that each round tries, and how one is chosen."""

from __future__ import annotations

import math
import typing
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field, TypeAdapter, model_validator

from curvebench.spec.document import CriterionWords, Document, Positive, as_list, words
from curvebench.spec.method import IDENTITY

Ties = Literal["final", "best", "steps_to_stop", "steps_to_target"]
Setting = dict[str, float]  # values by hyperparameter
MULTIPLES = (2, 4, 8)  # 000 Sec. C.3, second step: doubling inside each power of ten
SIZES = ("protocol", "of", "coarse", "budget", "space")  # what a scale may have otherwise


class Outcome(typing.Protocol):
    """Results of the tuning rounds so far (`curvebench.results.tuning.Tried`)."""

    @property
    def chosen(self) -> tuple[float, ...]:
        """The setting that would be taken now: the values of the tuned hyperparameters in their order."""


def _as_list(value: Any) -> Any:
    return None if value is None else as_list(value)


class TieCriterion(Document):
    """What decides between settings that tie: `median steps_to_stop gradient_norm`."""

    statistic: Literal["median"]
    which: Ties
    metric: str


class Protocol(Document):
    """What all protocols have.

    Args:
        choose: the statistic over tuning seeds that the best setting has.
        floor: the value of it beyond which settings tie, such as what rounding leaves of a loss.
        ties: what decides between settings that tie; fewer steps are better.
        shared_across: whether the setting that the identity basis chooses serves all bases.
        tried_in: the labels of the bases that settings are tried in; None is all of them.
    """

    choose: CriterionWords
    floor: Annotated[float, Field(allow_inf_nan=False)] | None = None
    ties: (
        Annotated[
            TieCriterion,
            words(("statistic", "which", "metric"), example="median steps_to_stop gradient_norm"),
        ]
        | None
    ) = None
    shared_across: Literal["bases", "none"]
    tried_in: Annotated[
        Annotated[tuple[str, ...], Field(strict=False, min_length=1)] | None, BeforeValidator(_as_list)
    ] = None

    @model_validator(mode="after")
    def _ties_apart(self) -> Protocol:
        ties = self.ties
        if ties is None and self.floor is not None:
            raise ValueError("ties: is missing; say what decides between settings that tie at the floor")
        if ties is not None and (ties.which, ties.metric) == (self.choose.which, self.choose.metric):
            raise ValueError("ties: is what settings tie by; give another criterion")
        return self

    def sized(self, given: Mapping[str, Any]) -> TwoStageSweep | Search:
        """The protocol with other settings to try: its criterion stays.

        Args:
            given: `coarse`, `budget` or `space`; with another `protocol` all that it has of its own.

        Raises:
            ValueError: for keys that are no size, and values that the protocol does not take.
        """
        if not given:
            return self  # type: ignore[return-value]  # one of the two
        if wrong := given.keys() - SIZES:
            raise ValueError(f"{min(wrong)}: is of the study's tuning; here are {', '.join(SIZES)}")
        kept = dict(self)
        if given.get("protocol", kept["protocol"]) != kept["protocol"]:
            kept = {name: kept[name] for name in Protocol.model_fields}
        found: TwoStageSweep | Search = TypeAdapter(Tuning).validate_python({**kept, **given})
        return found

    @property
    def rounds(self) -> tuple[int, ...]:
        """The number of settings that each tuning round tries; the final seeds are the round after."""
        raise NotImplementedError

    @property
    def trials(self) -> int:
        """The number of settings that every method may try with each workload and basis."""
        return sum(self.rounds)

    def tries(self, basis: str) -> bool:
        """Whether settings are tried in a basis."""
        return self.tried_in is None or basis in self.tried_in

    def chooser(self, basis: str) -> str:
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
        (rate,) = outcome.chosen
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


class Search(Protocol):
    """A search with a fixed number of points, the same for every method.

    They are independent and uniform, or the first ones of a scrambled Halton sequence, which fills the space
    more evenly (Halton 1960, scrambled as in Owen 2017).
    """

    protocol: Literal["random_search", "halton_search"]
    budget: Positive
    space: Annotated[dict[str, Axis], Field(min_length=1)]

    @model_validator(mode="after")
    def _rate(self) -> Search:
        if "learning_rate" not in self.space:
            raise ValueError("space: learning_rate is missing; it has no default, so a search must cover it")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The hyperparameters that are tuned, the learning rate first."""
        return tuple(sorted(self.space, key=lambda name: name != "learning_rate"))

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
            from scipy.stats import qmc

            unit = qmc.Halton(d=len(self.space), scramble=True, rng=random).random(self.budget)
        else:
            unit = random.random((self.budget, len(self.space)))
        columns = {name: self.space[name].scaled(unit[:, k]) for k, name in enumerate(self.names)}
        return tuple(
            {name: float(column[row]) for name, column in columns.items()} for row in range(self.budget)
        )

    @property
    def bounds(self) -> dict[str, tuple[float, float]]:
        """The lowest and the highest value that is tried, by hyperparameter."""
        return {name: (axis.low, axis.high) for name, axis in self.space.items()}


Tuning = Annotated[TwoStageSweep | Search, Field(discriminator="protocol")]


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
