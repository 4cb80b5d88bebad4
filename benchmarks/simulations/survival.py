"""Censored times to target: coverage of shares, restricted means and win probabilities, the log-rank test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import exp, log
from statistics import NormalDist

import numpy as np
import polars as pl

from reports.statistics.survival import log_rank_test, reached_shares, restricted_mean

from ._draws import SIZES
from .experiment import COVERAGE, LEVEL, Experiment, Result
from .improvement import improvement_interval
from .intervals import covered

SHARE = 0.2  # of the trials: each takes milliseconds
LARGE = 300_000  # draws, from which a true value is taken


@dataclass(frozen=True)
class Times:
    """A distribution of times to target, and the budget that a given share of the runs misses."""

    draw: Callable[[np.random.Generator, int], np.ndarray]
    budget: Callable[[float], float]


TIMES: Mapping[str, Times] = {
    "exponential": Times(lambda random, size: random.exponential(size=size), lambda miss: -log(miss)),
    "lognormal": Times(
        lambda random, size: random.lognormal(size=size), lambda miss: exp(NormalDist().inv_cdf(1 - miss))
    ),
    "Weibull, shape 3": Times(
        lambda random, size: random.weibull(3, size), lambda miss: (-log(miss)) ** (1 / 3)
    ),
}
MISSED: Mapping[str, float] = {"50 %": 0.5, "10 %": 0.1, "0 %": 1e-6}  # an infinite budget has no horizon


def censored(times: np.ndarray, budgets: np.ndarray | float, method: str = "a") -> pl.DataFrame:
    """Runs of one method on one workload, the n-th with seed n."""
    return pl.DataFrame(
        {
            "workload": "w",
            "seed": np.arange(len(times)),
            "method": method,
            "time": np.minimum(times, budgets),
            "reached": times <= budgets,
        }
    )


def share_coverage(random: np.random.Generator, trials: int) -> Iterator[Result]:
    """Of `reached_shares` at times by which a tenth, a quarter and four tenths reach the target."""
    trials = max(1, round(SHARE * trials))
    for budgets in ("one budget", "budgets differ"):
        for size in SIZES:
            covered = dict.fromkeys((0.1, 0.25, 0.4), 0)
            for _ in range(trials):
                # Exponential budgets of the same rate stop half of the runs, most of them early.
                limits = random.exponential(size=size) if budgets == "budgets differ" else float(np.log(2))
                found = reached_shares(censored(random.exponential(size=size), limits))
                for true in covered:
                    before = found.filter(pl.col("time") <= -np.log(1 - true))
                    # Before the first time nobody is known to have reached it: the share is 0 of all.
                    low, high = (
                        before.select("low", "high").row(-1)
                        if len(before)
                        else (0.0, 1 - 0.025 ** (1 / size))
                    )
                    covered[true] += low <= true <= high
            for true, hits in covered.items():
                setting = f"{budgets}, true share {true:g}; {size} runs"
                yield Result("coverage", setting, hits / trials, trials, *COVERAGE)


def restricted_mean_coverage(random: np.random.Generator, trials: int) -> Iterator[Result]:
    """Of `restricted_mean` up to a budget that half of the runs miss, a tenth, or none."""
    trials = max(1, round(SHARE * trials))
    for (name, times), (missed, share) in product(TIMES.items(), MISSED.items()):
        budget = times.budget(share)
        true = float(np.minimum(times.draw(random, LARGE), budget).mean())
        for size in SIZES:
            found = []
            for _ in range(trials):
                drawn = times.draw(random, size)
                found.append(restricted_mean(np.minimum(drawn, budget), drawn <= budget, budget)[1:])
            yield covered(iter(found), true, f"{name}, {missed} miss; {size} runs", trials)


def log_rank(random: np.random.Generator, trials: int) -> Iterator[Result]:
    """False positives and power of `log_rank_test`, half of the control's runs missing the target."""
    trials = max(1, round(SHARE * trials))
    budget = float(np.log(2))
    cases: tuple[tuple[str, str, float, float | None], ...] = (
        ("false positives", "equal methods", 1.0, LEVEL),
        ("false positives", "equal methods, times in tenths", 1.0, LEVEL),
        ("power", "twice the rate of the control", 0.5, None),
        ("power", "four times the rate of the control", 0.25, None),
    )
    for quantity, name, scale, most in cases:
        count = trials if most else max(1, trials // 5)
        for size in SIZES:
            rejected = 0
            for _ in range(count):
                values = random.exponential(size=(2, size))
                if "tenths" in name:
                    values = np.maximum(0.1, values.round(1))
                runs = [censored(scale * values[0], budget), censored(values[1], budget, "b")]
                rejected += log_rank_test(pl.concat(runs), "a", "b").p_value <= LEVEL
            yield Result(quantity, f"{name}; {size} runs each", rejected / count, count, None, most)


def win_coverage(random: np.random.Generator, trials: int) -> Iterator[Result]:
    """Of `win_probability`; of the control's runs half miss the target."""
    trials = max(1, round(SHARE * trials))
    budget = float(np.log(2))
    for scale, name in ((1.0, "equal methods"), (0.5, "twice the rate of the control")):
        for correlation in (0.0, 0.7):
            shared, own = np.sqrt(correlation), np.sqrt(1 - correlation)

            def draw(size: int, scale: float = scale, shared: float = shared, own: float = own) -> np.ndarray:
                noise = shared * random.normal(size=size) + own * random.normal(size=(2, size))
                return np.exp(noise) * budget * np.array([[scale], [1.0]])

            times = draw(LARGE)
            cut = np.where(times <= budget, times, np.inf)
            true = float(((cut[0] < cut[1]) + (cut[0] == cut[1]) / 2).mean())
            for size in SIZES:
                found = []
                for _ in range(trials):
                    drawn = draw(size)
                    first, second = np.where(drawn <= budget, drawn, np.inf)[:, None]
                    found.append(improvement_interval(-first, -second))
                setting = f"{name}{', seeds matter' if correlation else ''}; {size} runs each"
                yield covered(iter(found), true, setting, trials)


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        "Share that reached the target",
        "reports.statistics.survival.reached_shares",
        "How often the interval holds the true share at one time, half of the runs being censored: by a "
        "common budget, or by budgets of their own. Of few runs the steps of the share are large.",
        share_coverage,
    ),
    Experiment(
        "Restricted mean time to target",
        "reports.statistics.survival.restricted_means",
        "How often it holds the true mean up to the budget, which half of the runs miss, a tenth, or none. "
        "Where none does, the interval takes times for normal or lognormal, whichever reaches further.",
        restricted_mean_coverage,
    ),
    Experiment(
        "Log-rank test",
        "reports.statistics.survival.log_rank_test",
        "How often it rejects at 0.05, one-sided; half of the control's runs miss the target.",
        log_rank,
    ),
    Experiment(
        "Win probability of censored times",
        "reports.statistics.survival.win_probability",
        "How often the interval holds the true probability, half of the control's runs missing the target, "
        "and two that miss it tying. Ties count half and make the interval conservative.",
        win_coverage,
    ),
)
