"""Tuning protocols as pure functions: which settings to try, and which of them to choose."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.seeding import generator
from results.methods import IDENTITY

if TYPE_CHECKING:
    import polars as pl

Setting = Mapping[str, float]
Group = tuple[str, str]  # workload, basis that chooses
FINISHED = ("reached", "budget")
REFINED_RATES = 6  # new rates of the refined sweep, the same number for every method
MULTIPLES = (1, 2, 4, 8)  # 000 Sec. C.3: doubling inside each power of ten


def power_of_ten(value: float) -> int | None:
    """The exponent k when `value` is the number 10^k, else None."""
    if not (math.isfinite(value) and value > 0):
        return None
    exponent = round(math.log10(value))
    return exponent if value == float(f"1e{exponent}") else None


def coarse_rates(low: float, high: float) -> tuple[float, ...]:
    """The powers of ten from `low` to `high`, both included (000 Sec. C.3, first step).

    Raises:
        ValueError: when a bound is no power of ten or the grid would be empty.
    """
    first, last = _exponents(low, high)
    return tuple(float(f"1e{exponent}") for exponent in range(first, last + 1))


def refined_rates(lower: float, upper: float) -> tuple[float, ...]:
    """The rates between two powers of ten by doubling (000 Sec. C.3, second step).

    From 0.01 to 1: 0.01, 0.02, 0.04, 0.08, 0.1, 0.2, 0.4, 0.8, 1.

    Raises:
        ValueError: when a bound is no power of ten or the grid would be empty.
    """
    first, last = _exponents(lower, upper)
    inside = [float(f"{multiple}e{exponent}") for exponent in range(first, last) for multiple in MULTIPLES]
    return (*inside, float(f"1e{last}"))


def _exponents(low: float, high: float) -> tuple[int, int]:
    first, last = power_of_ten(low), power_of_ten(high)
    if first is None or last is None:
        raise ValueError(f"{low if first is None else high:g} is not a power of ten such as 0.001, 1 or 100")
    if first > last:
        raise ValueError(f"the grid is empty: its lowest rate {low:g} is above its highest {high:g}")
    return first, last


def refine(runs: pl.DataFrame, tuning: Mapping[str, Any]) -> dict[Group, tuple[Setting, ...]]:
    """The new settings of the refined sweep, six for each workload and basis that chooses.

    The bounds lie one power of ten around the best coarse rate; rates of the coarse sweep are not run
    again. Where the best rate is at the edge of the coarse grid the refined one leaves the grid, without
    its outer bound, so that every method gets the same number of rates.

    Args:
        runs: the coarse sweep of one optimizer (results.schema.RUNS).
        tuning: the study's protocol, resolved (`Study.tuning`).
    """
    return {group: _around(setting["learning_rate"]) for group, setting in choose(runs, tuning).items()}


def _around(rate: float) -> tuple[Setting, ...]:
    exponent = power_of_ten(rate)
    if exponent is None:
        raise ValueError(f"the coarse rate {rate:g} is not a power of ten")
    rates = refined_rates(float(f"1e{exponent - 1}"), float(f"1e{exponent + 1}"))
    return tuple({"learning_rate": rate} for rate in rates if power_of_ten(rate) is None)


def settings(tuning: Mapping[str, Any], study: str) -> tuple[Setting, ...]:
    """The settings of a study's sweep jobs: the coarse grid, or all points of a search.

    They depend on the protocol and the study's name alone, so that every method is tried on the same ones.
    """
    if tuning["protocol"] == "two_stage_sweep":
        return tuple({"learning_rate": rate} for rate in tuning["coarse"])
    search = {"random_search": random_search, "halton_search": halton_search}[tuning["protocol"]]
    return search(tuning["space"], tuning["budget"], generator(study, tuning["protocol"]))


def trials(tuning: Mapping[str, Any]) -> int:
    """How many settings every method may try with each workload and basis."""
    if tuning["protocol"] == "two_stage_sweep":
        return len(tuning["coarse"]) + REFINED_RATES
    return int(tuning["budget"])


def random_search(
    space: Mapping[str, Mapping[str, Any]], budget: int, random: np.random.Generator
) -> tuple[Setting, ...]:
    """Independent uniform points of a space, in the linear or logarithmic scale of each axis.

    Args:
        space: `{"low", "high", "scale": "log" | "linear"}` by hyperparameter.
        budget: how many points.
        random: the source of randomness.
    """
    return _points(space, random.random((budget, len(space))))


def halton_search(
    space: Mapping[str, Mapping[str, Any]], budget: int, random: np.random.Generator
) -> tuple[Setting, ...]:
    """The first points of a scrambled Halton sequence, which fills the space more evenly.

    Arguments as in `random_search`. Reference: Halton 1960, scrambled as in Owen 2017.
    """
    from scipy.stats import qmc

    return _points(space, qmc.Halton(d=len(space), scramble=True, rng=random).random(budget))


def _points(space: Mapping[str, Mapping[str, Any]], unit: np.ndarray) -> tuple[Setting, ...]:
    columns = {name: _scaled(axis, unit[:, index]) for index, (name, axis) in enumerate(space.items())}
    return tuple(
        {name: float(column[row]) for name, column in columns.items()} for row in range(unit.shape[0])
    )


def _scaled(axis: Mapping[str, Any], unit: np.ndarray) -> np.ndarray:
    low, high = float(axis["low"]), float(axis["high"])
    if axis["scale"] == "log":
        values = np.exp(np.log(low) + unit * (np.log(high) - np.log(low)))
    else:
        values = low + unit * (high - low)
    clipped: np.ndarray = np.clip(values, low, high)  # rounding may leave the interval by one digit
    return clipped


def chooser(tuning: Mapping[str, Any], basis: str) -> str:
    """The basis whose runs choose a basis's setting: with `shared_across: bases` the identity for all."""
    return IDENTITY if tuning["shared_across"] == "bases" else basis


def choose(runs: pl.DataFrame, tuning: Mapping[str, Any]) -> dict[Group, Setting]:
    """The setting that is taken (`results.tuning.chosen_setting`), by workload and the basis that chooses.

    Args:
        runs: the tuning runs of one optimizer (results.schema.RUNS).
        tuning: the study's protocol, resolved (`Study.tuning`).

    Raises:
        ValueError: when the runs are none, of several optimizers, or lack the metric or the identity basis.
    """
    import polars as pl

    from results.tuning import chosen_setting

    optimizers = runs["optimizer"].unique().to_list()
    if len(optimizers) != 1:
        raise ValueError(f"a choice needs the runs of one optimizer, not of {sorted(optimizers)}")
    names, metric, which = tuning["names"], tuning["metric"], tuning["which"]
    has = pl.col(f"{which}_metrics").list.eval(pl.element().struct.field("name") == metric).list.any()
    for run in runs.filter(pl.col("outcome").is_in(FINISHED) & ~has)["run"]:
        raise ValueError(f"run {run} has no {which} {metric}")
    groups = dict(runs.group_by("workload", "basis", maintain_order=True))
    chosen: dict[Group, Setting] = {}
    for workload, basis in groups:
        group = workload, chooser(tuning, basis)
        if group not in groups:
            raise ValueError(f"no run of {workload} in the identity basis, which chooses for all bases")
        best = chosen_setting(groups[group], names, metric, which, tuning["direction"])
        chosen[group] = dict(zip(names, best, strict=True))
    return chosen
