"""Tuning protocols as pure functions: which settings to try, and which of them to choose."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from harness.seeding import generator
from results.methods import IDENTITY

if TYPE_CHECKING:
    import polars as pl

Setting = Mapping[str, float]
Group = tuple[str, str]  # workload, basis
FINISHED = ("reached", "budget")  # every other outcome counts as the worst result
REFINED_RATES = 6  # new rates of the refined sweep, the same number for every method
EQUAL_TO_ROUNDING = 1e-12  # relative; runs that converged differ by less, in no meaningful order
MULTIPLES = (1, 2, 4, 8)  # 000 Sec. C.3: doubling inside each power of ten


@dataclass(frozen=True)
class Choice:
    """The setting that a protocol chose for one workload and basis.

    Args:
        setting: value by tuned hyperparameter.
        value: the chosen statistic of the metric over the tuning seeds; infinite when all runs failed.
        edge: whether the learning rate is the lowest or the highest of those tried, so that the best
            one may lie outside the grid; None inside.
    """

    setting: Setting
    value: float
    edge: Literal["lowest", "highest"] | None


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
    """The new settings of the refined sweep, six for each workload and basis.

    The bounds lie one power of ten around the best coarse rate; rates of the coarse sweep are not run
    again. Where the best rate is at the edge of the coarse grid the refined one leaves the grid, without
    its outer bound, so that every method gets the same number of rates.

    Args:
        runs: the coarse sweep of one optimizer (results.schema.RUNS).
        tuning: the study's protocol, resolved (`Study.tuning`).
    """
    return {group: _around(choice.setting["learning_rate"]) for group, choice in choose(runs, tuning).items()}


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


def choose(runs: pl.DataFrame, tuning: Mapping[str, Any]) -> dict[Group, Choice]:
    """The best setting for each workload and basis, by the median over the tuning seeds.

    A run that diverged or failed counts as the worst result, so does a metric that is not a number; of
    settings that are equal to rounding the one with the smallest learning rate is taken. With
    `shared_across: bases` the identity basis chooses for all.

    Args:
        runs: the tuning runs of one optimizer (results.schema.RUNS).
        tuning: the study's protocol, resolved (`Study.tuning`).

    Raises:
        ValueError: when the runs are none, of several optimizers, or lack the metric or the identity basis.
    """
    optimizers = runs["optimizer"].unique().to_list()
    if len(optimizers) != 1:
        raise ValueError(f"a choice needs the runs of one optimizer, not of {sorted(optimizers)}")
    medians = _medians(runs, tuning)
    choices = {}
    for (workload, basis), values in medians.items():
        chooser = IDENTITY if tuning["shared_across"] == "bases" else basis
        if (workload, chooser) not in medians:
            raise ValueError(f"no run of {workload} in the identity basis, which chooses for all bases")
        judged = medians[workload, chooser]
        lowest = min(judged.values())
        best = min(
            setting for setting, value in judged.items() if value <= lowest + EQUAL_TO_ROUNDING * abs(lowest)
        )
        choices[workload, basis] = Choice(
            setting=dict(zip(tuning["names"], best, strict=True)),
            value=_sign(tuning) * values.get(best, math.inf),
            edge=_edge(best[0], [setting[0] for setting in judged]),
        )
    return choices


def _edge(rate: float, tried: Sequence[float]) -> Literal["lowest", "highest"] | None:
    if rate == min(tried):
        return "lowest"
    return "highest" if rate == max(tried) else None


def _sign(tuning: Mapping[str, Any]) -> int:
    return 1 if tuning["direction"] == "minimize" else -1


def _medians(runs: pl.DataFrame, tuning: Mapping[str, Any]) -> dict[Group, dict[tuple[float, ...], float]]:
    """Median score (less is better) by workload and basis, and by setting."""
    scores: dict[Group, dict[tuple[float, ...], list[float]]] = {}
    for run in runs.iter_rows(named=True):
        group = scores.setdefault((run["workload"], run["basis"]), {})
        group.setdefault(_setting(run, tuning["names"]), []).append(_score(run, tuning))
    return {
        group: {setting: float(np.median(values)) for setting, values in by_setting.items()}
        for group, by_setting in scores.items()
    }


def _setting(run: Mapping[str, Any], names: Sequence[str]) -> tuple[float, ...]:
    values = {"learning_rate": run["learning_rate"]}
    values |= {item["name"]: item["value"] for item in run["hyperparameters"]}
    return tuple(values[name] for name in names)


def _score(run: Mapping[str, Any], tuning: Mapping[str, Any]) -> float:
    if run["outcome"] not in FINISHED:
        return math.inf
    metrics = {item["name"]: item["value"] for item in run[f"{tuning['which']}_metrics"]}
    if tuning["metric"] not in metrics:
        raise ValueError(
            f"run {run['run']} has no {tuning['which']} {tuning['metric']} (it has: {', '.join(metrics)})"
        )
    value = metrics[tuning["metric"]]
    return math.inf if value is None or math.isnan(value) else _sign(tuning) * value
